"""Guard against slowdowns: one time for everything that a user waits for.

    python benchmarks/guard.py
    python -m benchmarks --parts guard, on two commits, then: python -m benchmarks compare A B

Every solver on a problem that suits it (those of solver_table.py, smaller for `mwu` and `spicy`),
the Bayesian classifier, a path with cross-validation, string kernels, kernels by themselves,
predictions. Times are kept together with those of a reference of fixed work around them, and only
their ratios are compared.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from part import Clock, Settings, run_alone, table
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from solver_table import problems
from strings import simulate

from kernelweave import BayesianMKLClassifier, MKLClassifier, MKLClassifierCV
from kernelweave.bank import build_bank
from kernelweave.kernels import RBF, WeightedDegree
from kernelweave.operators import ComputedOperator

TITLE = "Times to compare with other commits"
FAMILY, LOGISTIC, DENSE, MATRICES, BATCH = (
    "403 kernels, n = 569",
    "the same, logistic",
    "the same, p = 1.33",
    "10 matrices, n = 1,797",
    "2,000 kernels, n = 300",
)
SOLVED = (
    ("active-set", FAMILY),
    ("silp", FAMILY),
    ("silp-chunking", FAMILY),
    ("spicy", LOGISTIC),
    ("spg", DENSE),
    ("mwu", MATRICES),
    ("uniform", FAMILY),
    ("active-set", BATCH),
)


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Time everything, the smallest of three or, in full, ten."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    repeats = 10 if settings.full else 3
    rows = []
    for name, work, small in _works():
        small()  # compiled code is loaded before the clock starts
        settings.say(f"guard: {name}")
        _, seconds = clock.time(f"guard/{name}", work, repeats)
        rows.append({"name": name, "seconds": seconds})
    return {"rows": rows, "repeats": repeats}


def tell(result: dict[str, Any]) -> str:
    """Return the table of times."""
    rows = [[row["name"], f"{row['seconds']:.3f} s"] for row in result["rows"]]
    return f"The smallest of {result['repeats']}.\n\n" + table(["work", "time"], rows)


Work = tuple[str, Callable[[], Any], Callable[[], Any]]


def _works() -> list[Work]:
    """Name, work, and a smaller piece of the same kind."""
    known = problems()
    works: list[Work] = []
    for solver, problem in SOLVED:
        model, X, y = known[problem]
        model = clone(model).set_params(solver=solver)
        name = f"fit, {solver}, {problem.replace('the same', '403 kernels')}"
        works.append((name, partial(model.fit, X, y), partial(clone(model).fit, X[::5], y[::5])))
    X, y = load_breast_cancer(return_X_y=True)
    works += [
        _fit("fit, bayes, 403 kernels, n = 300", BayesianMKLClassifier("simplemkl"), X[:300], y),
        _fit("path in 5 folds, 7 kernels, n = 569", MKLClassifierCV(), X, y),
    ]
    sites, is_site = simulate(4_000)
    strings = MKLClassifier(WeightedDegree(10).by_length())
    works.append(_fit("fit, weighted degree 10, 4,000 sequences", strings, sites, is_site))
    fitted = MKLClassifier("simplemkl").fit(X, y)
    many = np.tile(X, (20, 1))
    works += [
        ("predict, 11,380 samples", partial(fitted.predict, many), partial(fitted.predict, X)),
        ("403 kernels into a bank", partial(_bank, X), partial(_bank, X[:50])),
        ("one Gaussian kernel, n = 3,000", partial(_gaussian, many[:3000]), partial(_gaussian, X)),
    ]
    return works


def _fit(name: str, model: Any, X: Any, y: Any) -> Work:
    y = y[: len(X)]
    return name, partial(model.fit, X, y), partial(clone(model).fit, X[::5], y[::5])


def _bank(X: np.ndarray) -> Any:
    return build_bank("auto", ComputedOperator.build("simplemkl", X))


def _gaussian(X: np.ndarray) -> Any:
    return RBF(width=100.0)(X)


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
