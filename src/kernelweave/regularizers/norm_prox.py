r"""Norms of groups, projections on their balls, and the prox of :math:`\Omega`.

SpicyMKL (Suzuki and Tomioka 2011) shrinks a component with the norm :math:`|v_k|` along itself,
so all it asks of a regularizer is what becomes of the norms: for block l1 the soft threshold of its
eq. 5. Here are the equations behind `Regularizer.norm_prox`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import frexp, ldexp
from typing import Any, Self

import numpy as np

from kernelweave.arrays import AnyArray, Array, Flags, Index
from kernelweave.root_search import rising_root, rising_roots

__all__ = [
    "NormProx",
    "Partition",
    "lp_prox",
    "power_parts",
    "power_prox",
    "project_lp_ball",
    "project_simplex",
    "separable_prox",
]


_EPS = float(np.finfo(np.float64).eps)
# The least size of a group that is not zero.
_LEAST = float(np.finfo(np.float64).tiny)
# Where Newton's method is quadratic, a step this small leaves nothing but rounding.
_SMALL = 1e-8


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

    def sums(self, x: Array) -> Array:
        """Sum of every group."""
        if len(self.names) == 1:
            return np.sum(x, keepdims=True)
        return np.bincount(self.labels, x, minlength=len(self.names)).astype(np.float64, copy=False)

    def spread(self, values: AnyArray) -> AnyArray:
        """One value per group, given to each of its members (a lone one only broadcasts)."""
        return values if len(values) == 1 else values.take(self.labels)

    def norms(self, x: Array, p: float) -> Array:
        """Lp norm of every group, with its largest entry taken out first."""
        size = np.abs(x)
        if p == 1.0:
            return self.sums(size)
        top = np.max(size, keepdims=True) if len(self.names) == 1 else np.zeros(len(self.names))
        if len(top) > 1:
            np.maximum.at(top, self.labels, size)
        if np.isinf(p):
            return top
        # Where all are zero or one is infinite, the ratio of equal numbers is one too.
        each = self.spread(top)
        ratio = np.divide(size, each, out=np.ones(size.shape), where=size != each)
        return top * self.sums(ratio**p) ** (1.0 / p)


@dataclass(frozen=True, eq=False)
class NormProx:
    r"""Shrunken norms p, and how they change with the norms n they came from.

    On the kernels in use

    .. math:: \frac{\partial p}{\partial n}
        = \operatorname{diag}(\mathrm{slopes})
        + \mathrm{coupling} \operatorname{diag}(\mathrm{signs})\, \mathrm{coupling}^\top,

    symmetric and positive semi-definite; all other entries are zero.

    Attributes
    ----------
    norms : ndarray of shape (m,)
        The p, exactly zero for kernels left out.
    active : ndarray of shape (A,), int
        Kernels in use: ``flatnonzero(norms > 0)``.
    slopes : ndarray of shape (A,)
        The diagonal part.
    spikes, parts : ndarray of shape (A,)
        The one entry of each row of `coupling` that is not zero, and its column, -1 for kernels
        that depend on no other.
    signs : ndarray of shape (R,)
        +1 or -1 for each column of `coupling`.

    Examples
    --------
    >>> from kernelweave.regularizers import Simplex
    >>> shrunk = Simplex().norm_prox(np.array([3.0, 1.0, 2.0]), step=1.0)
    >>> shrunk.norms.round(10).tolist(), shrunk.active.tolist()
    ([1.3333333333, 0.0, 0.3333333333], [0, 2])
    """

    norms: Array
    active: Index
    slopes: Array
    spikes: Array
    parts: Index
    signs: Array

    @cached_property
    def coupling(self) -> Array:
        """The low-rank part, of shape (A, R); R is zero where kernels do not depend on another."""
        dense = np.zeros((len(self.active), len(self.signs)))
        rows = np.flatnonzero(self.parts >= 0)
        dense[rows, self.parts[rows]] = self.spikes[rows]
        return dense


def separable_prox(shrunk: Array, slopes: Array) -> NormProx:
    """Answer of a prox that treats every norm on its own; `slopes` are those of `shrunk`."""
    active = np.flatnonzero(shrunk > 0)
    alone = np.full(len(active), -1, dtype=np.intp)
    return NormProx(shrunk, active, slopes[active], np.zeros(len(active)), alone, np.zeros(0))


def power_prox(norms: Array, p: float, price: float, degree: float, groups: Partition) -> NormProx:
    r"""Minimise :math:`\tfrac12 |p - n|^2 + \frac{t}{e} \sum_g \|p_g\|_r^e`, r = 2p/(p+1).

    `price` is t > 0; see :func:`lp_prox`.

    Examples
    --------
    >>> power_prox(np.array([3.0, 4.0]), 1.0, 1.0, 2.0, Partition.whole(2)).norms.round(10).tolist()
    [0.6666666667, 1.6666666667]
    """
    r = 2.0 * p / (p + 1.0)
    shrunk = lp_prox(np.asarray(norms, dtype=np.float64), r, price, degree, groups)
    used = shrunk > 0
    x, groups = shrunk[used], groups.subset(used)
    if r == degree == 1.0 or not x.size:
        return separable_prox(shrunk, np.ones(shrunk.size))
    if r == 1.0 and x.size > 1:
        # Far quicker than what follows, which gives the same: the threshold rises by 1 / stiff for
        # each unit of the sum.
        stiff = x.sum() ** (2.0 - degree) / (price * (degree - 1.0))
        ones, together = np.ones(x.size), np.zeros(x.size, np.intp)
        spikes = ones / np.sqrt(stiff + x.size)
        return NormProx(shrunk, np.flatnonzero(used), ones, spikes, together, -ones[:1])
    size, rise = groups.norms(x, r), r - 1.0
    u = x / groups.spread(size)
    w, ratio = np.maximum(u, _LEAST) ** rise, price * size ** (degree - 2.0)
    # The Hessian of the penalty is diag(rise ratio w / u) + ratio (degree - r) w w'.
    slopes = u / (u + rise * groups.spread(ratio) * w)
    excess = degree - r
    # Of degree r it is a sum over kernels: none depends on another, nor by rounding.
    beta = ratio * (excess if abs(excess) > 1e-15 else 0.0)
    # Sherman and Morrison's 1 + beta sum w^2 slopes, rid of differences by sum u w = 1.
    bend = groups.sums(slopes * w * (u + groups.spread(ratio * (degree - 1.0)) * w))
    spikes = groups.spread(np.sqrt(np.abs(beta) / bend)) * slopes * w
    alone = groups.spread(groups.sizes == 1)
    if alone.any():  # p + t p^(e - 1) = n
        slopes = np.where(alone, groups.spread(1.0 / (1.0 + ratio * (degree - 1.0))), slopes)
        spikes = np.where(alone, 0.0, spikes)
    coupled = spikes > 0
    among = groups.subset(coupled)
    parts = np.full(x.size, -1, dtype=np.intp)
    parts[coupled] = among.labels
    signs = np.full(len(among.names) if coupled.any() else 0, -np.sign(excess))
    return NormProx(shrunk, np.flatnonzero(used), slopes, spikes, parts, signs)


def lp_prox(v: Array, r: float, price: Array | float, degree: float, groups: Partition) -> Array:
    r"""Minimise :math:`\tfrac12 \sum_k (x_k - v_k)^2 / t_k + \frac1e \sum_g \|x_g\|_r^e`, x >= 0.

    The `degree` e goes from 1 to 2; above 1 there must be one group. The `price` is t > 0: one
    number, or one for each entry if r = e = 1 or e = 2 and r > 1. For e = 1 a whole group is zero
    if and only if :math:`\|v_g\|_{r/(r-1)} \le t`.
    """
    if r == 1.0 and degree == 1.0:  # SpicyMKL eq. 5
        return np.maximum(v - price, 0.0)
    n = np.maximum(v, 0.0)
    if r == 1.0:
        return _sum_prox(n, float(price), degree)
    if r == 2.0 and degree == 2.0:
        return n / (1.0 + price)
    if r == 2.0 and degree == 1.0:
        size = groups.norms(n, 2.0)
        return n * groups.spread(np.maximum(size - price, 0.0) / np.where(size > 0, size, 1.0))
    out, used = np.zeros(n.size), n > 0
    if degree == 1.0:
        used &= groups.spread(groups.norms(n, r / (r - 1.0))) > price
    if np.any(used):
        # With the size taken out nothing overflows; a power of two adds no rounding.
        top = ldexp(1.0, frexp(n.max())[1])
        t = price if np.ndim(price) == 0 else np.asarray(price)[used]
        x, _ = power_parts(n[used] / top, t * top ** (degree - 2.0), r, degree, groups.subset(used))
        out[used] = top * x
    return out


def _sum_prox(n: Array, price: float, degree: float) -> Array:
    """`lp_prox` for r = 1 and a degree above 1: a soft threshold that depends on the sum.

    Sorting tells which norms stay: those above the threshold that would hold if they were it.
    """
    # Differences from the largest norm keep the digits that those from a high threshold lose.
    below = n - n.max(initial=0.0)
    order = np.argsort(below)[::-1]
    ordered, deeper = n[order], below[order]
    sums = np.cumsum(deeper)
    excess = np.maximum(sums - np.arange(1, n.size + 1) * deeper, 0.0)
    count = int(np.count_nonzero((ordered > 0) & (ordered > price * excess ** (degree - 1.0))))
    shrunk = np.zeros(n.size)
    if not count:
        return shrunk
    total = float(_balance(np.array([ordered[:count].sum()]), count * price, degree)[0])
    threshold = price * total ** (degree - 1.0)
    if threshold < total:
        left = ordered[:count] - threshold
    else:
        left = total / count + (deeper[:count] - sums[count - 1] / count)
    shrunk[order[:count]] = np.maximum(left, 0.0)
    return shrunk


def power_parts(
    n: Array, price: Array | float, r: float, degree: float, groups: Partition
) -> tuple[Array, Array]:
    r"""Split the norms of every group: :math:`x_k + t_k \sigma^{e-r} x_k^{r-1} = n_k`.

    With :math:`\sigma = \|x\|_r` this x minimises
    :math:`\tfrac12 \sum_k (x_k - n_k)^2 / t_k + \tfrac1e \|x\|_r^e`. Of degree e = 1 what is taken
    from n is its projection on the ball of the dual norm, of the radius t (Moreau).

    The shares :math:`u = x / \sigma` that solve the equation for a given :math:`\sigma` fall as it
    grows, so there is one :math:`\sigma` at which their norm is one.

    Parameters
    ----------
    n : ndarray of shape (m,)
        Positive; of degree 1 with a dual norm above the price in every group.
    price : float or ndarray of shape (m,)
        The t > 0, one number unless the degree is 2.
    r, degree : float
        Exponent of the norm, > 1 and finite, and the e, from 1 to 2.
    groups : Partition
        The norms that belong together.

    Returns
    -------
    x, taken : ndarray of shape (m,)
        The parts of n, each to its own last digits.
    """
    rise = r - 1.0
    # The equation is solved for the power of x in which it is convex.
    steep = rise > 1.0
    power = rise if steep else 1.0 / rise
    high, dual = groups.norms(n, r), groups.norms(n, 1.0 + 1.0 / rise)
    # The first guess is exact where all norms are equal.
    if degree == 1.0:
        # By rounding a norm that is just above the price may be it.
        start = high * np.maximum((dual - price) / dual, _EPS)
    elif degree == 2.0:
        start = groups.norms(n / (1.0 + price * groups.spread(high / dual)), r)
    else:
        start = _balance(high, price * (high / dual), degree)
    lifted = n ** (1.0 / power)
    last, w, rate = start, lifted, lifted
    x = taken = n

    def lack(size: Array) -> tuple[Array, float, Array]:
        nonlocal last, w, rate, x, taken
        each, pull = groups.spread(size), price * groups.spread(size ** (degree - 1.0))
        if steep:
            raised, linear, root = pull, each, pull ** (1.0 / power)
        else:
            raised, linear, root = each, pull, groups.spread(size**rise)
        bound = np.minimum(n / linear, lifted / root)
        change = groups.spread(size / last - 1.0)
        if rate is lifted or np.max(np.abs(change)) > 0.1:
            # Almost the threshold, unless that takes almost all.
            guess = bound if steep else (np.maximum(n - pull, rise * n) / each) ** rise
        else:
            # A short way along the tangent.
            guess = w * (1.0 - (1.0 if steep else rise) * rate * change)
        w, top = _power_roots(n, raised, linear, power, np.minimum(guess, bound), bound)
        x, taken = (linear * w, top) if steep else (top, linear * w)
        # Shares fall by the power `rate` of the size.
        rate = (x + (degree - 1.0) * taken) / np.maximum(x + rise * taken, 1e-300)
        mass = (x / each) * (taken / pull)
        total = groups.sums(mass)
        length, last = total ** (1.0 / r), size
        # Newton where it is nearly straight: 1 / length in size, or length in 1 / size.
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = groups.sums(mass * rate) / total
            if degree < 1.5:
                proposal = size * (1.0 + (length - 1.0) / fall)
            else:
                proposal = size / (1.0 - (1.0 - 1.0 / length) / fall)
        return 1.0 - length, 1.0, proposal

    def alone(size: float) -> tuple[float, float, float]:
        value, unit, proposal = lack(np.full(1, size))
        return value.item(), unit, proposal.item()

    tolerance = 1e-15 * max(4.0, 1.0 / rise)
    if len(start) == 1:
        rising_root(alone, start.item(), _LEAST, high.item(), tolerance)
    else:
        rising_roots(lack, start, _LEAST, high, tolerance)
    return x, taken


def _balance(total: Array, price: Array | float, degree: float) -> Array:
    """Solve ``x + price x^(degree - 1) = total`` for x, degree above 1."""
    if degree == 2.0:
        return total / (1.0 + price)
    power = 1.0 / (degree - 1.0)
    bound = np.minimum(total / price, total ** (1.0 / power))
    return _power_roots(total, 1.0, price, power, bound, bound)[1]


def _power_roots(
    n: Array,
    raised: Array | float,
    linear: Array | float,
    power: float,
    guess: Array,
    bound: Array,
) -> tuple[Array, Array]:
    """Solve ``raised w^power + linear w = n`` for every w; return w and ``raised w^power``.

    The left side is convex and rising, so Newton from the right of the root comes down to it
    without overshooting, and from the left is on the right after one step, cut at a bound: it needs
    no bracket, which would double the time. Stops after changes of ``w^power`` that leave only
    rounding.
    """
    w = guess
    error = max(_SMALL, 1e-15 * power)
    for _ in range(100):
        tail = raised * w ** (power - 1.0)
        change = (tail * w + linear * w - n) / (linear + power * tail)
        new = np.minimum(w - change, bound)
        if not np.any(np.abs(change) * power > error * new):
            break
        w = new
    # To first order, which is exact after a small step. The power multiplies the relative error of
    # w, the difference has the absolute error of n.
    top = tail * (w + power * (new - w))
    top = np.where(power * top <= n, np.maximum(top, 0.0), np.maximum(n - linear * new, 0.0))
    return new, top


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


def project_lp_ball(v: Array, p: float, groups: Partition) -> Array:
    r"""Project onto :math:`\{d \ge 0, \|d\|_p \le 1\}`, :math:`p \ge 1`, finite.

    Outside the ball the projection solves :math:`d_k + \lambda d_k^{p-1} = v_k` with the
    :math:`\lambda > 0` that makes the norm one. For p > 1 each group has a ball of its own.
    """
    d = np.maximum(np.asarray(v, dtype=np.float64), 0.0)
    if p == 1.0:
        return d if d.sum() <= 1.0 else project_simplex(d)
    size = groups.norms(d, p)
    if p == 2.0:
        return d / groups.spread(np.maximum(size, 1.0))
    outside = (d > 0) & (groups.spread(size) > 1.0)
    if np.any(outside):
        within = groups.subset(outside)
        _, shell = power_parts(d[outside], 1.0, p / (p - 1.0), 1.0, within)
        d[outside] = shell / within.spread(within.norms(shell, p))
    return d
