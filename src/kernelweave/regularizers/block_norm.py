"""A price on the norms of groups of weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.combine.base import Combination
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.groups import Partition, partition
from kernelweave.regularizers.norm_prox import NormProx, power_prox, project_lp_ball
from kernelweave.regularizers.norms import checked_exponent, dual_exponent

__all__ = ["BlockNorm"]


class BlockNorm(Regularizer):
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
    sparse = True
    smooth = False
    proximal = True

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

    def _exponent(self) -> float:
        return checked_exponent("BlockNorm", self.p)

    def group_weights(self, d: Array) -> dict[str, float]:
        """Norm of the weights of each group, by its name."""
        groups = self._groups(len(d))
        return dict(zip(groups.names, groups.norms(d, self._exponent()).tolist(), strict=True))

    def value(self, d: Array) -> float:
        if float(np.min(d)) < -1e-9:
            return np.inf
        return self._price() * float(np.sum(self._groups(len(d)).norms(d, self._exponent())))

    def gradient(self, d: Array) -> Array:
        """Gradient where every group has weight; in a group of zeros the limit is any: 0."""
        p, groups = self._exponent(), self._groups(len(d))
        return self._price() * _shares(d, groups.spread(groups.norms(d, p))) ** (p - 1.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        """Moreau: what is left of v beyond its projection on the dual ball of each group."""
        p, radius, groups = self._exponent(), step * self._price(), self._groups(len(v))
        if p == 1.0:
            return np.maximum(v - radius, 0.0)
        x = np.maximum(v, 0.0)
        if p == 2.0:
            size = groups.norms(x, 2.0)
            left = np.maximum(size - radius, 0.0) / np.where(size > 0, size, 1.0)
            return x * groups.spread(left)
        x = x / radius
        # A group within the ball is its own projection, so what is left is exactly zero.
        return radius * np.maximum(x - project_lp_ball(x, dual_exponent(p), groups), 0.0)

    def omega(self, norms: Array) -> float:
        p = self._exponent()
        sizes = self._groups(len(norms)).norms(norms, 2.0 * p / (p + 1.0))
        return float(np.sqrt(2.0 * self._price()) * np.sum(sizes))

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        price = step * float(np.sqrt(2.0 * self._price()))
        return power_prox(norms, self._exponent(), price, 1.0, self._groups(len(norms)))

    def weights_from_norms(self, norms: Array) -> Array:
        # d = t u in each group, u the best on the sphere (see LpBall) and t^2 = A / (2 s).
        p, groups = self._exponent(), self._groups(len(norms))
        size = groups.norms(norms, 2.0 * p / (p + 1.0))
        u = _shares(norms, groups.spread(size)) ** (2.0 / (p + 1.0))
        return groups.spread(size / np.sqrt(2.0 * self._price())) * u

    def _dual_size(self, q: Array) -> Array:
        """Dual norm of z = q / 2 in each group, which may be at most the price."""
        z = 0.5 * np.maximum(q, 0.0)
        return self._groups(len(q)).norms(z, dual_exponent(self._exponent()))

    def dual_penalty(self, q: Array) -> float:
        top = float(np.max(self._dual_size(q)))
        return 0.0 if top <= self._price() * (1.0 + 1e-9) else np.inf

    def dual_scale(self, q: Array) -> float:
        return min(1.0, self.entry_scale(q))

    def entry_scale(self, q: Array) -> float:
        top = float(np.max(self._dual_size(q)))
        return float(np.sqrt(self._price() / top)) if top > 0 else np.inf

    def screened(self, low: Array, high: Array) -> Flags:
        if self._exponent() == 1.0:
            return np.asarray(high < np.sqrt(2.0 * self._price()))
        size = self._dual_size(np.square(high))
        spared = self._groups(len(high)).spread(size < self._price())
        return np.broadcast_to(spared, np.shape(high))


def _shares(x: Array, size: Array) -> Array:
    """x / size, zero where the size is."""
    return np.divide(np.maximum(x, 0.0), size, out=np.zeros(np.shape(x)), where=size > 0)
