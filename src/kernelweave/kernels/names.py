"""What kernels are called: their columns, numbers behind equal names, names on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from kernelweave.arrays import Array


def short(value: Any) -> str:
    """Return a short text for one parameter, such as "0.3" or "<array 3 x 3>"."""
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    shape = getattr(value, "shape", None)
    if shape:
        return f"<array {' x '.join(str(size) for size in shape)}>"
    return repr(value)


def unique_names(kernels: Sequence[Any]) -> list[str]:
    """Return the names of kernels, numbered where several would read the same."""
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


# Columns


def all_bool(items: list[Any]) -> bool:
    """Whether a list is a mask."""
    return all(isinstance(item, bool | np.bool_) for item in items)


def items_of(columns: Any) -> list[Any] | None:
    """Return what a user listed, one column or several; None if that is no list."""
    if isinstance(columns, str | Integral):
        return [columns]
    return list(columns) if hasattr(columns, "__iter__") else None


def describe_columns(indices: list[int], titles: list[str] | None) -> str:
    """Return how columns of data with such titles, or none, appear in a name."""
    return describe_request(indices if titles is None else [titles[j] for j in indices])


def describe_request(columns: Any) -> str:
    """Return how columns that a user asked for appear in a name, such as "columns 0-2, 4"."""
    if callable(columns):
        return f"columns of {getattr(columns, '__name__', type(columns).__name__)}"
    if isinstance(columns, slice):
        if columns == slice(None):
            return "all columns"
        start, stop, step = columns.start, columns.stop, columns.step
        known = isinstance(start, Integral | None) and isinstance(stop, Integral)
        if not (known and step is None and (start or 0) >= 0 and stop > 0):
            shown = ["" if bound is None else str(bound) for bound in (start, stop)]
            return f"columns {':'.join(shown)}" + ("" if step is None else f":{step}")
        columns = range(int(start or 0), int(stop))
    items = items_of(columns)
    if items is None:
        return repr(columns)
    if items and all_bool(items):
        items = [j for j, kept in enumerate(items) if kept]
    if items and all(isinstance(item, Integral) for item in items):
        return _numbers([int(item) for item in items])
    names = [str(item) for item in items]
    return ", ".join(names) if len(names) <= 3 else _shortened(names, len(names))


def _numbers(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"column {indices[0]}"
    runs: list[list[int]] = []
    for j in indices:
        if runs and j == runs[-1][-1] + 1:
            runs[-1].append(j)
        else:
            runs.append([j])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    shown = ", ".join(parts) if len(parts) <= 3 else _shortened(parts, len(indices))
    return f"columns {shown}"


def _shortened(parts: list[str], count: int) -> str:
    return f"{parts[0]}, {parts[1]}, ... ({count} columns)"


# Names that are written when they are read: a million strings are never held


class LazyNames(Sequence[str]):
    """Base class: subclasses say how many names there are and write one."""

    def _name(self, k: int) -> str:
        raise NotImplementedError

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


@dataclass(eq=False, repr=False)
class BatchNames(LazyNames):
    """Names of the kernels of an `RBFBatch`, such as "rbf(gamma=0.5) on columns 3, 7".

    `_titles` are the names of the columns, if they have any; every name ends with `_suffix`.
    """

    _columns: Array
    _gamma: Any
    _titles: list[str] | None
    _suffix: str = ""

    def __len__(self) -> int:
        return len(self._gamma)

    def _name(self, k: int) -> str:
        own = [int(j) for j in self._columns[k] if j >= 0]
        titles = self._titles
        where = describe_request(own) if titles is None else ", ".join(titles[j] for j in own)
        return f"rbf(gamma={self._gamma[k]:g}) on {where}{self._suffix}"

    def select(self, kernels: Array) -> BatchNames:
        """Return the names of some of the kernels."""
        return BatchNames(self._columns[kernels], self._gamma[kernels], self._titles, self._suffix)


def whereabouts(members: Sequence[Array]) -> tuple[Array, Array]:
    """Return for every kernel of the whole its part, and its place there."""
    sizes, order = [len(own) for own in members], np.argsort(np.concatenate(members))
    place = np.concatenate([np.arange(size) for size in sizes])
    return np.repeat(np.arange(len(sizes)), sizes)[order], place[order]


class StackedNames(LazyNames):
    """Names of kernels that live in several parts; `members` are their places in the whole."""

    def __init__(self, parts: Sequence[Sequence[str]], members: Sequence[Array]) -> None:
        self._parts = tuple(parts)
        self._part, self._place = whereabouts(members)

    def __len__(self) -> int:
        return len(self._part)

    def _name(self, k: int) -> str:
        return self._parts[self._part[k]][int(self._place[k])]
