"""Running products of very many Gaussian kernels, whose rows are computed during the pass."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from kernelweave.bank.running.base import Array
from kernelweave.bank.running.state import StateProducts, Work
from kernelweave.compiled.blocks import gaussian_kernels
from kernelweave.compiled.gaussians import Batch, pair_values
from kernelweave.compiled.mwu import add_gaussians
from kernelweave.compiled.threads import map_blocks

__all__ = ["BatchProducts"]


class BatchProducts(StateProducts):
    """The m x n state of a batch: a move evaluates two rows of every kernel and keeps none of them.

    Parameters
    ----------
    bank : BatchBank
    table : ndarray
    batch : tuple of ndarray
        What compiled code knows of the kernels, see ``kernelweave.compiled.gaussians``.
    """

    def __init__(self, bank: Any, table: Array, batch: Batch) -> None:
        super().__init__(bank, bank.m, bank.n)
        self._table, self._batch = table, batch

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the diagonal is one."""
        out = np.ones((len(self.followed), len(idx), len(idx)))
        for s, t in combinations(range(len(idx)), 2):
            pair = np.ascontiguousarray(self._table[:, [idx[s], idx[t]]])
            values = np.empty(len(self.followed))
            work = partial(pair_values, pair, self._batch, self.followed, values)
            map_blocks(work, len(values), *gaussian_kernels(len(values), 1))
            out[:, s, t] = out[:, t, s] = values
        return out

    def _by_kernels(self, count: int) -> bool:
        """Always: a kernel's columns are loaded once for all samples."""
        return True

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        pair, table, batch = np.ascontiguousarray(self._table[:, idx]), self._table, self._batch
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_gaussians(pair, table, batch, a, b, state, followed, d, out, part)

        return work
