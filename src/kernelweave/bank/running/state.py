"""Running products as one m x n array, passed over once a move."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.running.base import Array, RunningProducts
from kernelweave.compiled.blocks import CACHED_COLUMNS, STACK_ENTRIES, SUM_PARTS, rows_of
from kernelweave.compiled.dense_rows import copy_rectangle
from kernelweave.compiled.mwu import add_and_weigh, row_pair
from kernelweave.compiled.passes import add_rows, row_products
from kernelweave.compiled.threads import map_blocks

__all__ = ["RowState", "StateProducts", "Work"]

# work(sum, range of the kernels followed, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Kernels are cut instead of columns where there are this many times more of them.
_MANY_KERNELS = 16
# Entries above which the state is kept in float32.
_LARGE_STATE = 100_000_000


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
        # What the kernels frozen have missed.
        self._missed = np.zeros(n)
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return int(self.state.nbytes)

    def reset(self, v: Array) -> None:
        self.state.fill(0.0)
        self._missed[:] = 0.0
        self.restrict(None)
        self._catch_up(np.arange(self.m), v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """state[k] += K_k v for these kernels."""
        if not np.any(v):
            return
        size = rows_of(self.n, STACK_ENTRIES)
        for first in range(0, len(kernels), size):
            part = kernels[first : first + size]
            self.state[part] += self.bank.matvec(v, part)

    def synchronise(self, v: Array) -> Array:
        if len(self.followed) < self.m:
            self._catch_up(np.setdiff1d(np.arange(self.m), self.followed), self._missed)
            self._missed[:] = 0.0
            self.restrict(None)
        return np.maximum(self.quads(v), 0.0)

    def quads(self, v: Array) -> Array:
        """v . state[k] of every kernel: v'K_k v, as good as the state is."""
        out, everyone = np.empty(self.m), np.arange(self.m)

        def work(start: int, stop: int) -> None:
            row_products(self.state, everyone[start:stop], v, out[start:stop])

        map_blocks(work, self.m, rows_of(self.n), 2.0 * self.m * self.n)
        return out

    def at(self, idx: Array) -> Array:
        out = np.empty((len(self.followed), len(idx)))
        copy_rectangle(self.state, self.followed, np.asarray(idx), 1.0, out, 0, len(out))
        return out

    def block(self, idx: Array) -> Array:
        return self.bank.rows(idx, self.followed, idx).astype(np.float64, copy=False)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        if len(self.followed) < self.m:
            for i, step in zip(idx, delta, strict=True):
                self._missed[i] += step
        return self._moved(idx, delta, d)

    def _moved(self, idx: Array, delta: Array, d: Array) -> Array:
        """`move`, of the kernels followed."""
        if not len(self.followed):
            return np.zeros(self.n)
        second = float(delta[1]) if len(delta) > 1 else 0.0
        pair, weights = idx if len(idx) == 2 else np.repeat(idx, 2), np.ascontiguousarray(d)
        return self._passed(self._adder(pair, float(delta[0]), second, weights), len(self.followed))

    @abstractmethod
    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        """Return what adds two rows to a part of the state, and that part to the sum."""

    def weigh(self, d: Array) -> Array:
        used = np.flatnonzero(d)
        kernels, weights = self.followed[used], d[used]

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            own = slice(*part)
            add_rows(self.state, kernels[own], weights[own], out, *columns)

        return self._passed(work, len(used))

    def _by_kernels(self, count: int) -> bool:
        """Whether a pass over so many kernels is cut by kernels, not by columns."""
        return count > _MANY_KERNELS * self.n

    def _passed(self, work: Work, count: int) -> Array:
        """Run `work` over so many kernels, in blocks; returns the sum."""
        n = self.n
        if self._by_kernels(count):
            size = max(1, -(-count // SUM_PARTS))
            parts = np.zeros((SUM_PARTS, n))

            def some_kernels(start: int, stop: int) -> None:
                work(parts[start // size], (start, stop), (0, n))

            map_blocks(some_kernels, count, size, 2.0 * count * n)
            return parts.sum(axis=0)
        out = np.zeros(n)

        def some_columns(start: int, stop: int) -> None:
            work(out, (0, count), (start, stop))

        map_blocks(some_columns, n, CACHED_COLUMNS, 2.0 * count * n)
        return out


class RowState(StateProducts):
    """Running products that read the two rows of a move, and know where to find them."""

    @abstractmethod
    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Rows of length n, and the places among them of rows `idx` of the kernels followed.

        The places have shape (len(idx), len(followed)).
        """

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the next move will ask for these rows anyway."""
        if not len(self.followed):
            return np.zeros((0, len(idx), len(idx)))
        rows, places = self._rows(np.asarray(idx))
        return np.swapaxes(rows[places[:, :, None], idx], 0, 1).astype(np.float64)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        if len(self.followed):
            row_pair(*self._rows(np.array([i, j])), self.state, self.followed, i, j, at, block)
        return at, block

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        rows, places = self._rows(idx)
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_and_weigh(rows, places, a, b, state, followed, d, out, part, columns)

        return work
