"""Regularizers that go by norms of the weights: in a ball, squared, or in proportion."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.regularizers.base import NormProx, Partition, Regularizer
from kernelweave.regularizers.norm_prox import lp_prox, power_parts, power_prox
from kernelweave.validation import positive_number


class _NormRegularizer(Regularizer):
    r"""A price :math:`\tfrac{s}{e} \sum_g \|d_g\|_p^e` on groups of weights, e being `growth`.

    There is one group unless stated, and where e is infinite the price is that of a ball:
    :math:`\|d\|_p \le 1`. With :math:`c = (2 s)^{1/(e+1)}` and the degree
    :math:`e' = 2 e / (e + 1)`

    .. math::

        \Omega = \frac{c}{e'} \sum_g A_g^{e'}, \qquad
        A_g = \big\| (|f_k|)_{k \in g} \big\|_{2p/(p+1)} .

    It is attained by :math:`d_g = t_g u_g` with :math:`t_g = A_g^{2-e'} / c` and
    :math:`u_k = (|f_k| / A_g)^{2/(p+1)}`, which minimises :math:`\tfrac12 \sum_k |f_k|^2 / u_k`
    over the ball :math:`\|u\|_p \le 1`.
    """

    proximal = True
    growth: ClassVar[float]
    weight = 1.0  # A ball has no price.
    p: float

    @property
    def _degree(self) -> float:
        return 2.0 / (1.0 + 1.0 / self.growth)

    def _coefficient(self) -> float:
        """The c in front of the norms."""
        return float((2.0 * self._price()) ** (1.0 / (self.growth + 1.0)))

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
        """Dual norm of z = q / 2 in each group."""
        p = self._exponent()
        dual = np.inf if p == 1.0 else p / (p - 1.0)
        return self._groups(len(q)).norms(0.5 * np.maximum(q, 0.0), dual)

    def _norm_sizes(self, norms: Array) -> Array:
        """The A of each group."""
        p = self._exponent()
        return self._groups(len(norms)).norms(norms, 2.0 * p / (p + 1.0))

    def value(self, d: Array) -> float:
        if float(np.min(d)) < -1e-9:
            return np.inf
        with np.errstate(over="ignore"):
            return self._price() / self.growth * float(np.sum(self._sizes(d) ** self.growth))

    def gradient(self, d: Array) -> Array:
        """Gradient where every group has weight; in a group of zeros the limit is any: 0."""
        sizes = self._groups(len(d)).spread(self._sizes(d))
        shares = _shares(d, sizes) ** (self._exponent() - 1.0)
        return self._price() * sizes ** (self.growth - 1.0) * shares

    def prox(self, v: Array, step: Array | float) -> Array:
        price, groups = step * self._price(), self._groups(len(v))
        return lp_prox(v, self._exponent(), price, self.growth, groups)

    def omega(self, norms: Array) -> float:
        with np.errstate(over="ignore"):
            powers = self._norm_sizes(norms) ** self._degree
            return self._coefficient() / self._degree * float(np.sum(powers))

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        price, groups = step * self._coefficient(), self._groups(len(norms))
        return power_prox(norms, self._exponent(), price, self._degree, groups)

    def weights_from_norms(self, norms: Array) -> Array:
        size, groups = self._norm_sizes(norms), self._groups(len(norms))
        if self._degree == 2.0 and not size[0] > 0:
            return self.start(len(norms))
        u = _shares(norms, groups.spread(size)) ** (2.0 / (self._exponent() + 1.0))
        return groups.spread(size ** (2.0 - self._degree) / self._coefficient()) * u

    def dual_penalty(self, q: Array) -> float:
        r"""Of a growth above 1, :math:`s^{1-e'} \|z\|^{e'} / e'` with :math:`1/e + 1/e' = 1`."""
        degree = 1.0 / (1.0 - 1.0 / self.growth)
        with np.errstate(over="ignore"):
            power = float(self._dual_sizes(q)[0] ** degree)
        return power / (degree * self._price() ** (degree - 1.0))

    def dual_weights(self, q: Array) -> Array | None:
        r"""Of a growth and p above 1, u times :math:`(\|z\| / s)^{1/(e-1)}`.

        The u of the norm one with the largest :math:`\sum_k u_k q_k` is proportional to
        :math:`q_k^{1/(p-1)}`.
        """
        p, top = self._exponent(), float(np.max(q))
        if p == 1.0 or self.growth == 1.0:
            return None
        u = (np.maximum(q, 0.0) / top) ** (1.0 / (p - 1.0)) if top > 0 else np.ones(len(q))
        size = (self._dual_sizes(q) / self._price()) ** (1.0 / (self.growth - 1.0))
        return size / self._sizes(u) * u


def _shares(x: Array, size: Array) -> Array:
    """x / size, zero where the size is."""
    return np.divide(np.maximum(x, 0.0), size, out=np.zeros(np.shape(x)), where=size > 0)


def project_simplex(v: Array) -> Array:
    r"""Project onto :math:`\{d \ge 0, \sum_k d_k = 1\}` by sorting."""
    # Shifting all entries changes nothing, and with the largest at zero the sums keep their digits.
    shifted = np.asarray(v, dtype=np.float64) - np.max(v)
    # Entries more than one below the largest are zero for certain: most of a long vector.
    near = np.sort(shifted[shifted > -1.0])[::-1]
    excess = np.cumsum(near) - 1.0
    count = np.arange(1, near.size + 1)
    last = int(np.flatnonzero(near * count > excess)[-1])
    d = np.maximum(shifted - excess[last] / (last + 1.0), 0.0)
    return d / d.sum()


class _Ball(_NormRegularizer):
    """Weights of a norm of at most one, or exactly one."""

    bounded = True
    growth = np.inf

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
    def polyhedral(self) -> bool:  # type: ignore[override]
        """The ball of the 1-norm: weights below a sum of one are never better."""
        return self.p == 1

    def value(self, d: Array) -> float:
        inside = float(self._sizes(d)[0]) <= 1.0 + 1e-9 and float(np.min(d)) >= -1e-9
        return 0.0 if inside else np.inf

    def project(self, v: Array) -> Array:
        r"""Outside the ball :math:`d_k + \lambda d_k^{p-1} = v_k`, with the norm one."""
        p, d = self._exponent(), np.maximum(np.asarray(v, dtype=np.float64), 0.0)
        size = float(self._sizes(d)[0])
        if size <= 1.0:
            return d
        if p == 1.0:
            return project_simplex(d)
        if p == 2.0:
            return d / size
        used = d > 0
        within = self._groups(int(np.count_nonzero(used)))
        _, shell = power_parts(d[used], 1.0, p / (p - 1.0), 1.0, within)
        d[used] = shell / within.norms(shell, p)
        return d

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
    growth = 2.0

    def __init__(self, p: float = 2.0, weight: float = 1.0) -> None:
        self.p = p
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(1.0, 0.5), cls(1.33, 3.0), cls(4.0, 0.2)]

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Not between 1 and 2: there slopes rise infinitely steeply from zero."""
        return not 1.0 < self._exponent() < 2.0


class NormSum(_NormRegularizer):
    """A price proportional to the norm of each group."""

    sparse = True
    growth = 1.0

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


class L1(NormSum):
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
