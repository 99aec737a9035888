"""Several operators side by side: the only place that splits by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from operator import call, methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.names import StackedNames, whereabouts
from kernelweave.kernels.samples import as_samples
from kernelweave.operators.base import KernelOperator, Which, as_tasks, into, kernel_indices
from kernelweave.operators.bounds import ErrorBound
from kernelweave.validation import require_array, require_kind

# What is asked of a part; on a cluster it travels.
Call = Callable[[Any], Any]


class _Sides:
    """The same samples for each part, as it reads them."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts, self.n = parts, parts[0].n

    def take(self, idx: Array) -> _Sides:
        return _Sides([part.take(idx) for part in self.parts])


class StackedOperator(KernelOperator):
    """One operator made of parts: part p holds the kernels ``members[p]`` of the whole.

    Parameters
    ----------
    parts : sequence of KernelOperator
        Operators on the same samples.
    members : sequence of integer arrays
        Which kernels of the whole each part holds, in the part's order.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> parts = [DenseOperator([np.eye(2)], ["b"]), DenseOperator([np.ones((2, 2))], ["a"])]
    >>> both = StackedOperator(parts, [[1], [0]])
    >>> list(both.names), both.quad(np.ones(2))
    (['a', 'b'], array([4., 2.]))
    """

    def __init__(self, parts: Sequence[Any], members: Sequence[Any]) -> None:
        self.parts = tuple(parts)
        self.members = tuple(np.asarray(own, dtype=np.int64) for own in members)
        self._part, self._place = whereabouts(self.members)
        self.n, self.m = self.parts[0].n, len(self._part)
        self.names = StackedNames([part.names for part in self.parts], self.members)
        self.cache_mb = min(part.cache_mb for part in self.parts)
        self.matrix_limit = min(part.matrix_limit for part in self.parts)
        self.computes_rows = any(part.computes_rows for part in self.parts)
        self.round_size = max((part.round_size or 0 for part in self.parts), default=0) or None

    # What an estimator keeps

    def _file_state(self) -> dict[str, Any]:
        return {"parts": self.parts, "members": self.members}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["parts"], state["members"])  # type: ignore[misc]

    def _after_load(self) -> None:
        for part, own in zip(self.parts, self.members, strict=True):
            require_kind("a part of the kernels", part, KernelOperator)
            require_array("the kernels of a part", own, (part.m,), whole=True)
            if part.samples is not self.samples:
                raise InvalidInputError("all parts of the kernels must have the same samples.")
        every = np.concatenate(self.members)
        if not np.array_equal(np.sort(every), np.arange(len(every))):
            raise InvalidInputError("each kernel must be in one part, once.")

    @property
    def samples(self) -> Any:
        return self.parts[0].samples

    @property
    def normalization(self) -> Any:
        return self.parts[0].normalization

    def sample_ids_of(self, idx: Array, kernels: Array | None = None) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for part, _, own in self._split(kernels):
            out.update(part.sample_ids_of(idx, own))
        return out

    def __repr__(self) -> str:
        return f"StackedOperator(n={self.n}, m={self.m}, parts={len(self.parts)})"

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.parts[0].shape
        return shape

    @cached_property
    def work_bytes(self) -> float:
        return min(part.work_bytes for part in self.parts)

    @property
    def quick_sums(self) -> bool:
        """See :class:`KernelOperator`; one part that has them decides."""
        return any(part.quick_sums for part in self.parts)

    # Other operators, part by part

    def _each(self, change: Callable[[Any], Any]) -> StackedOperator:
        return StackedOperator([change(part) for part in self.parts], self.members)

    def against(self, X: Any) -> StackedOperator:
        new = as_samples(X)
        return self._each(lambda part: part.against(new))

    def between(self, X: Any, Z: Any) -> StackedOperator:
        left = as_samples(X)
        right = left if Z is X else as_samples(Z)
        return self._each(lambda part: part.between(left, right))

    def take(self, idx: Array) -> StackedOperator:
        return self._each(lambda part: part.take(idx))

    def exact(self) -> StackedOperator:
        out = self._each(lambda part: part.exact())
        return self if out.parts == self.parts else out

    def refined(self) -> StackedOperator | None:
        out = self._each(lambda part: part.refined() or part)
        return None if out.parts == self.parts else out

    def select(self, kernels: Array) -> StackedOperator:
        """See :class:`KernelOperator`; parts without a chosen kernel are left out."""
        chosen = kernel_indices(kernels, self.m)
        split = list(self._split(chosen))
        if not split:
            return type(self)([self.parts[0].select(chosen)], [chosen])
        parts = [part.select(own) for part, _, own in split]
        return type(self)(parts, [positions for _, positions, _ in split])

    def pack(self, idx: Array) -> _Sides:
        return _Sides([part.pack(idx) for part in self.parts])

    def of_rows(self, left: _Sides, right: _Sides) -> StackedOperator:
        triples = zip(self.parts, left.parts, right.parts, strict=True)
        return StackedOperator([part.of_rows(a, b) for part, a, b in triples], self.members)

    def without_samples(self) -> StackedOperator:
        return self._each(lambda part: part.without_samples())

    def _ask(self, calls: Sequence[tuple[Call, Any]]) -> Iterator[Any]:
        """Call functions of parts, each when its answer is wanted; on a cluster all at once."""
        return starmap(call, calls)

    # Answers for each kernel

    def _split(self, kernels: Any) -> Iterator[tuple[Any, Array, Array]]:
        """Yield (part, positions in the answer, the part's own kernel indices)."""
        chosen = kernel_indices(kernels, self.m)
        for p, part in enumerate(self.parts):
            positions = np.flatnonzero(self._part[chosen] == p)
            if len(positions):
                yield part, positions, self._place[chosen[positions]]

    def _gather(
        self, name: str, kernels: Array | None, shape: tuple[int, ...], **args: Any
    ) -> Array:
        out = np.empty((len(kernel_indices(kernels, self.m)), *shape))
        split = list(self._split(kernels))
        calls = [(methodcaller(name, **args, kernels=own), part) for part, _, own in split]
        for (_, positions, _), found in zip(split, self._ask(calls), strict=True):
            out[positions] = found
        return out

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        shape = (
            self.shape[0] if rows is None else len(rows),
            self.shape[1] if columns is None else len(columns),
        )
        return self._gather("block", kernels, shape, rows=rows, columns=columns)

    def diagonal(self, kernels: Which = None) -> Array:
        return self._gather("diagonal", kernels, (self.n,))

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        shape = (*np.shape(v)[:-1], self.shape[0] if rows is None else len(rows))
        return self._gather("apply", kernels, shape, v=v, rows=rows)

    def quad(self, v: Array, kernels: Which = None) -> Array:
        return self._gather("quad", kernels, (), v=v)

    # Answers about all kernels

    def of_parts(self, call_of: Callable[[Array], Call]) -> Iterator[tuple[Array, Any]]:
        """Yield (its kernels, what ``call_of(its kernels)`` returns of it) for every part."""
        calls = [(call_of(own), part) for part, own in zip(self.parts, self.members, strict=True)]
        return zip(self.members, self._ask(calls), strict=True)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        weights = np.asarray(d)
        calls: list[tuple[Call, Any]] = []
        for part, own in zip(self.parts, self.members, strict=True):
            if weights[own].any() or (part is self.parts[-1] and not calls):
                # The first sum is written where it is asked for, the others are of its type.
                target = out if out is None or not calls else np.empty_like(out)
                calls.append((methodcaller("weighted", weights[own], rows, columns, target), part))
        answers = self._ask(calls)
        total = next(answers)
        for answer in answers:
            total += answer
        return into(out, total)

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        quad, product = np.empty(self.m), np.zeros_like(as_tasks(v))
        for own, (found, added) in self.of_parts(
            lambda own: methodcaller("quad_and_product", v, d[own])
        ):
            quad[own] = found
            product += added
        return quad, product

    def error(self, v: Array, d: Array) -> ErrorBound:
        missing, product = np.zeros(self.m), np.zeros_like(as_tasks(v))
        for own, bound in self.of_parts(lambda own: methodcaller("error", v, d[own])):
            missing[own] = bound.quad_missing
            product += bound.product
        return ErrorBound(missing, product)
