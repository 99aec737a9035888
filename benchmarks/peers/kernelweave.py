"""kernelweave's solvers.

Matrices are given over all rows, as kernelweave takes them, and the training part is cut out inside
the clock. kernelweave checks once that a matrix is a kernel (all its eigenvalues up to 1,000 rows),
which no peer does: that is done before the clock, as in all fits but the first on the same kernel
objects, and inside it for "auto, with the check". One thread, everything else at the defaults.
"""

from functools import partial
from typing import Any

import kernelweave as kw
from benchmarks.peers.data import CLASSES, NUMBERS, Contestant, Data, SpectrumMatrices
from kernelweave.kernels import RBF, Polynomial, Spectrum, from_matrices


def described(kernels: list[list[Any]]) -> list[Any]:
    """Return kernels that compute from the rows what the matrices hold."""
    made = {"rbf": lambda width: RBF(width=width), "polynomial": Polynomial, "spectrum": Spectrum}
    whole = [(made[kind](setting), columns) for kind, setting, columns in kernels]
    return [kernel if columns is None else kernel.on(columns) for kernel, columns in whole]


def estimator(data: Data, kernels: Any, **options: Any) -> Any:
    if data.kind == NUMBERS:
        # The peers fit the targets as they are, and gaps are compared with their objectives.
        raw = {"loss": "squared", "C": data.C, "target_scale": None}
        return kw.MKLRegressor(kernels, **raw, n_jobs=1, **options)
    return kw.MKLClassifier(kernels, C=data.C, n_jobs=1, **options)


def bayesian(data: Data, kernels: Any, **options: Any) -> Any:
    """BEMKL: no C, and its weights belong to another problem."""
    numbers = data.kind == NUMBERS
    model = kw.BayesianMKLRegressor if numbers else kw.BayesianMKLClassifier
    return model(kernels, n_jobs=1, **options)


def given(data: Data, checked: bool = True, make: Any = estimator, **options: Any) -> Contestant:
    """From matrices, which kernelweave has seen before (`checked`) or not."""
    rows = kw.sample_ids(len(data.y))
    kernels = from_matrices(list(data.grams))
    for kernel in kernels:
        kernel(rows[:1])

    def model() -> Any:
        seen = kernels if checked else from_matrices(list(data.grams))
        return make(data, seen, normalize=None, **options)

    return contestant(data, model, rows, compared=make is estimator)


def from_rows(data: Data) -> Contestant:
    """From standardised columns or sequences: kernels are computed inside the clock."""

    def model() -> Any:
        return estimator(data, described(data.kernels), normalize="diagonal")

    return contestant(data, model, data.rows)


def contestant(data: Data, model: Any, rows: Any, compared: bool = True) -> Contestant:
    more: dict[str, Any] = {}
    if compared:
        method = {NUMBERS: "predict", CLASSES: None}.get(data.kind, "decision_function")
        more = {"decision": method, "weights": lambda model: model.weights_}
    return Contestant(data, model, lambda: rows[data.train], lambda: rows[data.test], **more)


SOLVERS = ("silp", "spg", "spicy", "mwu", "uniform")
CONTESTANTS = {
    "auto": given,
    "auto, with the check": partial(given, checked=False),
    "auto, from rows": from_rows,
    **{name: partial(given, solver=name) for name in SOLVERS},
    "auto, ovr": partial(given, multi_class="ovr"),
    "bayes": partial(given, make=bayesian),
    "Spectrum": partial(SpectrumMatrices, matrix=lambda rows, length: Spectrum(length)(rows)),
}
