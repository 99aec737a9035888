"""One problem as all contestants of ``peers.py`` are given it: arrays in one file.

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
    """Kernel matrices over all rows, the rows themselves, targets, one split and C.

    Parameters
    ----------
    kind : str
        `TWO_CLASSES` (-1 and +1), `CLASSES` or `NUMBERS`.
    grams : array of shape (m, n, n)
        Kernel matrices of unit diagonal.
    rows : array of shape (n, features) or (n,)
        Standardised columns or sequences: what kernelweave's kernels start from.
    y : array of shape (n,)
        Targets.
    train, test : arrays
        Positions of the rows.
    C : float
        Weight of the loss, the same for all.
    kernels : list
        What made each matrix: ``["rbf", width, columns]``, ``["polynomial", degree, columns]`` (all
        columns: None) or ``["spectrum", length, None]``.
    """

    kind: str
    grams: NDArray
    rows: NDArray
    y: NDArray
    train: NDArray
    test: NDArray
    C: float
    kernels: list[list[Any]]

    def between(self, left: NDArray, right: NDArray) -> NDArray:
        """Return all matrices between some rows and others."""
        return np.ascontiguousarray(self.grams[:, left[:, None], right])

    def small(self) -> Data:
        """Return a few rows and kernels of it, to warm up on."""
        some = slice(0, 3)
        return replace(
            self,
            grams=self.grams[some],
            kernels=self.kernels[some],
            train=self.train[:60],
            test=self.test[:20],
        )

    def save(self, path: Path) -> None:
        """Write it down, sequences as text of one length or padded."""
        arrays = {name: getattr(self, name) for name in ("grams", "rows", "y", "train", "test")}
        words = json.dumps({"kind": self.kind, "C": self.C, "kernels": self.kernels})
        np.savez(path, **arrays, words=np.array(words))

    @classmethod
    def load(cls, path: str) -> Data:
        """Read what `save` wrote."""
        with np.load(path) as held:
            arrays = {name: held[name] for name in held.files}
        return cls(**json.loads(str(arrays.pop("words"))), **arrays)


class Contestant:
    """What a worker runs: prepared before the clock, fitted and asked to predict on it."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.model: Any = None

    def fit(self) -> None:
        """Fit on the training rows."""
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
