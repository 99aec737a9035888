"""Kernels in groups: norms of all groups at once, and the ways to say which kernels belong."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from kernelweave.arrays import AnyArray, Array, Flags, Index
from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

__all__ = ["Partition", "partition"]


_ALLOWED = (
    "groups must be 'columns', a number of kernels per group, one label for each kernel, or a "
    "dict from group names to lists of kernels (indices or names)"
)


class Partition:
    """Numbers in groups: each belongs to exactly one.

    Parameters
    ----------
    labels : ndarray of shape (m,)
        The group of each number, 0 to g - 1; none of the groups is empty.
    names : sequence of g
        Names of the groups, or just their numbers.

    Examples
    --------
    >>> parts = Partition(np.array([0, 1, 0]), ["a", "b"])
    >>> parts.norms(np.array([3.0, 7.0, 4.0]), 2.0)
    array([5., 7.])
    """

    def __init__(self, labels: Index, names: Sequence[Any]) -> None:
        self.labels, self.names = labels, names

    @classmethod
    def whole(cls, m: int) -> Partition:
        """All numbers in one group."""
        return cls(np.zeros(m, dtype=np.intp), range(1))

    @classmethod
    def of_labels(cls, labels: Iterable[Hashable]) -> Self:
        """Group equal labels, in order of first appearance."""
        numbers: dict[Hashable, int] = {}
        found = [numbers.setdefault(label, len(numbers)) for label in labels]
        return cls(np.array(found, dtype=np.intp), [str(label) for label in numbers])

    def subset(self, kept: Flags) -> Partition:
        """Groups of the numbers where `kept` is true; those left empty are gone."""
        if len(self.names) == 1:
            return Partition.whole(int(np.count_nonzero(kept)))
        labels = self.labels[kept]
        filled = np.bincount(labels, minlength=len(self.names)) > 0
        return Partition((np.cumsum(filled) - 1)[labels], range(int(filled.sum())))

    @cached_property
    def sizes(self) -> Index:
        """Number of members of every group."""
        return np.bincount(self.labels, minlength=len(self.names))

    @cached_property
    def _order(self) -> Index | None:
        """How to sort by group; None where that is not needed."""
        in_order = np.all(self.labels[1:] >= self.labels[:-1])
        return None if in_order else np.argsort(self.labels, kind="stable")

    def _reduce(self, by: np.ufunc, x: Array) -> Array:
        if len(self.names) == 1:
            return np.asarray(by.reduce(x, keepdims=True))
        x = x if self._order is None else x[self._order]
        return np.asarray(by.reduceat(x, np.cumsum(self.sizes) - self.sizes))

    def sums(self, x: Array) -> Array:
        """Sum of every group."""
        return self._reduce(np.add, x)

    def spread(self, values: AnyArray) -> AnyArray:
        """One value per group, given to each of its members (a lone one only broadcasts)."""
        return values if len(values) == 1 else values.take(self.labels)

    def norms(self, x: Array, p: float) -> Array:
        """Lp norm of every group, with its largest entry taken out first."""
        size = np.abs(x)
        if p == 1.0:
            return self.sums(size)
        top = self._reduce(np.maximum, size)
        if np.isinf(p):
            return top
        # Where all are zero or one is infinite, the ratio of equal numbers is one too.
        each = np.broadcast_to(self.spread(top), size.shape)
        ratio = np.divide(size, each, out=np.ones(size.shape), where=size != each)
        return top * self.sums(ratio**p) ** (1.0 / p)


def partition(groups: Any, m: int, names: Sequence[str] | None = None) -> Partition:
    """Resolve what a user wrote as `groups` for m kernels (see `BlockNorm`), `names` theirs.

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
        labels = np.arange(m) // int(groups)
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
    labels = np.full(m, -1, dtype=np.intp)
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
