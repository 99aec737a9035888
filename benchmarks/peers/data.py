"""One problem as all contestants are given it: arrays in one file.

Workers read this module in environments of their own, where there is NumPy and little else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TWO_CLASSES, CLASSES, NUMBERS = "two classes", "classes", "numbers"


@dataclass(frozen=True)
class Data:
    """Kernel matrices over all rows, the rows themselves, targets, one split and C."""

    # `TWO_CLASSES` (-1 and +1), `CLASSES` or `NUMBERS`.
    kind: str
    # Kernel matrices of unit diagonal, (m, n, n).
    grams: NDArray
    # Standardised columns or sequences: what kernelweave's kernels start from.
    rows: NDArray
    y: NDArray
    # Positions of the rows.
    train: NDArray
    test: NDArray
    # Weight of the loss, the same for all.
    C: float
    # What made each matrix: ["rbf", width, columns], ["polynomial", degree, columns] (all columns:
    # None) or ["spectrum", length, None].
    kernels: list[list[Any]]

    def between(self, left: NDArray, right: NDArray) -> NDArray:
        return np.ascontiguousarray(self.grams[:, left[:, None], right])

    def small(self) -> Data:
        """Return a few rows and kernels of it, to warm up on."""
        some = slice(0, 3)
        few = {"train": self.train[:60], "test": self.test[:20]}
        return replace(self, grams=self.grams[some], kernels=self.kernels[some], **few)

    def save(self, path: Path) -> None:
        """Write it down, sequences as text of one length or padded."""
        arrays = {name: getattr(self, name) for name in ("grams", "rows", "y", "train", "test")}
        words = json.dumps({"kind": self.kind, "C": self.C, "kernels": self.kernels})
        np.savez(path, **arrays, words=np.array(words))

    @classmethod
    def load(cls, path: str) -> Data:
        with np.load(path) as held:
            arrays = {name: held[name] for name in held.files}
        return cls(**json.loads(str(arrays.pop("words"))), **arrays)


class Contestant:
    """What a worker runs: prepared before the clock, fitted and asked to predict on it."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.model: Any = None

    def fit(self) -> None:
        raise NotImplementedError

    def predict(self) -> NDArray:
        """Return predictions for the test rows."""
        raise NotImplementedError

    def decision(self) -> NDArray | None:
        """Return decision values (or numbers) for the test rows, where they are compared."""
        return None

    def weights(self) -> NDArray | None:
        """Return the weights of the kernels, (m,) or (classes, m)."""
        return None


class OnMatrices(Contestant):
    """A contestant that is given the matrices of the training and of the test rows."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        self._train = data.between(data.train, data.train)
        self._test = data.between(data.test, data.train)
        self._y = data.y[data.train]

    def weights(self) -> NDArray:
        return np.full(len(self._train), 1 / len(self._train))


class SpectrumMatrices(Contestant):
    """Not a fit: the spectrum kernels' matrices over all rows."""

    def fit(self) -> None:
        rows = [str(row) for row in self.data.rows]
        self.model = np.array([self.matrix(rows, kernel[1]) for kernel in self.data.kernels])

    def matrix(self, rows: list[str], length: int) -> NDArray:
        raise NotImplementedError

    def predict(self) -> NDArray:
        return np.zeros(0)

    def decision(self) -> NDArray:
        return self.model
