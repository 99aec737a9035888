"""The columns of the m x n state of MWUMKL that belong to the samples of one worker."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from kernelweave.compiled.mwu import add_gaussians, best_pair
from kernelweave.operators.base import Array, kernel_runs
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.rounds import BoxConstraints
from kernelweave.operators.running import RowState, Work

__all__ = ["PointState"]


class _Columns(RowState):
    """The state; the samples of a move need not be among those here, and are sent along.

    What kernels frozen have missed is known to the one who sends, too.

    Parameters
    ----------
    recipe : KernelOperator
        All kernels, without samples.
    own : object
        The samples here, as its `of_rows` takes them.
    kernels : ndarray of int
        The kernels of the state.
    weights : ndarray or None
        With weights the state is that of one kernel, sum_k weights_k K_k.
    cache_mb : float
        Megabytes of rows to keep.
    """

    def __init__(
        self, recipe: Any, own: Any, kernels: Array, weights: Array | None, cache_mb: float
    ) -> None:
        self.sent: Any = None
        self._recipe = recipe
        self._own = own
        self._kernels, self._weights = kernels, weights
        # A batch computes rows as fast as it could read them, and whole rows of each kernel.
        self._batch = recipe if isinstance(recipe, GaussianOperator) and weights is None else None
        # The kernels whose rows are kept, and where among them those followed are.
        self._cached = np.empty(0, np.int64)
        self._places = self._cached
        # Where the row of a sample is, the one used longest ago first.
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._slab = np.empty((0, 0, own.n))
        self._cache_bytes = 1e6 * cache_mb
        super().__init__(None, len(kernels) if weights is None else 1, own.n)

    def restrict(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`; rows that hold much more than the kernels followed go."""
        super().restrict(kernels)
        inside = np.isin(self.followed, self._cached, assume_unique=True)
        if not inside.all() or 2 * len(self.followed) < len(self._cached):
            self._cached = np.sort(self.followed)
            capacity = max(2, int(self._cache_bytes // (8 * max(1, len(self._cached)) * self.n)))
            self._slab = np.empty((capacity, len(self._cached), self.n))
            self._slots.clear()
        self._places = np.searchsorted(self._cached, self.followed)

    def add(self, left: Any, values: Array, kernels: Array) -> None:
        """state[k] += K_k v of these kernels, for a v of those values at the samples sent."""
        if self._weights is not None:
            self.state[0] += values @ self._mixed(left)
            return
        here = self._recipe.of_rows(self._own, left)
        for some in kernel_runs(len(kernels), self.n):
            part = kernels[some]
            self.state[part] += here.apply(values, self._kernels[part])

    def _mixed(self, left: Any) -> Array:
        """sum_k weights_k K_k of other samples against those here."""
        return np.array(
            self._recipe.of_rows(left, self._own).select(self._kernels).weighted(self._weights)
        )

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`; `sent` holds the two samples."""
        return self._moved(idx, delta, d)

    def _by_kernels(self, count: int) -> bool:
        return self._batch is not None or super()._by_kernels(count)

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        if self._batch is None:
            return super()._adder(idx, a, b, d)
        own = self._batch.of_rows(self.sent, self._own).select(self._kernels)
        pair, table, batch = self.sent.values, self._own.values, own.compiled
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], _: tuple[int, int]) -> None:
            add_gaussians(pair, table, batch, a, b, state, followed, d, out, part)

        return work

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Rows against the samples here; those met lately are kept, always in the same memory."""
        for i in idx:
            if int(i) in self._slots:
                self._slots.move_to_end(int(i))
        missing = [place for place, i in enumerate(idx) if int(i) not in self._slots]
        if missing:
            left = self.sent.take(np.array(missing))
            if self._weights is None:
                kernels = self._kernels[self._cached]
                new = self._recipe.of_rows(left, self._own).block(kernels=kernels)
            else:
                new = self._mixed(left)[None]
            for column, place in enumerate(missing):
                full = len(self._slots) == len(self._slab)
                slot = self._slots.popitem(last=False)[1] if full else len(self._slots)
                self._slab[slot] = new[:, column]
                self._slots[int(idx[place])] = slot
        slots = np.array([self._slots[int(i)] for i in idx])
        return self._slab.reshape(-1, self.n), slots[:, None] * len(self._cached) + self._places


class PointState:
    """v and the state at the samples of one worker, and the best pair among them.

    Parameters
    ----------
    recipe, own, kernels, weights, cache_mb
        As in the state.
    first : int
        Which of the first sample here among all.
    rules : BoxConstraints
        Who may move, of the samples here.
    """

    def __init__(
        self,
        recipe: Any,
        own: Any,
        first: int,
        rules: BoxConstraints,
        kernels: Array,
        weights: Array | None,
        cache_mb: float,
    ) -> None:
        self._columns = _Columns(recipe, own, kernels, weights, cache_mb)
        self._first, self._rules = first, rules
        self.v, self.fitted = np.zeros(own.n), np.zeros(own.n)

    def clear(self) -> None:
        """Start from v = 0, with all kernels followed."""
        self.v.fill(0.0)
        self._columns.reset(self.v)

    def put(self, v: Array) -> None:
        """Set v; `add` brings the products with it."""
        self.v[:] = v

    def add(self, left: Any, values: Array, kernels: Array | None) -> None:
        """Add the products of these kernels (None: all) with those values at the samples sent."""
        everyone = np.arange(self._columns.m)
        self._columns.add(left, values, everyone if kernels is None else kernels)

    def restrict(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves."""
        self._columns.restrict(kernels)

    def synchronise(self) -> Array:
        """Wake all kernels; returns v'K_k v, as far as v lives here on one side."""
        self._columns.restrict(None)
        return self._columns.quads(self.v)

    def weigh(self, d: Array) -> Array:
        """Choose by weights d."""
        self.fitted = self._columns.weigh(d)
        return self._choose()

    def move(self, pair: Any, idx: Array, delta: Array, d: Array) -> Array:
        """Move two samples and choose by weights d."""
        self._columns.sent = pair
        self.fitted = self._columns.move(idx, delta, d)
        places = idx - self._first
        here = (places >= 0) & (places < len(self.v))
        self.v[places[here]] += delta[here]
        return self._choose()

    def _choose(self) -> Array:
        """The best to rise and the best to fall: (index, score, v, K_k v of those followed)."""
        rules = self._rules
        i, high, j, low = best_pair(
            self.fitted, self.v, rules.linear, rules.ridge, rules.up, rules.down
        )
        followed = self._columns.followed
        out = np.full((2, 3 + len(followed)), -1.0)
        for row, best, score in ((0, i, high), (1, j, low)):
            if best >= 0:
                out[row, :3] = best + self._first, score, self.v[best]
                out[row, 3:] = self._columns.state[followed, best]
        return out
