"""One problem as all contestants are given it: arrays in one file.

Workers read this module in environments of their own, where there is NumPy and little else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
    """What a worker runs: an estimator, and what it is given.

    Whoever makes the contestant makes what exists before the clock starts; what `make`, `train` and
    `test` do is inside it. `decision` names the method that returns decision values (or numbers)
    where these are compared, and `weights` reads those of the kernels, (m,) or (classes, m), from a
    fitted estimator.
    """

    def __init__(
        self,
        data: Data,
        make: Callable[[], Any],
        train: Callable[[], Any],
        test: Callable[[], Any],
        decision: str | None = None,
        weights: Callable[[Any], Any] | None = None,
    ) -> None:
        self._make, self._train, self._test = make, train, test
        self._y = data.y[data.train]
        self._decision, self._weights = decision, weights
        self.model: Any = None

    def fit(self) -> None:
        self.model = self._make().fit(self._train(), self._y)

    def predict(self) -> NDArray:
        return np.asarray(self.model.predict(self._test()))

    def decision(self) -> NDArray | None:
        if self._decision is None:
            return None
        return np.asarray(getattr(self.model, self._decision)(self._test()))

    def weights(self) -> NDArray | None:
        return None if self._weights is None else np.asarray(self._weights(self.model))


def on_matrices(data: Data, make: Callable[[], Any], join: Any, **more: Any) -> Contestant:
    """A contestant on the matrices between rows; `join`, inside the clock, makes its input."""
    train = data.between(data.train, data.train)
    test = data.between(data.test, data.train)
    return Contestant(data, make, lambda: join(train), lambda: join(test), **more)


def on_mean(data: Data, make: Callable[[], Any], decision: str | None) -> Contestant:
    """A contestant on the mean of the matrices, which is taken inside the clock."""
    equal = np.full(len(data.grams), 1 / len(data.grams))
    mean = {"decision": decision, "weights": lambda model: equal}
    return on_matrices(data, make, lambda grams: grams.mean(axis=0), **mean)


class SpectrumMatrices:
    """Not a fit: the spectrum kernels' matrices over all rows, by a function of one library."""

    def __init__(self, data: Data, matrix: Callable[[list[str], int], NDArray]) -> None:
        self._data, self._matrix = data, matrix

    def fit(self) -> None:
        rows = [str(row) for row in self._data.rows]
        self.model = np.array([self._matrix(rows, kernel[1]) for kernel in self._data.kernels])

    def predict(self) -> NDArray:
        return np.zeros(0)

    def decision(self) -> NDArray:
        return self.model

    def weights(self) -> None:
        return None
