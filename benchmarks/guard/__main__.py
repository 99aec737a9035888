"""Guard against slowdowns: one time for everything that a user waits for.

    python -m benchmarks --parts guard, on two commits, then: python -m benchmarks compare A B

Every solver on a problem that suits it (those of solver_table.py, smaller for `mwu` and `spicy`),
the Bayesian classifier, a path with cross-validation, string kernels, kernels by themselves,
predictions. Times are kept together with those of a reference of fixed work around them, and only
their ratios are compared.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

from benchmarks.guard.solver_table import BATCH, DENSE, FAMILY, LOGISTIC, MATRICES, problems
from benchmarks.part import Settings, run_alone
from benchmarks.problems import simulate
from benchmarks.show import table
from benchmarks.timing import Clock
from kernelweave import BayesianMKLClassifier, MKLClassifier, MKLClassifierCV
from kernelweave.bank import build_bank
from kernelweave.kernels import RBF, WeightedDegree
from kernelweave.operators import ComputedOperator

TITLE = "Times to compare with other commits"
SOLVED = [(solver, FAMILY) for solver in ("active-set", "silp", "silp-chunking", "uniform")]
SOLVED += [("spicy", LOGISTIC), ("spg", DENSE), ("mwu", MATRICES), ("active-set", BATCH)]


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Time everything, the smallest of three or, in full, ten."""
    repeats = 10 if settings.full else 3
    rows = []
    for name, work, small in _works():
        small()  # compiled code is loaded before the clock starts
        settings.say(f"guard: {name}")
        _, seconds = clock.time(f"guard/{name}", work, repeats)
        rows.append({"name": name, "seconds": seconds})
    return {"rows": rows, "repeats": repeats}


def tell(result: dict[str, Any]) -> str:
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
    many, gaussian = np.tile(X, (20, 1)), RBF(width=100.0)
    works += [
        ("predict, 11,380 samples", partial(fitted.predict, many), partial(fitted.predict, X)),
        ("403 kernels into a bank", partial(_bank, X), partial(_bank, X[:50])),
        ("one Gaussian kernel, n = 3,000", partial(gaussian, many[:3000]), partial(gaussian, X)),
    ]
    return works


def _fit(name: str, model: Any, X: Any, y: Any) -> Work:
    y = y[: len(X)]
    return name, partial(model.fit, X, y), partial(clone(model).fit, X[::5], y[::5])


def _bank(X: np.ndarray) -> Any:
    return build_bank("auto", ComputedOperator.build("simplemkl", X))


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
