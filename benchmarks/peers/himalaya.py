"""himalaya's kernel ridge models, on its NumPy backend.

Its penalty alpha is 1 / (2 C): its problem is then that of kernelweave's squared loss. Its gradient
search has no intercept (targets have mean zero here) and chooses the penalty itself.
"""

from functools import partial
from typing import Any

import numpy as np
from himalaya.backend import set_backend
from himalaya.kernel_ridge import KernelRidge, MultipleKernelRidgeCV
from numpy.typing import NDArray

from benchmarks.peers.data import Data, OnMatrices

set_backend("numpy")


class Mean(OnMatrices):
    """Kernel ridge regression on the mean of the matrices, which is taken inside the clock."""

    def fit(self) -> None:
        self.model = KernelRidge(1 / (2 * self.data.C), kernel="precomputed", fit_intercept=True)
        self.model.fit(self._train.mean(axis=0), self._y)

    def predict(self) -> NDArray:
        return np.asarray(self.model.predict(self._test.mean(axis=0)))

    def decision(self) -> NDArray:
        return self.predict()


class Learnt(Mean):
    """Weights chosen by cross-validation, at the solver's defaults."""

    def __init__(self, data: Data, solver: str) -> None:
        super().__init__(data)
        self._solver = solver

    def fit(self) -> None:
        options: dict[str, Any] = {"progress_bar": False}
        if self._solver == "random_search":
            options["alphas"] = np.array([1 / (2 * self.data.C)])
        self.model = MultipleKernelRidgeCV(
            kernels="precomputed",
            solver=self._solver,
            solver_params=options,
            fit_intercept=self._solver == "random_search",
            random_state=0,
        ).fit(self._train, self._y)

    def predict(self) -> NDArray:
        return np.asarray(self.model.predict(self._test))

    def weights(self) -> NDArray:
        return np.exp(np.asarray(self.model.deltas_)).reshape(-1)


CONTESTANTS = {
    "KernelRidge, mean": Mean,
    "MultipleKernelRidgeCV, random_search": partial(Learnt, solver="random_search"),
    "MultipleKernelRidgeCV, hyper_gradient": partial(Learnt, solver="hyper_gradient"),
}
