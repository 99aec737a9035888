"""Kernels in groups: norms of all groups at once, and the ways to say which kernels belong."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

__all__ = ["Partition", "Segments", "partition"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_ALLOWED = (
    "groups must be 'columns', a number of kernels per group, one label for each kernel, or a "
    "dict from group names to lists of kernels (indices or names)"
)


class Segments:
    """Neighbouring entries of one array taken together, none of them left out.

    Parameters
    ----------
    starts : ndarray of shape (g,)
        Where each segment begins, the first at 0; none is empty.
    size : int
        Length of the array.

    Examples
    --------
    >>> Segments(np.array([0, 2]), 3).norms(np.array([3.0, 4.0, 7.0]), 2.0)
    array([5., 7.])
    """

    def __init__(self, starts: Index, size: int) -> None:
        self.starts = starts
        self.lengths = np.diff(np.append(starts, size))

    @classmethod
    def whole(cls, size: int) -> Segments:
        """All of an array as one segment."""
        return cls(np.zeros(1, dtype=np.int64), size)

    def sums(self, x: Array) -> Array:
        """Sum of every segment."""
        return np.add.reduceat(x, self.starts)

    def spread(self, values: Array) -> Array:
        """One value per segment, repeated for its entries (a lone one only broadcasts)."""
        return values if len(values) == 1 else np.repeat(values, self.lengths)

    def norms(self, x: Array, p: float) -> Array:
        """Lp norm of every segment, with its largest entry taken out first."""
        size = np.abs(x)
        top = np.maximum.reduceat(size, self.starts)
        if np.isinf(p):
            return top
        with np.errstate(invalid="ignore"):  # 0 / 0 in segments of zeros
            ratio = size / self.spread(top)
        sums = self.sums(np.where(ratio > 0, ratio, 0.0) ** p)
        return top * sums ** (1.0 / p)

    def subset(self, kept: NDArray[np.bool_]) -> Segments:
        """Segments of the entries where `kept` is true; those left empty are gone."""
        counts = np.add.reduceat(kept, self.starts, dtype=np.int64)
        counts = counts[counts > 0]
        return Segments(np.cumsum(counts) - counts, int(counts.sum()))


class Partition:
    """Every kernel in exactly one group.

    Parameters
    ----------
    labels : ndarray of shape (m,)
        Number of each kernel's group, 0 to g - 1.
    names : sequence of str
        Names of the g groups.

    Examples
    --------
    >>> parts = Partition(np.array([0, 1, 0]), ["a", "b"])
    >>> parts.norms(np.array([3.0, 7.0, 4.0]), 2.0)
    array([5., 7.])
    """

    def __init__(self, labels: Index, names: Sequence[str]) -> None:
        self.labels = labels
        self.names = names
        in_order = bool(np.all(labels[1:] >= labels[:-1]))
        self._order = None if in_order else np.argsort(labels, kind="stable")
        counts = np.bincount(labels, minlength=len(names))
        self.segments = Segments(np.cumsum(counts) - counts, len(labels))

    @classmethod
    def of_labels(cls, labels: Iterable[Hashable]) -> Self:
        """Group equal labels, in order of first appearance."""
        numbers: dict[Hashable, int] = {}
        found = [numbers.setdefault(label, len(numbers)) for label in labels]
        return cls(np.array(found, dtype=np.int64), [str(label) for label in numbers])

    @property
    def m(self) -> int:
        """Number of kernels."""
        return len(self.labels)

    def sorted(self, x: Array) -> Array:
        """Entries of x in the order of `segments`."""
        return x if self._order is None else x[self._order]

    def unsorted(self, x: Array) -> Array:
        """Undo `sorted`."""
        if self._order is None:
            return x
        out = np.empty_like(x)
        out[self._order] = x
        return out

    def norms(self, x: Array, p: float) -> Array:
        """Lp norm of every group."""
        return self.segments.norms(self.sorted(x), p)

    def spread(self, values: Array) -> Array:
        """One value per group, given to each of its kernels."""
        return values[self.labels]


def partition(groups: Any, m: int, names: Sequence[str] | None = None) -> Partition:
    """Resolve what a user wrote as `groups` for m kernels.

    Parameters
    ----------
    groups : int, str, sequence or mapping
        See :class:`~kernelweave.regularizers.BlockNorm`.
    m : int
        Number of kernels.
    names : sequence of str, optional
        Their names, where they are known.

    Returns
    -------
    Partition
        The groups.

    Examples
    --------
    >>> partition("columns", 2, ["rbf(width=2) on column 0", "linear"]).names
    ['column 0', 'all columns']
    """
    if isinstance(groups, str):
        if groups != "columns":
            raise InvalidInputError(f"{_ALLOWED}; got {groups!r}.")
        return _by_columns(_known(names, "groups='columns' reads the groups from them"))
    if isinstance(groups, Mapping):
        return _by_members(groups, m, names)
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool) and groups >= 1:
        labels = np.arange(m, dtype=np.int64) // int(groups)
        firsts = range(0, m, int(groups))
        return Partition(labels, [f"kernels {k}-{min(k + int(groups), m) - 1}" for k in firsts])
    if not isinstance(groups, Sequence | np.ndarray):
        raise InvalidInputError(f"{_ALLOWED}; got {groups!r}.")
    if len(groups) != m:
        raise InvalidInputError(
            f"groups as labels must have one label for each of the {m} kernels; got {len(groups)}."
        )
    labels_given = groups.tolist() if isinstance(groups, np.ndarray) else groups
    for label in labels_given:
        if not isinstance(label, Hashable):
            raise InvalidInputError(f"{_ALLOWED}; got a sequence with the entry {label!r}.")
    return Partition.of_labels(labels_given)


def _known(names: Sequence[str] | None, why: str) -> Sequence[str]:
    if names is None:
        raise InvalidInputError(
            f"the names of the kernels are not known yet, and {why}. Call bind(bank, combination) "
            "first, as estimators do, or give groups by number, by labels or by indices."
        )
    return names


def _by_columns(names: Sequence[str]) -> Partition:
    listed = list(names)  # once: those of a batch are written as they are read
    taken = set(listed)

    def columns(name: str) -> str:
        # Kernels that would read the same are numbered: "... on column 0 (2)".
        if name.endswith(")") and (plain := re.sub(r" \(\d+\)$", "", name)) in taken:
            name = plain
        return name.partition(" on ")[2] or "all columns"

    return Partition.of_labels(columns(name) for name in listed)


def _by_members(
    groups: Mapping[Any, Iterable[Any]], m: int, names: Sequence[str] | None
) -> Partition:
    labels = np.full(m, -1, dtype=np.int64)
    titles = [str(title) for title in groups]
    index: dict[str, int] = {}
    for number, (title, members) in enumerate(groups.items()):
        if isinstance(members, str | int | np.integer) or not isinstance(members, Iterable):
            raise InvalidInputError(
                f"group {title!r} must be a list of kernels (indices or names); got {members!r}."
            )
        listed = list(members)
        if not listed:
            raise InvalidInputError(f"group {title!r} has no kernels; leave it out.")
        for member in listed:
            if isinstance(member, str) and not index:
                known = _known(names, f"group {title!r} names the kernel {member!r}")
                index = {name: k for k, name in enumerate(known)}
            k = _kernel(member, title, m, index)
            if labels[k] >= 0:
                raise InvalidInputError(
                    f"kernel {member!r} is in the groups {titles[labels[k]]!r} and {title!r}; "
                    "every kernel must be in exactly one group."
                )
            labels[k] = number
    left = np.flatnonzero(labels < 0)
    if len(left):
        shown = str(left[0]) if names is None else repr(names[left[0]])
        raise InvalidInputError(
            f"{len(left)} of {m} kernels are in no group, kernel {shown} for one; every kernel "
            "must be in exactly one group."
        )
    return Partition(labels, titles)


def _kernel(member: Any, title: Any, m: int, index: Mapping[str, int]) -> int:
    """Index of one member of a group."""
    if isinstance(member, str):
        if member not in index:
            raise unknown_name(f"kernel in group {title!r}:", member, index)
        return index[member]
    whole = isinstance(member, int | np.integer) and not isinstance(member, bool)
    if not whole or not 0 <= member < m:
        raise InvalidInputError(
            f"group {title!r} must list kernels by name or by an index from 0 to {m - 1}; "
            f"got {member!r}."
        )
    return int(member)
