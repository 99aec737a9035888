"""Sums of symmetric products, one half of them computed and the other mirrored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.matrix_checks import mirror_rows
from kernelweave.compiled.threads import map_blocks

# Columns that a thread takes at a time: enough for BLAS, and so few that the half of a square that
# blocks leave out is nearly a half. They never follow the number of threads: same bits on any
# machine.
_COLUMN_BLOCK = 64

Array = NDArray[Any]


class SquareSum:
    """A sum of symmetric products A'B of matrices of n columns, float64."""

    def __init__(self, n: int) -> None:
        self._lower = np.zeros((n, n))

    def add(self, A: Array, B: Array) -> None:
        """Add A'B, which is symmetric, in blocks of columns up to the diagonal."""
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        n = A.shape[1]
        blocks = -(-n // _COLUMN_BLOCK)

        def work(first: int, last: int) -> None:
            for item in range(first, last):
                # The longest blocks come first, so that no thread is left with one at the end.
                start = (blocks - 1 - item) * _COLUMN_BLOCK
                stop = min(start + _COLUMN_BLOCK, n)
                self._lower[start:stop, :stop] += A[:, start:stop].T @ B[:, :stop]

        map_blocks(work, blocks, 1, A.size * n / 2)

    def total(self) -> Array:
        out = self._lower
        map_blocks(lambda a, b: mirror_rows(out, a, b), len(out), _COLUMN_BLOCK, float(out.size))
        return out
