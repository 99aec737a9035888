"""Running products as one m x n array, passed over once a move."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.running.base import Array, RunningProducts
from kernelweave.compiled.mwu import gather, state_quads, weigh_state
from kernelweave.compiled.threads import map_blocks

__all__ = ["StateProducts", "Work"]

# work(sum, range of the kernels awake, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Columns of a block of the pass: its part of the sum stays in the cache of a core.
_COLUMN_BLOCK = 2048
# Kernels are cut instead of columns where there are this many times more of them.
_MANY_KERNELS = 16
# Sums over kernels are then cut into this many parts, whatever the number of threads.
_SUM_PARTS = 64
# Entries above which the state is kept in float32.
_LARGE_STATE = 100_000_000
# Kernels whose missed products are computed at a time (entries).
_RESET_ENTRIES = 2**22


class StateProducts(RunningProducts):
    """Running products kept as one m x n array.

    It is float64, or float32 from 10^8 entries on, where memory counts for more.
    """

    def __init__(self, bank: Any, m: int, n: int) -> None:
        self.bank = bank
        self.m, self.n = m, n
        dtype = np.dtype(np.float64 if m * n <= _LARGE_STATE else np.float32)
        require_bytes(float(m) * n * dtype.itemsize, f"the state of {m} kernels on {n} samples")
        self.state = np.zeros((m, n), dtype)
        # What the kernels asleep have missed.
        self._missed = np.zeros(n)
        self.wake(None)

    @property
    def nbytes(self) -> int:
        """See :class:`RunningProducts`."""
        return int(self.state.nbytes)

    def reset(self, v: Array) -> None:
        """See :class:`RunningProducts`."""
        self.state.fill(0.0)
        self._missed[:] = 0.0
        self.wake(None)
        self._catch_up(np.arange(self.m), v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """state[k] += K_k v for these kernels."""
        if not np.any(v):
            return
        size = max(1, _RESET_ENTRIES // self.n)
        for first in range(0, len(kernels), size):
            part = kernels[first : first + size]
            self.state[part] += self.bank.matvec(v, part)

    def settle(self, v: Array) -> Array:
        """See :class:`RunningProducts`."""
        if len(self.awake) < self.m:
            self._catch_up(np.setdiff1d(np.arange(self.m), self.awake), self._missed)
            self._missed[:] = 0.0
            self.wake(None)
        out = np.empty(self.m)

        def work(start: int, stop: int) -> None:
            state_quads(self.state, v, out, start, stop)

        map_blocks(work, self.m, max(1, 2**18 // self.n), 2.0 * self.m * self.n)
        return np.maximum(out, 0.0)

    def at(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx)))
        gather(self.state, self.awake, np.asarray(idx), out)
        return out

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        return self.bank.rows(idx, self.awake, idx).astype(np.float64, copy=False)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        if len(self.awake) < self.m:
            for i, step in zip(idx, delta, strict=True):
                self._missed[i] += step
        if not len(self.awake):
            return np.zeros(self.n)
        return self._passed(self._adder(idx, delta, np.ascontiguousarray(d)))

    @abstractmethod
    def _adder(self, idx: Array, delta: Array, d: Array) -> Work:
        """Return what adds two rows to a part of the state, and that part to the sum."""

    def weigh(self, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        weights = np.ascontiguousarray(d)

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            weigh_state(self.state, self.awake, weights, out, part, columns)

        return self._passed(work)

    def _by_kernels(self, count: int) -> bool:
        """Whether a pass over so many kernels is cut by kernels, not by columns."""
        return count > _MANY_KERNELS * self.n

    def _passed(self, work: Work) -> Array:
        """Run `work` over the kernels awake, in blocks; returns the sum."""
        count, n = len(self.awake), self.n
        if self._by_kernels(count):
            size = -(-count // _SUM_PARTS)
            parts = np.zeros((_SUM_PARTS, n))

            def some_kernels(start: int, stop: int) -> None:
                work(parts[start // size], (start, stop), (0, n))

            map_blocks(some_kernels, count, size, 2.0 * count * n)
            return parts.sum(axis=0)
        out = np.zeros(n)

        def some_columns(start: int, stop: int) -> None:
            work(out, (0, count), (start, stop))

        map_blocks(some_columns, n, _COLUMN_BLOCK, 2.0 * count * n)
        return out
