"""A price on the norms of groups of kernels, and how users say which kernels belong together."""

from __future__ import annotations

import copy
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kernelweave.arrays import Array
from kernelweave.combine.base import Combination
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.regularizers.base import Partition
from kernelweave.regularizers.norms import NormSum
from kernelweave.validation import unknown_name


class BlockNorm(NormSum):
    r"""Sum over groups of the lp norms of their weights: whole groups are used or left out.

    .. math::

        r(d) = s \sum_g \|d_g\|_p,\ d \ge 0, \qquad
        \Omega = \sqrt{2 s} \sum_g \big\| (|f_k|)_{k \in g} \big\|_{2p/(p+1)}, \qquad
        r^*(z) = 0 \text{ if } \|z_g\|_{p/(p-1)} \le s \text{ for all } g,
        \text{ else } \infty .

    With ``p = 1``, or one kernel in each group, this is :class:`~kernelweave.regularizers.L1`.

    Parameters
    ----------
    groups : int, str, sequence or mapping, default="columns"
        Which kernels belong together. "columns": those on the same columns, by their names (the
        text after " on "; kernels without it are on "all columns"). A number g: g neighbours at a
        time (13 for each block of the SimpleMKL family); the last group may be smaller. A
        sequence: one label for each kernel. A mapping: from the name of a group to its kernels,
        given by index or by name, every kernel in exactly one group.
    p : float, default=2.0
        Exponent of the norm within a group, >= 1 and finite. The larger, the more equal the
        weights in a group.
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = BlockNorm(groups={"text": [0, 2], "image": [1]})
    >>> reg.value(np.array([3.0, 7.0, 4.0]))
    12.0
    >>> reg.prox(np.array([3.0, 0.5, 4.0]), step=1.0).round(10).tolist()
    [2.4, 0.0, 3.2]
    >>> reg.group_weights(np.array([3.0, 7.0, 4.0]))
    {'text': 5.0, 'image': 7.0}
    """

    name = "block_norm"
    smooth = False

    def __init__(
        self,
        groups: int | str | Sequence[Any] | Mapping[Any, Sequence[Any]] = "columns",
        p: float = 2.0,
        weight: float = 1.0,
    ) -> None:
        self.groups = groups
        self.p = p
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(1), cls(3, 1.0, 0.5), cls(2, 1.3, 2.0), cls(2, 4.0, 0.1)]

    def bind(self, bank: KernelOperator, combination: Combination) -> BlockNorm:
        """Return a copy that knows the groups of these kernels."""
        bound = copy.copy(self)
        bound._partition = partition(self.groups, bank.m, bank.names)
        return bound

    def _groups(self, m: int) -> Partition:
        """Groups of m kernels: those of `bind`, or what can be said without names."""
        known: Partition | None = getattr(self, "_partition", None)
        if known is None:
            return partition(self.groups, m)
        if len(known.labels) != m:
            raise InvalidInputError(
                f"{self!r} is bound to {len(known.labels)} kernels; got {m} weights."
            )
        return known

    def group_weights(self, d: Array) -> dict[str, float]:
        """Norm of the weights of each group, by its name."""
        return dict(zip(self._groups(len(d)).names, self._sizes(d).tolist(), strict=True))


_ALLOWED = (
    "groups must be 'columns', a number of kernels per group, one label for each kernel, or a "
    "dict from group names to lists of kernels (indices or names)"
)


def partition(groups: Any, m: int, names: Sequence[str] | None = None) -> Partition:
    """Resolve what a user wrote as `groups` for m kernels (see `BlockNorm`), `names` theirs."""
    if isinstance(groups, Mapping):
        return _by_members(groups, m, names)
    if isinstance(groups, str) and groups == "columns":
        return _by_columns(_known(names, "groups='columns' reads the groups from them"))
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool) and groups >= 1:
        firsts = range(0, m, int(groups))
        titles = [f"kernels {k}-{min(k + int(groups), m) - 1}" for k in firsts]
        return Partition(np.arange(m) // int(groups), titles)
    if isinstance(groups, str) or not isinstance(groups, Sequence | np.ndarray):
        raise InvalidInputError(f"{_ALLOWED}; got {groups!r}.")
    if len(groups) != m:
        raise InvalidInputError(
            f"groups as labels must have one label for each of the {m} kernels; got {len(groups)}."
        )
    labels = groups.tolist() if isinstance(groups, np.ndarray) else groups
    for label in labels:
        if not isinstance(label, Hashable):
            raise InvalidInputError(f"{_ALLOWED}; got a sequence with the entry {label!r}.")
    return Partition.of_labels(labels)


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
    owner: dict[int, str] = {}
    index: dict[str, int] = {}
    for title, members in groups.items():
        if isinstance(members, str) or not isinstance(members, Iterable):
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
            if k in owner:
                raise InvalidInputError(
                    f"kernel {member!r} is in the groups {owner[k]!r} and {title!r}; "
                    "every kernel must be in exactly one group."
                )
            owner[k] = title
    left = [k for k in range(m) if k not in owner]
    if left:
        shown = str(left[0]) if names is None else repr(names[left[0]])
        raise InvalidInputError(
            f"{len(left)} of {m} kernels are in no group, kernel {shown} for one; every kernel "
            "must be in exactly one group."
        )
    numbers = {title: number for number, title in enumerate(groups)}
    return Partition(np.array([numbers[owner[k]] for k in range(m)]), [str(t) for t in groups])


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
