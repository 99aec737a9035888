r"""The proximal maps of powers of lp norms.

SpicyMKL (Suzuki and Tomioka 2011) shrinks a component with the norm :math:`|v_k|` along itself,
so all it asks of a regularizer is what becomes of the norms: for block l1 the soft threshold of its
eq. 5.
"""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.regularizers.base import NormProx, Partition
from kernelweave.root_search import rising_root, rising_roots

_EPS = float(np.finfo(np.float64).eps)
# The least size of a group that is not zero.
_LEAST = float(np.finfo(np.float64).tiny)
# Where Newton's method is quadratic, a step this small leaves nothing but rounding.
_SMALL = 1e-8


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
        return NormProx.separable(shrunk, np.ones(shrunk.size))
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
    n = np.maximum(v, 0.0)
    if r == 1.0:  # for e = 1 SpicyMKL eq. 5
        return np.maximum(n - price, 0.0) if degree == 1.0 else _sum_prox(n, float(price), degree)
    if r == degree == 2.0:
        return n / (1.0 + price)
    if r == 2.0 and degree == 1.0:
        size = groups.norms(n, 2.0)
        return n * groups.spread(np.maximum(size - price, 0.0) / np.where(size > 0, size, 1.0))
    # With the size taken out nothing overflows; a power of two adds no rounding.
    top = np.exp2(np.frexp(n.max(initial=0.0))[1])
    out, n = np.zeros(n.size), n / top
    used = n > 0
    if degree == 1.0:
        used &= groups.spread(groups.norms(n, r / (r - 1.0))) > price / top
    if np.any(used):
        t = price if np.ndim(price) == 0 else np.asarray(price)[used]
        x, _ = power_parts(n[used], t * top ** (degree - 2.0), r, degree, groups.subset(used))
        out[used] = top * x
    return out


def _sum_prox(n: Array, price: float, degree: float) -> Array:
    """`lp_prox` for r = 1 and a degree above 1: a soft threshold that depends on the sum.

    The unknown is how far it lies below the largest norm: differences from that keep the digits
    that those from a high threshold lose, and others where it is low.
    """
    top = float(n.max(initial=0.0))
    below = n - top
    if top == 0.0:
        return n

    def excess(depth: float) -> tuple[float, float, float]:
        total = float(np.maximum(below + depth, 0.0).sum())
        threshold = price * total ** (degree - 1.0)
        rise = 1.0 + (degree - 1.0) * threshold / total * np.count_nonzero(below > -depth)
        value = threshold + depth - top
        return value, top, depth - value / rise

    # What it is for the largest norm alone.
    start = max(float(_split(np.array(top), price, degree - 1.0)[0]), _LEAST)
    depth = rising_root(excess, start, 0.0, top)
    high = np.maximum(below + depth, 0.0)
    threshold = price * float(high.sum()) ** (degree - 1.0)
    return high if threshold > 0.5 * top else np.maximum(n - threshold, 0.0)


def power_parts(
    n: Array, price: Array | float, r: float, degree: float, groups: Partition
) -> tuple[Array, Array]:
    r"""Split the norms of every group: :math:`x_k + t_k \sigma^{e-r} x_k^{r-1} = n_k`.

    With :math:`\sigma = \|x\|_r` this x minimises
    :math:`\tfrac12 \sum_k (x_k - n_k)^2 / t_k + \tfrac1e \|x\|_r^e`. Of degree e = 1 what is taken
    from n is its projection on the ball of the dual norm, of the radius t (Moreau). The shares
    :math:`x / \sigma` that solve the equation for a given :math:`\sigma` fall as it grows, so there
    is one :math:`\sigma` at which their norm is one.

    All n are positive, with a dual norm above the price in every group if e = 1. The price is one
    number unless e = 2; r > 1 is finite, and e goes from 1 to 2. Returns both parts of n, each to
    its own last digits.
    """
    rise = r - 1.0
    high, dual = groups.norms(n, r), groups.norms(n, 1.0 + 1.0 / rise)
    # The first guess is exact where all norms are equal.
    if degree == 1.0:
        # By rounding a norm that is just above the price may be it.
        start = high * np.maximum((dual - price) / dual, _EPS)
    else:
        start = _split(high, np.mean(price) * (high / dual), degree - 1.0)[0]
    x = taken = n

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def lack(size: Array) -> tuple[Array, float, Array]:
        nonlocal x, taken
        each = groups.spread(size)
        pull = np.maximum(price * groups.spread(size ** (degree - 1.0)), _LEAST)
        x, taken = _split(n, pull, rise, each)
        mass = (x / each) * (taken / pull)  # the r-th power of the shares
        total = groups.sums(mass)
        length = total ** (1.0 / r)
        # Shares fall by this power of the size.
        rate = (x + (degree - 1.0) * taken) / np.maximum(x + rise * taken, 1e-300)
        # Newton where it is nearly straight: 1 / length in size, or length in 1 / size.
        fall = groups.sums(mass * rate) / total
        if degree < 1.5:
            proposal = size * (1.0 + (length - 1.0) / fall)
        else:
            proposal = size / (1.0 - (1.0 - 1.0 / length) / fall)
        return 1.0 - length, 1.0, proposal

    rising_roots(lack, start, _LEAST, high, tolerance=1e-15 * max(4.0, 1.0 / rise))
    return x, taken


def _split(
    n: Array, price: Array | float, power: float, unit: Array | float = 1.0
) -> tuple[Array, Array]:
    r"""Both terms of :math:`x + \mathrm{price}\, (x / \mathrm{unit})^{\mathrm{power}} = n`.

    With :math:`x = B e^{-s}`, B being the smaller of the two x that would do if one of the terms
    were all, the logarithm of the left side is a convex, falling function of s. From s = 0, where
    it exceeds that of n by log 2 at most, Newton's method comes up to the root and not beyond.
    """
    # Of the x that the power's term alone would give, over n.
    ratio = (np.log(n) - np.log(price)) / power + np.log(unit) - np.log(n)
    first, second = np.minimum(ratio, 0.0), np.minimum(-power * ratio, 0.0)
    s = np.zeros(np.shape(n))
    while True:
        x, taken = np.exp(first - s), np.exp(second - power * s)
        change = np.log(x + taken) * (x + taken) / (x + power * taken)
        if not np.any(np.abs(change) * max(1.0, power) > _SMALL):
            # To first order, which is exact after so small a step.
            return n * (x - x * change), n * (taken - power * taken * change)
        s = s + change
