"""MKLpy's algorithms; runs in an environment that has MKLpy.

Everything is at MKLpy's defaults but the learner on top, which is ``SVC`` with the C of all
contestants. EasyMKL keeps the learner it has by default (KOMD with lam=0.1, as its own lam).
"""

import contextlib
import io
from functools import partial
from typing import Any

import numpy as np
import torch
from MKLpy.algorithms import CKA, GRAM, MEMO, PWMK, AverageMKL, EasyMKL
from MKLpy.metrics.pairwise import spectrum_kernel
from numpy.typing import NDArray
from sklearn.svm import SVC

from benchmarks.peers.data import TWO_CLASSES, Data, OnMatrices, SpectrumMatrices


class Given(OnMatrices):
    """An algorithm on lists of matrices, as MKLpy takes them."""

    def __init__(self, data: Data, make: Any, own_learner: bool = False) -> None:
        super().__init__(data)
        self._make, self._own = make, own_learner
        self._train, self._test = (
            list(map(torch.from_numpy, K)) for K in (self._train, self._test)
        )
        self._y = self._y.astype(int)

    def fit(self) -> None:
        options = {} if self._own else {"learner": SVC(C=self.data.C)}
        with contextlib.redirect_stdout(io.StringIO()):  # MEMO prints
            self.model = self._make(**options).fit(self._train, self._y)

    def predict(self) -> NDArray:
        return np.asarray(self.model.predict(self._test))

    def weights(self) -> NDArray:
        solution = self.model.solution
        if self.data.kind == TWO_CLASSES:
            return np.asarray(solution.weights)
        return np.array([np.asarray(solution[label].weights) for label in sorted(solution)])


class Spectra(SpectrumMatrices):
    """MKLpy's spectrum kernels."""

    def matrix(self, rows: list[str], length: int) -> NDArray:
        return spectrum_kernel(rows, p=length).numpy()


CONTESTANTS = {
    **{make.__name__: partial(Given, make=make) for make in (AverageMKL, CKA, PWMK, MEMO, GRAM)},
    "EasyMKL": partial(Given, make=EasyMKL, own_learner=True),
    "spectrum_kernel": Spectra,
}
