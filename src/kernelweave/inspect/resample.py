"""Replicates of the rows: drawn with or without replacement, class by class where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import _check_method_params, _num_samples


@dataclass(frozen=True)
class Rows:
    """Samples, targets and arguments of `fit`, cut together."""

    X: Any
    y: Any
    fit_params: dict[str, Any]

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(_num_samples(self.X))

    def take(self, index: NDArray[np.intp]) -> Rows:
        """Return the rows at these positions, with their targets and arguments."""
        y = None if self.y is None else _safe_indexing(self.y, index)
        params = _check_method_params(self.X, self.fit_params, index)
        return Rows(_safe_indexing(self.X, index), y, params)


def find_strata(y: Any, n: int) -> list[NDArray[np.intp]]:
    """Return the rows of each class, or all rows where there are no classes."""
    if y is None:
        return [np.arange(n)]
    codes = np.unique(column_or_1d(y), return_inverse=True)[1]
    return [np.flatnonzero(codes == c) for c in range(codes.max() + 1)]


def draw_rows(
    strata: list[NDArray[np.intp]], sampling: str, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw the rows of a replicate: as many as there are with replacement, or half without."""
    if sampling == "bootstrap":
        parts = [rng.choice(rows, len(rows)) for rows in strata]
    else:
        parts = [rng.choice(rows, max(1, len(rows) // 2), replace=False) for rows in strata]
    # In the order of the data, copies of a row are neighbours: splits of a search that do not
    # shuffle then keep them on one side, and rows in order of time stay so.
    return np.sort(np.concatenate(parts))
