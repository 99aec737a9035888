r"""The prox of :math:`\Omega`: norms of components drawn towards zero.

SpicyMKL (Suzuki and Tomioka 2011) shrinks a component with the norm :math:`|v_k|` along itself,
so all it asks of a regularizer is what becomes of the norms: for block l1 the soft threshold of its
eq. 5. Here are the equations behind `Regularizer.norm_prox`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernelweave.regularizers.groups import Partition, Segments

__all__ = ["NormProx", "power_prox", "power_roots", "separable_prox", "soft_threshold"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Where Newton's method is quadratic, a step this small leaves nothing but rounding.
_SMALL = 1e-8


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
    spikes : ndarray of shape (A,)
        The one entry of each row of `coupling` that is not zero.
    parts : ndarray of shape (A,), int
        Its column, -1 for kernels that depend on no other.
    signs : ndarray of shape (R,)
        +1 or -1 for each column of `coupling`.

    Examples
    --------
    >>> from kernelweave.regularizers import Simplex
    >>> shrunk = Simplex().norm_prox(np.array([3.0, 1.0, 2.0]), step=1.0)
    >>> shrunk.norms.round(10).tolist(), shrunk.active.tolist()
    ([1.3333333333, 0.0, 0.3333333333], [0, 2])
    >>> (np.diag(shrunk.slopes) + shrunk.coupling * shrunk.signs @ shrunk.coupling.T).round(4)
    array([[ 0.6667, -0.3333],
           [-0.3333,  0.6667]])
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
    """Answer of a prox that treats every norm on its own.

    Parameters
    ----------
    shrunk, slopes : ndarray of shape (m,)
        The new norms and their derivatives; the latter matter where the former are positive.

    Returns
    -------
    NormProx

    Examples
    --------
    >>> separable_prox(np.array([2.0, 0.0]), np.ones(2)).coupling.shape
    (1, 0)
    """
    active = np.flatnonzero(shrunk > 0)
    alone = np.full(len(active), -1, dtype=np.intp)
    return NormProx(shrunk, active, slopes[active], np.zeros(len(active)), alone, np.zeros(0))


def soft_threshold(norms: Array, threshold: float) -> NormProx:
    r"""Minimise :math:`\tfrac12 |p - n|^2 + t \sum_k p_k` (SpicyMKL eq. 5).

    Examples
    --------
    >>> soft_threshold(np.array([3.0, 0.5]), 1.0).norms.tolist()
    [2.0, 0.0]
    """
    shrunk = np.maximum(np.asarray(norms, dtype=np.float64) - threshold, 0.0)
    return separable_prox(shrunk, np.ones(len(shrunk)))


def power_prox(
    norms: Array, p: float, price: float, degree: float, groups: Partition | None = None
) -> NormProx:
    r"""Minimise :math:`\tfrac12 |p - n|^2 + \frac{t}{e} \sum_g \|p_g\|_r^e`, r = 2p/(p+1).

    With :math:`\sigma = \|p_g\|_r` and shares :math:`u = p_g / \sigma` of norm one,

    .. math:: \sigma u_k + t \sigma^{e-1} u_k^{r-1} = n_k .

    The shares that solve this for a given :math:`\sigma` fall as it grows, so there is one
    :math:`\sigma` at which their norm is one, found by Newton steps in a bracket. For e = 1 there
    is none, and the whole group is zero, if and only if :math:`\|n_g\|_{r/(r-1)} \le t`.

    Parameters
    ----------
    norms : ndarray of shape (m,)
        The n >= 0.
    p : float
        Exponent of the norm of the weights, >= 1 and finite.
    price : float
        The t > 0.
    degree : float
        The e, from 1 to 2. Above 1 there must be one group.
    groups : Partition, optional
        The groups; all kernels are one unless given.

    Returns
    -------
    NormProx

    Examples
    --------
    >>> power_prox(np.array([3.0, 4.0]), 1.0, 1.0, 2.0).norms.round(10).tolist()
    [0.6666666667, 1.6666666667]
    """
    n = np.asarray(norms, dtype=np.float64)
    rise = (p - 1.0) / (p + 1.0)  # r - 1
    if rise == 0.0:
        return soft_threshold(n, price) if degree == 1.0 else _sum_prox(n, price, degree)
    if groups is None:
        segments = Segments(np.zeros(1, dtype=np.int64), n.size)
    else:
        n, segments = groups.sorted(n), groups.segments
    used = n > 0
    if degree == 1.0:
        used &= segments.spread(segments.norms(n, 1.0 + 1.0 / rise)) > price
    shrunk, slopes, spikes = np.zeros((3, n.size))
    if np.any(used):
        within = segments.subset(used)
        shrunk[used], slopes[used], spikes[used] = _power_parts(
            n[used], rise, price, degree, within
        )
    if groups is not None:
        shrunk, slopes, spikes = (groups.unsorted(x) for x in (shrunk, slopes, spikes))
    active = np.flatnonzero(shrunk > 0)
    labels = np.zeros(len(active), np.int64) if groups is None else groups.labels[active]
    coupled = spikes[active] > 0
    parts = np.full(len(active), -1, dtype=np.intp)
    found, parts[coupled] = np.unique(labels[coupled], return_inverse=True)
    signs = np.full(len(found), 1.0 if degree < 1.0 + rise else -1.0)
    return NormProx(shrunk, active, slopes[active], spikes[active], parts, signs)


def _sum_prox(n: Array, price: float, degree: float) -> NormProx:
    """`power_prox` for p = 1 and a degree above 1: a soft threshold that depends on the sum.

    Sorting tells which norms stay: those above the threshold that would hold if they were it.
    """
    # Differences from the largest norm keep the digits that those from a high threshold lose.
    top = float(n.max(initial=0.0))
    below = n - top
    order = np.argsort(below)[::-1]
    ordered, deeper = n[order], below[order]
    sums = np.cumsum(deeper)
    excess = np.maximum(sums - np.arange(1, n.size + 1) * deeper, 0.0)
    count = int(np.count_nonzero((ordered > 0) & (ordered > price * excess ** (degree - 1.0))))
    shrunk = np.zeros(n.size)
    if not count:
        return separable_prox(shrunk, shrunk)
    total = float(_balance(np.array([ordered[:count].sum()]), count * price, degree)[0])
    threshold = price * total ** (degree - 1.0)
    if threshold < total:
        left = ordered[:count] - threshold
    else:
        left = total / count + (deeper[:count] - sums[count - 1] / count)
    shrunk[order[:count]] = np.maximum(left, 0.0)
    active = np.flatnonzero(shrunk > 0)
    # The threshold rises by 1 / stiff for each unit of the sum.
    stiff = total ** (2.0 - degree) / (price * (degree - 1.0))
    if len(active) == 1:
        return separable_prox(shrunk, np.full(n.size, stiff / (stiff + 1.0)))
    ones = np.ones(len(active))
    spikes = ones / np.sqrt(stiff + len(active))
    return NormProx(shrunk, active, ones, spikes, np.zeros(len(active), np.intp), -ones[:1])


def _power_parts(
    n: Array, rise: float, price: float, degree: float, segments: Segments
) -> tuple[Array, Array, Array]:
    """Shrunken norms, slopes and spikes of segments of positive norms, none shrunk to zero."""
    size, shrunk, w = _sizes(n, rise, price, degree, segments)
    threshold = price * size ** (degree - 1.0)
    ratio, each = threshold / size, segments.spread(size)
    u = shrunk / each
    # The Hessian of the penalty is diag(rise ratio w / u) + ratio (degree - r) w w'.
    slopes = u / (u + rise * segments.spread(ratio) * w)
    excess = degree - 1.0 - rise
    # Of degree r it is a sum over kernels: none depends on another, nor by rounding.
    beta = ratio * (excess if abs(excess) > 1e-15 else 0.0)
    # Sherman and Morrison's 1 + beta sum w^2 slopes, rid of differences by sum u w = 1.
    bend = segments.sums(slopes * w * (u + segments.spread(ratio * (degree - 1.0)) * w))
    spikes = segments.spread(np.sqrt(np.abs(beta) / bend)) * slopes * w
    alone = segments.lengths == 1
    if np.any(alone):
        # p + price p^(degree - 1) = n.
        own = 1.0 / (1.0 + ratio * (degree - 1.0))
        each_alone = np.broadcast_to(segments.spread(alone), n.shape)
        slopes = np.where(each_alone, segments.spread(own), slopes)
        spikes = np.where(each_alone, 0.0, spikes)
    return shrunk, slopes, spikes


def _sizes(
    n: Array, rise: float, price: float, degree: float, segments: Segments
) -> tuple[Array, Array, Array]:
    """Size sigma of every segment, its shrunken norms, and ``u^(r-1)`` of their shares."""
    power, finest = 1.0 / rise, max(_SMALL, 1e-15 / rise)
    high = segments.norms(n, 1.0 + rise)
    dual = segments.norms(n, 1.0 + power)
    low = np.zeros_like(high)
    # The first guess is exact where all norms are equal.
    if degree == 1.0:
        size = high * ((dual - price) / dual)
    else:
        size = _balance(high, price * (high / dual), degree)
    lifted = n**rise
    guess: Array | None = None
    error = 0.1
    for _ in range(100):
        threshold = price * size ** (degree - 1.0)
        each, pull = segments.spread(size), segments.spread(threshold)
        bound = np.minimum(n / pull, lifted / segments.spread(size**rise))
        if guess is None:
            # Almost the threshold, unless that takes almost all.
            guess = (np.maximum(n - pull, rise * n) / each) ** rise
        w, shrunk = power_roots(n, each, pull, power, np.minimum(guess, bound), bound, error)
        if error == 0.0:
            break
        mass = shrunk * w / each
        total = segments.sums(mass)
        length = total ** (1.0 / (1.0 + rise))
        # Shares fall by the power `rate` of the size.
        held = pull * w
        rate = (shrunk + (degree - 1.0) * held) / np.maximum(shrunk + rise * held, 1e-300)
        fall = segments.sums(mass * rate) / total
        off = np.abs(length - 1.0)
        low = np.where(length > 1.0 + error, size, low)
        high = np.where(length < 1.0 - error, size, high)
        # Newton where it is nearly straight: 1 / length in size, or length in 1 / size.
        with np.errstate(divide="ignore", invalid="ignore"):
            if degree < 1.5:
                proposal = size * (1.0 + (length - 1.0) / fall)
            else:
                proposal = size / (1.0 - (1.0 - 1.0 / length) / fall)
        middle = np.where(low > 0, np.sqrt(low) * np.sqrt(high), 0.1 * high)
        proposal = np.where((low < proposal) & (proposal < high), proposal, middle)
        proposal = np.where((off <= finest) & (proposal == middle), size, proposal)
        change = proposal / size - 1.0
        size = proposal
        worst = float(np.max(off))
        # A short way along the tangent is the better guess.
        guess = None
        if worst < 0.1:
            guess = w * np.maximum(1.0 - rise * rate * segments.spread(change), 0.5)
        error = 0.0 if worst <= finest and error <= finest else min(max(0.1 * worst, finest), 0.1)
    return size, shrunk, w


def _balance(total: Array, price: Array | float, degree: float) -> Array:
    """Solve ``x + price x^(degree - 1) = total`` for x, degree above 1."""
    if degree == 2.0:
        return total / (1.0 + price)
    power = 1.0 / (degree - 1.0)
    bound = np.minimum(total / price, total ** (1.0 / power))
    return power_roots(total, 1.0, price, power, bound, bound, 0.0)[1]


def power_roots(
    n: Array,
    raised: Array | float,
    linear: Array | float,
    power: float,
    guess: Array,
    bound: Array,
    error: float,
) -> tuple[Array, Array]:
    """Solve ``raised w^power + linear w = n`` for every w; return w and ``raised w^power``.

    The left side is convex and rising, so Newton from the right of the root comes down to it
    without overshooting, and from the left is on the right after one step, cut at a bound.
    Stops after relative changes of ``w^power`` by `error`, or by what leaves only rounding.
    """
    w = guess
    error = max(error, _SMALL, 1e-15 * power)
    few = n.size // 4 if n.size > 1000 else 0
    for _ in range(100):
        tail = raised * w ** (power - 1.0)
        change = (tail * w + linear * w - n) / (linear + power * tail)
        new = np.minimum(w - change, bound)
        busy = np.abs(change) * power > error * new
        left = np.count_nonzero(busy)
        if left <= few:
            break
        w = new
    # To first order, which is exact after a small step. The power multiplies the relative error of
    # w, the difference has the absolute error of n.
    top = tail * (w + power * (new - w))
    top = np.where(power * top <= n, np.maximum(top, 0.0), np.maximum(n - linear * new, 0.0))
    if 0 < left <= few:  # these go on by themselves
        each, pull = (np.broadcast_to(x, n.shape)[busy] for x in (raised, linear))
        new[busy], top[busy] = power_roots(
            n[busy], each, pull, power, new[busy], bound[busy], error
        )
    return new, top
