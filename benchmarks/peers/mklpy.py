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
from sklearn.svm import SVC

from benchmarks.peers.data import TWO_CLASSES, Contestant, Data, SpectrumMatrices


class Given(Contestant):
    """An algorithm on lists of matrices, as MKLpy takes them."""

    def __init__(self, data: Data, make: Any, own_learner: bool = False) -> None:
        options = {} if own_learner else {"learner": SVC(C=data.C)}
        train, test = (
            list(map(torch.from_numpy, data.between(rows, data.train)))
            for rows in (data.train, data.test)
        )
        weights = partial(weights_of, data.kind)
        make = partial(make, **options)
        super().__init__(data, make, lambda: train, lambda: test, weights=weights)
        self._y = self._y.astype(int)

    def fit(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # MEMO prints
            super().fit()


def weights_of(kind: str, model: Any) -> np.ndarray:
    solution = model.solution
    if kind == TWO_CLASSES:
        return np.asarray(solution.weights)
    return np.array([np.asarray(solution[label].weights) for label in sorted(solution)])


def spectrum(rows: list[str], length: int) -> np.ndarray:
    return spectrum_kernel(rows, p=length).numpy()


CONTESTANTS = {
    **{make.__name__: partial(Given, make=make) for make in (AverageMKL, CKA, PWMK, MEMO, GRAM)},
    "EasyMKL": partial(Given, make=EasyMKL, own_learner=True),
    "spectrum_kernel": partial(SpectrumMatrices, matrix=spectrum),
}
