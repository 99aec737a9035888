"""Several banks side by side, for kernels that want to be kept in different ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.protocol import Array, ErrorBound, KernelBank, as_tasks, kernel_indices
from kernelweave.bank.running import StackedProducts
from kernelweave.kernels.composite_set import CompositeTile, whereabouts
from kernelweave.kernels.lazy_names import StackedNames

__all__ = ["StackedBank"]


class StackedBank(KernelBank):
    """One bank made of parts: part p holds the kernels ``members[p]`` of the whole.

    Parameters
    ----------
    parts : sequence of KernelBank
        Banks on the same samples.
    members : sequence of integer arrays
        Which kernels of the whole each part holds, in the part's order.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> first = DenseBank().from_matrices([np.eye(2)], ["b"])
    >>> second = DenseBank().from_matrices([np.ones((2, 2))], ["a"])
    >>> bank = StackedBank([first, second], [np.array([1]), np.array([0])])
    >>> list(bank.names), bank.quad(np.ones(2))
    (['a', 'b'], array([4., 2.]))
    """

    def __init__(self, parts: Sequence[KernelBank], members: Sequence[Array]) -> None:
        self.parts = tuple(parts)
        self.members = tuple(np.asarray(own, dtype=np.int64) for own in members)
        self.n = self.parts[0].n
        self.m = sum(part.m for part in self.parts)
        self._part, self._place = whereabouts(self.members)
        self.names = StackedNames([part.names for part in self.parts], self._part, self._place)
        self.cache_mb = min(part.cache_mb for part in self.parts)
        self.matrix_limit = min(part.matrix_limit for part in self.parts)
        self.round_size = max((part.round_size or 0 for part in self.parts), default=0) or None

    @cached_property
    def work_bytes(self) -> float:
        """See :class:`MatrixBank`; what every part allows."""
        return min(part.work_bytes for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    def _split(self, kernels: Array | None) -> Iterator[tuple[KernelBank, Array, Array]]:
        """Yield (part, positions in the answer, the part's own kernel indices)."""
        chosen = kernel_indices(kernels, self.m)
        for p, part in enumerate(self.parts):
            positions = np.flatnonzero(self._part[chosen] == p)
            if len(positions):
                yield part, positions, self._place[chosen[positions]]

    def _gather(
        self,
        kernels: Array | None,
        shape: tuple[int, ...],
        ask: Callable[[KernelBank, Array], Array],
    ) -> Array:
        out = np.empty((len(kernel_indices(kernels, self.m)), *shape))
        for part, positions, own in self._split(kernels):
            out[positions] = ask(part, own)
        return out

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        shape = (len(idx), self.n if columns is None else len(columns))
        return self._gather(kernels, shape, lambda part, own: part.rows(idx, own, columns))

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        return self._gather(kernels, np.shape(v), lambda part, own: part.matvec(v, own))

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        return self._gather(kernels, (), lambda part, own: part.quad(v, own))

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        shape = (*np.shape(v)[:-1], len(idx))
        return self._gather(kernels, shape, lambda part, own: part.products_at(v, idx, own))

    def take(self, idx: Array) -> StackedBank:
        return StackedBank([part.take(idx) for part in self.parts], self.members)

    def select(self, kernels: Array) -> StackedBank:
        """See :class:`KernelBank`; parts without a chosen kernel are left out."""
        chosen = kernel_indices(kernels, self.m)
        split = list(self._split(chosen))
        if not split:
            return StackedBank([self.parts[0].select(chosen)], [chosen])
        parts = [part.select(own) for part, _, own in split]
        return StackedBank(parts, [positions for _, positions, _ in split])

    def combine(self, d: Array, out: Array | None = None) -> Array:
        out = np.empty((self.n, self.n)) if out is None else out
        self.parts[0].combine(d[self.members[0]], out)
        for part, own in zip(self.parts[1:], self.members[1:], strict=True):
            if d[own].any():
                out += part.combine(d[own], np.empty_like(out))
        return out

    def combine_block(self, d: Array, idx: Array) -> Array:
        out = np.zeros((len(idx), len(idx)))
        for part, own in zip(self.parts, self.members, strict=True):
            if d[own].any():
                out += part.combine_block(d[own], idx)
        return out

    def diag(self, kernels: Array | None = None) -> Array:
        return self._gather(kernels, (self.n,), lambda part, own: part.diag(own))

    def tile(
        self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float
    ) -> CompositeTile:
        return CompositeTile([part.tile(rows, columns, dtype) for part in self.parts], self.members)

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        quad, product = np.empty(self.m), np.zeros_like(as_tasks(v))
        for part, own in zip(self.parts, self.members, strict=True):
            quad[own], added = part.quad_and_product(v, d[own])
            product += added
        return quad, product

    def running(self) -> StackedProducts:
        return StackedProducts([part.running() for part in self.parts], self.members)

    def sum_products(self, V: Array) -> Array:
        out = np.zeros(V.shape[1:])
        for part, own in zip(self.parts, self.members, strict=True):
            out += part.sum_products(V[own])
        return out

    def square_sum(self) -> Array:
        out = self.parts[0].square_sum()
        for part in self.parts[1:]:
            out += part.square_sum()
        return out

    def square_factor(self) -> Array | None:
        """See :class:`KernelBank`; the factors of all parts, if each has one."""
        factors: list[Array] = []
        for part in self.parts:
            factor = part.square_factor()
            if factor is None or sum(map(len, factors)) + len(factor) >= self.n:
                return None
            factors.append(factor)
        return np.vstack(factors)

    def eigenvalue_bound(self) -> Array:
        out = np.empty(self.m)
        for part, own in zip(self.parts, self.members, strict=True):
            out[own] = part.eigenvalue_bound()
        return out

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Each part's own bound."""
        missing, excess = np.zeros(self.m), np.zeros(self.m)
        product: Array | float = np.zeros_like(as_tasks(v))
        for part, own in zip(self.parts, self.members, strict=True):
            bound = part.error(v, d[own])
            missing[own], excess[own] = bound.quad_missing, bound.norm_missing
            product = product + bound.product
        return ErrorBound(missing, excess, product)

    def refined(self) -> StackedBank | None:
        """Refine every part that can be."""
        finer = [part.refined() for part in self.parts]
        if all(part is None for part in finer):
            return None
        parts = [new or old for new, old in zip(finer, self.parts, strict=True)]
        return StackedBank(parts, self.members)
