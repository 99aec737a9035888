"""Regularizers that go by norms of the weights: in a ball, squared, or a sum over groups."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.combine.base import Combination
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.groups import partition
from kernelweave.regularizers.norm_prox import (
    NormProx,
    Partition,
    lp_prox,
    power_prox,
    project_lp_ball,
    project_simplex,
)
from kernelweave.validation import positive_number

__all__ = ["L1", "BlockNorm", "LpBall", "Simplex", "SquaredLp"]


class _NormRegularizer(Regularizer):
    r"""A price on the lp norms of groups of weights, of which there is one unless stated.

    With a coefficient c and a degree e, which is 2 for a ball, 4/3 for a squared norm and 1 for a
    sum of norms,

    .. math::

        \Omega = \frac{c}{e} \sum_g A_g^e, \qquad
        A_g = \big\| (|f_k|)_{k \in g} \big\|_{2p/(p+1)} .

    It is attained by :math:`d_g = t_g u_g` with :math:`t_g = A_g^{2-e} / c` and
    :math:`u_k = (|f_k| / A_g)^{2/(p+1)}`, which minimises :math:`\tfrac12 \sum_k |f_k|^2 / u_k`
    over the ball :math:`\|u\|_p \le 1`.
    """

    proximal = True
    degree: ClassVar[float]
    p: float

    @abstractmethod
    def _coefficient(self) -> float:
        """The c in front of the norms."""

    def _exponent(self) -> float:
        """The p, checked."""
        owner = type(self).__name__
        p = positive_number(f"p of {owner}", self.p)
        if p < 1.0:
            raise InvalidInputError(f"p of {owner} must be a finite number >= 1; got {self.p!r}.")
        return p

    def _groups(self, m: int) -> Partition:
        return Partition.whole(m)

    def _sizes(self, d: Array) -> Array:
        """Norm of the weights of each group."""
        return self._groups(len(d)).norms(d, self._exponent())

    def _dual_sizes(self, q: Array) -> Array:
        """Dual norm of z = q / 2 in each group, the exponent of which is p / (p - 1)."""
        p = self._exponent()
        dual = np.inf if p == 1.0 else p / (p - 1.0)
        return self._groups(len(q)).norms(0.5 * np.maximum(q, 0.0), dual)

    def _norm_sizes(self, norms: Array) -> Array:
        """The A of each group."""
        p = self._exponent()
        return self._groups(len(norms)).norms(norms, 2.0 * p / (p + 1.0))

    def omega(self, norms: Array) -> float:
        with np.errstate(over="ignore"):
            powers = self._norm_sizes(norms) ** self.degree
            return self._coefficient() / self.degree * float(np.sum(powers))

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        price, groups = step * self._coefficient(), self._groups(len(norms))
        return power_prox(norms, self._exponent(), price, self.degree, groups)

    def weights_from_norms(self, norms: Array) -> Array:
        size, groups = self._norm_sizes(norms), self._groups(len(norms))
        if self.degree == 2.0 and not size[0] > 0:
            return self.start(len(norms))
        u = _shares(norms, groups.spread(size)) ** (2.0 / (self._exponent() + 1.0))
        return groups.spread(size ** (2.0 - self.degree) / self._coefficient()) * u

    def _largest(self, q: Array) -> Array:
        r"""Maximise :math:`\sum_k d_k q_k` over :math:`\|d\|_p \le 1`, p > 1, all in one group.

        .. math:: d_k = q_k^{1/(p-1)} \Big/ \Big( \sum_j q_j^{p/(p-1)} \Big)^{1/p} .
        """
        p, top = self._exponent(), float(np.max(q))
        if not top > 0:
            return np.full(len(q), len(q) ** (-1.0 / p))
        raised = (np.maximum(q, 0.0) / top) ** (1.0 / (p - 1.0))
        return raised / self._sizes(raised)


def _shares(x: Array, size: Array) -> Array:
    """x / size, zero where the size is."""
    return np.divide(np.maximum(x, 0.0), size, out=np.zeros(np.shape(x)), where=size > 0)


class _Ball(_NormRegularizer):
    """Weights of a norm of at most one, or exactly one."""

    bounded = True
    degree = 2.0

    def _coefficient(self) -> float:
        return 1.0

    def gradient(self, d: Array) -> Array:
        return np.zeros(np.shape(d))

    def prox(self, v: Array, step: Array | float) -> Array:
        return self.project(v)


class Simplex(_Ball):
    r"""Weights on the simplex (row "simplex" of the table of regularizers).

    .. math::

        d \ge 0,\ \sum_k d_k = 1, \qquad
        \Omega = \tfrac12 \Big( \sum_k |f_k| \Big)^2, \qquad r^*(q/2) = \tfrac12 \max_k q_k .

    Examples
    --------
    >>> import numpy as np
    >>> reg = Simplex()
    >>> reg.project(np.array([0.9, 0.5, -2.0])).round(10).tolist()
    [0.7, 0.3, 0.0]
    >>> reg.omega(np.array([1.0, 3.0]))
    8.0
    """

    name = "simplex"
    sparse = True
    selective = True
    polyhedral = True
    p = 1.0

    def value(self, d: Array) -> float:
        inside = abs(float(np.sum(d)) - 1.0) <= 1e-9 and float(np.min(d)) >= -1e-9
        return 0.0 if inside else np.inf

    def project(self, v: Array) -> Array:
        return project_simplex(v)

    def dual_penalty(self, q: Array) -> float:
        # Not the maximum with zero: d must sum to one even where all q are negative by rounding.
        return 0.5 * float(np.max(q))

    def screened(self, low: Array, high: Array) -> Flags:
        # Only kernels with the largest q carry weight.
        return np.asarray(high < np.max(low))


class LpBall(_Ball):
    r"""Weights in the lp ball (row "lp ball" of the table of regularizers).

    .. math::

        d \ge 0,\ \|d\|_p \le 1, \qquad
        \Omega = \tfrac12 \big\| (|f_k|)_k \big\|_{2p/(p+1)}^2, \qquad
        r^*(q/2) = \tfrac12 \|q\|_{p/(p-1)} .

    At ``p = 1`` the conjugate norm is the maximum and the solutions are those of the simplex.

    Parameters
    ----------
    p : float, default=2.0
        Exponent of the norm, >= 1 and finite. The closer to 1, the fewer kernels matter.

    Examples
    --------
    >>> import numpy as np
    >>> reg = LpBall(p=2.0)
    >>> reg.project(np.array([3.0, 4.0, -1.0])).round(10).tolist()
    [0.6, 0.8, 0.0]
    >>> reg.dual_penalty(np.array([3.0, 4.0]))
    2.5
    """

    name = "lp_ball"
    sparse = False
    searching = True

    def __init__(self, p: float = 2.0) -> None:
        self.p = p

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(p) for p in (1.0, 1.1, 1.5, 2.0, 3.0, 8.0)]

    @property
    def polyhedral(self) -> bool:
        """The ball of the 1-norm: weights below a sum of one are never better."""
        return self.p == 1

    def value(self, d: Array) -> float:
        inside = float(self._sizes(d)[0]) <= 1.0 + 1e-9 and float(np.min(d)) >= -1e-9
        return 0.0 if inside else np.inf

    def project(self, v: Array) -> Array:
        return project_lp_ball(v, self._exponent(), self._groups(len(v)))

    def dual_penalty(self, q: Array) -> float:
        return float(self._dual_sizes(q)[0])

    def dual_weights(self, q: Array) -> Array | None:
        return None if self._exponent() == 1.0 else self._largest(q)

    def start(self, m: int) -> Array:
        return np.full(m, m ** (-1.0 / self._exponent()))


class SquaredLp(_NormRegularizer):
    r"""Squared lp norm penalty (row "squared-norm penalty" of the table of regularizers).

    .. math::

        r(d) = \tfrac{s}{2} \|d\|_p^2,\ d \ge 0, \qquad
        \Omega = \tfrac34 (2 s)^{1/3} \big\| (|f_k|)_k \big\|_{2p/(p+1)}^{4/3}, \qquad
        r^*(z) = \frac{\|z\|_{p/(p-1)}^2}{2 s},\ z = q / 2 .

    :math:`\Omega` follows from :math:`d = t u` with :math:`\|u\|_p = 1`: the best u is that of the
    ball, and :math:`\tfrac12 A^2 / t + \tfrac{s}{2} t^2`, A being the norm, is least at
    :math:`t^3 = A^2 / (2 s)`.

    Parameters
    ----------
    p : float, default=2.0
        Exponent of the norm, >= 1 and finite.
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = SquaredLp(p=2.0, weight=1.0)
    >>> reg.value(np.array([3.0, 4.0]))
    12.5
    >>> reg.dual_penalty(np.array([6.0, 8.0]))
    12.5
    """

    name = "squared_lp"
    sparse = False
    orthant = True
    searching = True
    degree = 4.0 / 3.0

    def __init__(self, p: float = 2.0, weight: float = 1.0) -> None:
        self.p = p
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(1.0, 0.5), cls(1.33, 3.0), cls(4.0, 0.2)]

    @property
    def smooth(self) -> bool:
        """Not between 1 and 2: there slopes rise infinitely steeply from zero."""
        return not 1.0 < self._exponent() < 2.0

    def _coefficient(self) -> float:
        return float(np.cbrt(2.0 * self._price()))

    def value(self, d: Array) -> float:
        size = float(self._sizes(d)[0])
        return 0.5 * self._price() * (size * size) if float(np.min(d)) >= -1e-9 else np.inf

    def gradient(self, d: Array) -> Array:
        size = self._sizes(d)
        return self._price() * size * _shares(d, size) ** (self._exponent() - 1.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        return lp_prox(v, self._exponent(), step * self._price(), 2.0, self._groups(len(v)))

    def dual_penalty(self, q: Array) -> float:
        # A product of floats that is too large is infinite, where a power would raise.
        size = float(self._dual_sizes(q)[0])
        return (size * size) / (2.0 * self._price())

    def dual_weights(self, q: Array) -> Array | None:
        if self._exponent() == 1.0:
            return None
        return self._dual_sizes(q) / self._price() * self._largest(q)


class _NormSum(_NormRegularizer):
    """A price proportional to the norm of each group."""

    sparse = True
    degree = 1.0

    def _coefficient(self) -> float:
        return float(np.sqrt(2.0 * self._price()))

    def value(self, d: Array) -> float:
        inside = float(np.min(d)) >= -1e-9
        return self._price() * float(np.sum(self._sizes(d))) if inside else np.inf

    def gradient(self, d: Array) -> Array:
        """Gradient where every group has weight; in a group of zeros the limit is any: 0."""
        sizes = self._groups(len(d)).spread(self._sizes(d))
        return self._price() * _shares(d, sizes) ** (self._exponent() - 1.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        return lp_prox(v, self._exponent(), step * self._price(), 1.0, self._groups(len(v)))

    def dual_penalty(self, q: Array) -> float:
        top = float(np.max(self._dual_sizes(q)))
        return 0.0 if top <= self._price() * (1.0 + 1e-9) else np.inf

    def dual_scale(self, q: Array) -> float:
        return min(1.0, self.entry_scale(q))

    def entry_scale(self, q: Array) -> float:
        top = float(np.max(self._dual_sizes(q)))
        return float(np.sqrt(self._price() / top)) if top > 0 else np.inf

    def screened(self, low: Array, high: Array) -> Flags:
        if self._exponent() == 1.0:
            return np.asarray(high < np.sqrt(2.0 * self._price()))
        spared = self._dual_sizes(np.square(high)) < self._price()
        return np.broadcast_to(self._groups(len(high)).spread(spared), np.shape(high))


class L1(_NormSum):
    r"""Linear penalty on the weights (row "l1 penalty" of the table of regularizers).

    .. math::

        r(d) = s \sum_k d_k,\ d \ge 0, \qquad \Omega = \sqrt{2 s} \sum_k |f_k|, \qquad
        r^*(q/2) = 0 \text{ if } q_k \le 2 s \text{ for all } k, \text{ else } \infty .

    This is the block l1 norm with coefficient :math:`c = \sqrt{2 s}`.

    Parameters
    ----------
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = L1(weight=2.0)
    >>> reg.omega(np.array([1.0, 3.0]))
    8.0
    >>> reg.weights_from_norms(np.array([1.0, 3.0])).tolist()
    [0.5, 1.5]
    """

    name = "l1"
    orthant = True
    selective = True
    polyhedral = True
    p = 1.0

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(weight=0.03), cls(weight=20.0)]


class BlockNorm(_NormSum):
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
