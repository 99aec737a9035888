"""A batch of Gaussian kernels bound to training samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base_set import BaseSet
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.batch_tile import BatchTile
from kernelweave.kernels.columns import Block
from kernelweave.kernels.lazy_names import BatchNames
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.tile import Tile
from kernelweave.validation import require_kind

__all__ = ["BatchSet"]

Array = NDArray[Any]

_STATE = ("batch", "samples", "normalization", "_all")


class BatchSet(BaseSet):
    """The kernels of an `RBFBatch` on training samples; answers what a `KernelSet` does.

    Parameters
    ----------
    batch : RBFBatch
        The kernels.
    samples : Samples
        The training samples.
    normalize : {"trace", "diagonal"}, None or tuple of these, default="trace"
        All are the same here: a Gaussian kernel has a diagonal of ones.

    Attributes
    ----------
    n, m : int
        Numbers of samples and kernels.
    names : sequence of str
        Names, written when they are read. Kernels that are equal have equal names.
    columns, gamma : arrays of shape (m, max_size) and (m,)
        The kernels; columns are rows of `table`, filled up with -1.
    table : array of shape (p, n)
        The columns that any kernel reads, transposed, with zero in the middle of their range.

    Examples
    --------
    >>> kernels = BatchSet(RBFBatch([[0], [1]], [1.0, 0.5]), Samples([[0.0, 0.0], [1.0, 2.0]]))
    >>> kernels.cross([[1.0, 0.0]]).round(3)
    array([[[0.368, 1.   ]],
    <BLANKLINE>
           [[1.   , 0.135]]])
    """

    names: BatchNames

    def __init__(self, batch: RBFBatch, samples: Samples, normalize: Any = "trace") -> None:
        self.normalization = Normalization.parse(normalize)
        if "center" in self.normalization.names:
            raise InvalidInputError(
                f"kernels of an RBFBatch are not stored and cannot be centred; got "
                f"normalize={normalize!r}. Allowed: 'trace', 'diagonal' or None, which are all "
                f"the same for them, because their diagonal is one."
            )
        self.batch = batch
        self.samples = samples
        self._all = batch.selection.bind(samples)
        self._look()

    def _look(self) -> None:
        """Take from the samples what the kernels read."""
        batch, samples = self.batch, self.samples
        seen = samples.derive(self._all)
        columns, self.gamma = batch.checked(seen.n_columns)
        used, positions = np.unique(columns, return_inverse=True)
        filled = int(used[0] == -1)
        self.columns = (positions.reshape(columns.shape) - filled).astype(np.int32)
        titles = seen.columns
        own = [int(j) for j in used[filled:]]
        names = None if titles is None else [titles[j] for j in own]
        self._used = Block(own, seen.n_columns, names, "")
        values = self._values(samples)
        # Small numbers are rounded least: the middle of the range is the best place for zero.
        self._shift = 0.5 * (values.min(axis=0) + values.max(axis=0))
        self.table = np.ascontiguousarray((values - self._shift).T)
        suffix = f" via {self._all.label.partition(' via ')[2]}" if batch.transformer else ""
        self.names = BatchNames(columns, self.gamma, titles, suffix)

    def __getstate__(self) -> dict[str, Any]:
        # The rest is the samples and the batch once more.
        return {name: getattr(self, name) for name in _STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in _STATE:
            setattr(self, name, state[name])
        self._look()

    def _after_load(self) -> None:
        require_kind("the normalization", self.normalization, Normalization)
        if "center" in self.normalization.names:
            raise InvalidInputError("kernels of an RBFBatch cannot be centred.")

    @property
    def m(self) -> int:
        return len(self.gamma)

    def __repr__(self) -> str:
        return f"BatchSet(n={self.n}, m={self.m}, {self.normalization!r})"

    def _values(self, samples: Samples) -> Array:
        values = samples.derive(self._all).derive(self._used).array()
        return values.toarray() if samples.derive(self._all).is_sparse else values

    def _table_of(self, X: Any) -> Array:
        """Return new samples in the form of `table`."""
        samples = as_samples(X)
        if samples.n_columns != self.samples.n_columns:
            raise InvalidInputError(
                f"X has {samples.n_columns} columns, but the kernels were bound to "
                f"{self.samples.n_columns}."
            )
        return (self._values(samples) - self._shift).T

    def _tile(self, left: Array, right: Array, dtype: DTypeLike) -> BatchTile:
        return BatchTile(self.columns, self.gamma, left, right, dtype)

    def _part(self, idx: ArrayLike | None) -> Array:
        """The columns of `table` of those training samples (None: all)."""
        return self.table if idx is None else self.table[:, self._positions(idx)]

    def rows(
        self,
        idx: ArrayLike,
        kernels: ArrayLike | None = None,
        columns: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return values between training samples, shape (m', len(idx), n')."""
        left = self._part(idx)
        right = self._part(columns)
        return self._tile(left, right, dtype).stack(self._asked(kernels))

    def diag(self, kernels: ArrayLike | None = None) -> Array:
        """Return the diagonals, shape (m', n): ones, in a view that takes no memory."""
        return np.broadcast_to(1.0, (len(self._asked(kernels)), self.n))

    def cross(
        self,
        X_new: Any,
        idx: ArrayLike | None = None,
        kernels: ArrayLike | None = None,
        dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return values of new samples against training samples; see `KernelSet.cross`."""
        right = self._part(idx)
        return self._tile(self._table_of(X_new), right, dtype).stack(self._asked(kernels))

    def between(self, X: Any, Z: Any, kernels: ArrayLike | None = None) -> Array:
        """Return values of new samples against other new samples, shape (m', q, s)."""
        tile = self._tile(self._table_of(X), self._table_of(Z), np.float64)
        return tile.stack(self._asked(kernels))

    def tile(self, X_new: Any, idx: ArrayLike | None = None, dtype: DTypeLike = np.float64) -> Tile:
        """Return new samples against training samples as a tile."""
        return self._tile(self._table_of(X_new), self._part(idx), dtype)

    def tile_between(self, X: Any, Z: Any, dtype: DTypeLike = np.float64) -> Tile:
        """Return new samples against other new samples as a tile."""
        return self._tile(self._table_of(X), self._table_of(Z), dtype)

    def sample_ids_of(self, idx: ArrayLike, kernels: ArrayLike | None = None) -> dict[str, Any]:
        """Return nothing: these kernels are not precomputed."""
        return {}
