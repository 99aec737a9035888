"""A cache of kernel rows under a byte budget; the rows used longest ago go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES
from kernelweave.compiled.threads import map_blocks, rows_of


class RowCache:
    """Rows of length n in one slab; one entry is the same row of all m kernels.

    ``compute(idx)`` returns rows that are not there, shape (m, len(idx), n); there are `n_rows`
    different ones, n unless it is given. At least two are kept, whatever `max_bytes` is.
    """

    def __init__(
        self,
        compute: Callable[[Array], Array],
        m: int,
        n: int,
        max_bytes: float,
        dtype: np.dtype,
        n_rows: int | None = None,
    ) -> None:
        self._compute = compute
        self.dtype = np.dtype(dtype)
        n_rows = n if n_rows is None else n_rows
        row_bytes = max(1, m * n) * self.dtype.itemsize
        self.capacity = int(np.clip(max_bytes // row_bytes, min(2, n_rows), n_rows))
        self._shape = self.capacity, m, n
        self._evicts = self.capacity < n_rows
        # Rows that are computed and copied at a time are then still in the cache of the processor.
        self._batch = rows_of(m * n, SHARED_CACHE_ENTRIES)
        # Taken when the first row is: many caches are made and never asked.
        self._slab: Array | None = None
        # Where each row is, the one used longest ago first.
        self._slots: dict[int, int] = {}
        # Taken from the end: unused memory is not touched before it is needed.
        self._free = list(range(self.capacity - 1, -1, -1))

    def slots(self, idx: Array) -> tuple[Array, Array]:
        """Return the slab and the slots that hold rows `idx` (at most `capacity` distinct rows)."""
        if self._slab is None:
            self._slab = np.empty(self._shape, self.dtype)
        wanted, slots = np.asarray(idx).tolist(), self._slots
        found = [slots.get(row, -1) for row in wanted]
        missing = {row for row in wanted if row not in slots} if -1 in found else set()
        if self._evicts:
            # To the end of the line: rows of this very request are never thrown out for it.
            slots.update({row: slots.pop(row) for row in set(wanted) - missing})
        if missing:
            self._load(self._slab, sorted(missing))
            found = [slots[row] for row in wanted]
        return self._slab, np.array(found, dtype=np.int64)

    def _load(self, slab: Array, missing: list[int]) -> None:
        for first in range(0, len(missing), self._batch):
            rows = missing[first : first + self._batch]
            values = self._compute(np.array(rows))
            while len(self._free) < len(rows):
                self._free.append(self._slots.pop(next(iter(self._slots))))
            places = self._free[: -len(rows) - 1 : -1]

            def copy(start: int, stop: int, places: list[int] = places, new: Any = values) -> None:
                for k in range(start, stop):
                    slab[places[k]] = new[:, k]

            map_blocks(copy, len(rows), 16, values.size)
            # Only now, as an interruption may have come before.
            del self._free[-len(rows) :]
            self._slots.update(zip(rows, places, strict=True))
