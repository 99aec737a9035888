"""Names of kernels: numbered where several read the same, and written when they are read.

A million strings are never held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.base import Kernel
from kernelweave.kernels.choose import describe_request

__all__ = [
    "BatchNames",
    "LazyNames",
    "StackedNames",
    "numbered",
    "unique_names",
    "whereabouts",
]


class LazyNames(Sequence[str]):
    """Base class: subclasses say how many names there are and write one."""

    def _name(self, k: int) -> str:
        raise NotImplementedError

    @overload
    def __getitem__(self, k: int) -> str: ...
    @overload
    def __getitem__(self, k: slice) -> list[str]: ...
    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self._name(i) for i in range(len(self))[k]]
        # A range answers for indices from the end and out of bounds.
        return self._name(range(len(self))[k])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [*self[:2], "..."] if len(self) > 3 else self[:]
        return f"<{len(self)} names: {', '.join(shown)}>"


class BatchNames(LazyNames):
    """Names of the kernels of an `RBFBatch`, such as "rbf(gamma=0.5) on columns 3, 7".

    `titles` are the names of the columns, if they have any; every name ends with `suffix`.
    """

    def __init__(
        self, columns: NDArray[Any], gamma: Any, titles: list[str] | None, suffix: str = ""
    ) -> None:
        self._columns = columns
        self._gamma = gamma
        self._titles = titles
        self._suffix = suffix

    def __len__(self) -> int:
        return len(self._gamma)

    def _name(self, k: int) -> str:
        own = [int(j) for j in self._columns[k] if j >= 0]
        if self._titles is None:
            where = describe_request(own)
        else:
            where = ", ".join(self._titles[j] for j in own)
        return f"rbf(gamma={self._gamma[k]:g}) on {where}{self._suffix}"

    def select(self, kernels: NDArray[Any]) -> BatchNames:
        """Return the names of some of the kernels."""
        return BatchNames(self._columns[kernels], self._gamma[kernels], self._titles, self._suffix)


def whereabouts(members: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return for every kernel of the whole its part, and its place there."""
    count = sum(len(own) for own in members)
    part, place = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for p, own in enumerate(members):
        part[own] = p
        place[own] = np.arange(len(own))
    return part, place


class StackedNames(LazyNames):
    """Names of kernels that live in several parts; `members` are their places in the whole."""

    def __init__(self, parts: Sequence[Sequence[str]], members: Sequence[NDArray[Any]]) -> None:
        self._parts = tuple(parts)
        self._part, self._place = whereabouts(members)

    def __len__(self) -> int:
        return len(self._part)

    def _name(self, k: int) -> str:
        return self._parts[self._part[k]][int(self._place[k])]


def unique_names(kernels: Sequence[Kernel]) -> list[str]:
    """Return the names of kernels, numbered where several would read the same.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> unique_names([Linear(), RBF(width=1), Linear()])
    ['linear', 'rbf(width=1)', 'linear (2)']
    """
    return numbered([kernel.name for kernel in kernels])


def numbered(names: Sequence[str]) -> list[str]:
    """Return names with a number behind each that was there before."""
    taken = set(names)
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        shown = name
        while seen[name] > 1 and (shown := f"{name} ({seen[name]})") in taken:
            seen[name] += 1
        taken.add(shown)
        out.append(shown)
    return out
