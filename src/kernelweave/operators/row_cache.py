"""A cache of kernel rows under a byte budget; the rows used longest ago go first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.threads import map_blocks

__all__ = ["RowCache"]

Array = NDArray[Any]

_BATCH_BYTES = 8e6


class RowCache:
    """Rows of every kernel in one slab; one entry is the same row of all m kernels.

    Parameters
    ----------
    compute : callable
        ``compute(idx) -> (m, len(idx), n)``: the rows that are not there.
    m, n : int
        Number of kernels and of samples.
    max_bytes : float
        Budget of the slab; at least two rows are kept, whatever it is.
    dtype : numpy dtype
        Storage.
    instead_of : RowCache, optional
        Forgets its rows when this one takes memory for its own.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.arange(9.0).reshape(1, 3, 3)
    >>> cache = RowCache(lambda idx: K[:, idx], m=1, n=3, max_bytes=1e6, dtype=np.float64)
    >>> slab, slots = cache.slots(np.array([2]))
    >>> slab[slots[0], 0]
    array([6., 7., 8.])
    >>> _ = cache.slots(np.array([2, 0]))
    >>> cache.hits, cache.misses
    (1, 2)
    """

    def __init__(
        self,
        compute: Callable[[Array], Array],
        m: int,
        n: int,
        max_bytes: float,
        dtype: np.dtype,
        instead_of: RowCache | None = None,
    ) -> None:
        self._compute = compute
        self.dtype = np.dtype(dtype)
        row_bytes = m * n * self.dtype.itemsize
        self.capacity = int(np.clip(max_bytes // row_bytes, min(2, n), n))
        self._shape = self.capacity, m, n
        # Taken when the first row is: many caches are made and never asked.
        self._slab: Array | None = None
        self._instead_of = instead_of
        self._slot = np.full(n, -1)
        self._row = np.full(self.capacity, -1)
        self._stamp = np.zeros(self.capacity, dtype=np.int64)
        self._clock = 0
        self._used = 0
        self.hits = 0
        self.misses = 0

    def clear(self, compute: Callable[[Array], Array]) -> None:
        """Forget all rows and compute others from now on, in the same memory."""
        self._compute = compute
        self._slot[:] = -1
        self._row[:] = -1
        self._stamp[:] = 0
        self._used = 0

    def release(self) -> None:
        """Forget all rows and give their memory back; it is taken again when a row is asked for."""
        self.clear(self._compute)
        self._slab = None

    @property
    def nbytes(self) -> int:
        """Bytes of the slab, once it is in use."""
        return math.prod(self._shape) * self.dtype.itemsize

    def _memory(self) -> Array:
        if self._slab is None:
            if self._instead_of is not None:
                self._instead_of.release()
            self._slab = np.empty(self._shape, self.dtype)
        return self._slab

    def slots(self, idx: Array) -> tuple[Array, Array]:
        """Return the slab and the slots that hold rows `idx` (at most `capacity` distinct rows)."""
        self._clock += 1
        idx = np.asarray(idx)
        there = self._slot[idx]
        self._stamp[there[there >= 0]] = self._clock
        missing = np.unique(idx[there < 0])
        self.hits += len(idx) - int((there < 0).sum())
        self.misses += len(missing)
        if len(missing):
            self._load(missing)
        return self._memory(), self._slot[idx]

    def _load(self, missing: Array) -> None:
        order = self._room_for(len(missing))
        old = self._row[order]
        self._slot[old[old >= 0]] = -1
        # A few rows at a time: they are copied while still in the cache of the processor, and
        # memory of this size is used again instead of being asked for anew.
        batch = max(1, int(_BATCH_BYTES * self.capacity // self.nbytes))
        for first in range(0, len(missing), batch):
            self._store(order[first : first + batch], self._compute(missing[first : first + batch]))
        self._row[order] = missing
        self._slot[missing] = order
        self._stamp[order] = self._clock

    def _store(self, slots: Array, values: Array) -> None:
        slab = self._memory()

        def copy(start: int, stop: int) -> None:
            for place in range(start, stop):
                slab[slots[place]] = values[:, place]

        map_blocks(copy, len(slots), 16, values.size)

    def _room_for(self, count: int) -> Array:
        """Slots to write: unused ones in order first, so that unused memory is never touched."""
        unused = np.arange(self._used, min(self._used + count, self.capacity))
        self._used += len(unused)
        if len(unused) == count:
            return unused
        # The current clock marks rows of this very request: they are never thrown out for it.
        more = count - len(unused)
        stamps = self._stamp.copy()
        stamps[unused] = self._clock
        return np.concatenate([unused, np.sort(np.argpartition(stamps, more - 1)[:more])])
