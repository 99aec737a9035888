"""MKLpy's algorithms as contestants of ``peers.py``; runs in an environment that has MKLpy.

Everything is at MKLpy's defaults but the learner on top, which is ``SVC`` with the C of all
contestants. EasyMKL keeps the learner it has by default (KOMD with lam=0.1, as its own lam).
"""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import Any

import numpy as np
import torch
from MKLpy.algorithms import CKA, GRAM, MEMO, PWMK, AverageMKL, EasyMKL
from MKLpy.metrics.pairwise import spectrum_kernel
from numpy.typing import NDArray
from peers_data import TWO_CLASSES, Contestant, Data
from sklearn.svm import SVC


class Given(Contestant):
    """An algorithm on lists of matrices, as MKLpy takes them."""

    def __init__(self, data: Data, make: Any, own_learner: bool = False) -> None:
        super().__init__(data)
        self._make, self._own = make, own_learner
        self._train = list(torch.from_numpy(data.between(data.train, data.train)))
        self._test = list(torch.from_numpy(data.between(data.test, data.train)))
        self._y = data.y[data.train].astype(int)

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


class SpectrumMatrices(Contestant):
    """Not a fit: the spectrum kernels' matrices over all rows."""

    def fit(self) -> None:
        rows = [str(row) for row in self.data.rows]
        lengths = [length for _, length, _ in self.data.kernels]
        self.model = np.array([spectrum_kernel(rows, p=length).numpy() for length in lengths])

    def predict(self) -> NDArray:
        return np.zeros(0)

    def decision(self) -> NDArray:
        return self.model


CONTESTANTS = {
    "AverageMKL": partial(Given, make=AverageMKL),
    "EasyMKL": partial(Given, make=EasyMKL, own_learner=True),
    "CKA": partial(Given, make=CKA),
    "PWMK": partial(Given, make=PWMK),
    "MEMO": partial(Given, make=MEMO),
    "GRAM": partial(Given, make=GRAM),
    "spectrum_kernel": SpectrumMatrices,
}
