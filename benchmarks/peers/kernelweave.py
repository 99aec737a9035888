"""kernelweave's solvers.

Matrices are given over all rows, as kernelweave takes them, and the training part is cut out inside
the clock. kernelweave checks once that a matrix is a kernel (all its eigenvalues up to 1,000 rows),
which no peer does: that is done before the clock, as in all fits but the first on the same kernel
objects, and inside it for "auto, with the check". One thread, everything else at the defaults.
"""

from functools import partial
from typing import Any

from numpy.typing import NDArray

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


class Given(Contestant):
    """From matrices."""

    def __init__(self, data: Data, **options: Any) -> None:
        super().__init__(data)
        self._options = {"normalize": None, **options}
        self._rows: Any = kw.sample_ids(len(data.y))
        self._made = self._make_kernels()

    def _make_kernels(self) -> Any:
        kernels = from_matrices(list(self.data.grams))
        for kernel in kernels:
            kernel(self._rows[:1])
        return kernels

    def _kernels(self) -> Any:
        return self._made

    def _estimator(self) -> Any:
        return estimator(self.data, self._kernels(), **self._options)

    def fit(self) -> None:
        train = self.data.train
        self.model = self._estimator().fit(self._rows[train], self.data.y[train])

    def predict(self) -> NDArray:
        return self.model.predict(self._rows[self.data.test])

    def decision(self) -> NDArray | None:
        if self.data.kind == CLASSES:
            return None
        if self.data.kind == NUMBERS:
            return self.predict()
        return self.model.decision_function(self._rows[self.data.test])

    def weights(self) -> NDArray:
        return self.model.weights_


class Unchecked(Given):
    """From matrices that kernelweave has not seen before."""

    def _make_kernels(self) -> None:
        return None

    def _kernels(self) -> Any:
        return from_matrices(list(self.data.grams))


class FromRows(Unchecked):
    """From standardised columns or sequences: kernels are computed inside the clock."""

    def __init__(self, data: Data, **options: Any) -> None:
        super().__init__(data, normalize="diagonal", **options)
        self._rows = data.rows

    def _kernels(self) -> Any:
        return described(self.data.kernels)


class Bayesian(Given):
    """BEMKL: no C, and its weights belong to another problem."""

    def _estimator(self) -> Any:
        numbers = self.data.kind == NUMBERS
        model = kw.BayesianMKLRegressor if numbers else kw.BayesianMKLClassifier
        return model(self._kernels(), normalize=None, n_jobs=1)

    def decision(self) -> None:
        return None

    def weights(self) -> None:
        return None


class Spectra(SpectrumMatrices):
    """kernelweave's spectrum kernels."""

    def matrix(self, rows: list[str], length: int) -> NDArray:
        return Spectrum(length)(rows)


CONTESTANTS = {
    "auto": Given,
    "auto, with the check": Unchecked,
    "auto, from rows": FromRows,
    **{name: partial(Given, solver=name) for name in ("silp", "spg", "spicy", "mwu", "uniform")},
    "auto, ovr": partial(Given, multi_class="ovr"),
    "bayes": Bayesian,
    "Spectrum": Spectra,
}
