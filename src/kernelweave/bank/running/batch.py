"""Running products of very many Gaussian kernels, whose rows are computed during the pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.bank.running.base import Array
from kernelweave.bank.running.state import StateProducts, Work
from kernelweave.compiled.mwu import add_batch, batch_pair
from kernelweave.compiled.threads import map_blocks

__all__ = ["BatchProducts"]


class BatchProducts(StateProducts):
    """The m x n state of a batch: a move evaluates two rows of every kernel and keeps none of them.

    Parameters
    ----------
    bank : BatchBank
    table, columns, roots, like : ndarray
        What compiled code knows of the kernels, see ``kernelweave.compiled.batch``.
    """

    def __init__(self, bank: Any, table: Array, columns: Array, roots: Array, like: Array) -> None:
        super().__init__(bank, bank.m, bank.n)
        self._table, self._columns, self._roots, self._like = table, columns, roots, like

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the diagonal is one."""
        out = np.ones((len(self.awake), len(idx), len(idx)))
        for s in range(len(idx)):
            for t in range(s):
                pair = np.ascontiguousarray(self._table[:, [idx[s], idx[t]]])
                values = np.empty(len(self.awake))

                def work(start: int, stop: int, pair: Array = pair, values: Array = values) -> None:
                    batch_pair(pair, self._columns, self._roots, self.awake, values, start, stop)

                map_blocks(work, len(self.awake), 8192, 20.0 * len(self.awake))
                out[:, s, t] = out[:, t, s] = values
        return out

    def _by_kernels(self, count: int) -> bool:
        """Always: a kernel's columns are loaded once for all samples."""
        return True

    def _adder(self, idx: Array, delta: Array, d: Array) -> Work:
        pair = np.ascontiguousarray(self._table[:, idx])
        weights = np.array([delta[0], delta[1] if len(delta) > 1 else 0.0])

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_batch(
                pair,
                self._table,
                self._columns,
                self._roots,
                weights,
                self._like,
                self.state,
                self.awake,
                d,
                out,
                part[0],
                part[1],
            )

        return work
