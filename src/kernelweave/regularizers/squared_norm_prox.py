"""The prox of a squared lp norm, with a step length for each weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelweave.regularizers.norm_prox import power_roots
from kernelweave.regularizers.norms import norm

__all__ = ["squared_norm_prox"]

Array = NDArray[np.float64]

_MOST_STEPS = 100


def squared_norm_prox(v: Array, steps: Array | float, p: float) -> Array:
    r"""Minimise :math:`\tfrac12 \sum_k (x_k - v_k)^2 / t_k + \tfrac12 \|x\|_p^2` over x >= 0.

    With :math:`\nu = \|x\|_p`, every weight solves an equation of its own,

    .. math:: x_k + t_k \nu^{2-p} x_k^{p-1} = v_k .

    The norm of what solves them, over :math:`\nu`, falls as :math:`\nu` grows, so there is
    one :math:`\nu` at which it is one.

    Parameters
    ----------
    v : ndarray of shape (m,)
    steps : float or ndarray of shape (m,)
        The t > 0, the price in them.
    p : float
        Exponent of the norm, > 1 and finite.

    Examples
    --------
    >>> squared_norm_prox(np.array([2.0, 4.0, -1.0]), 1.0, 2.0).round(10).tolist()
    [1.0, 2.0, 0.0]
    """
    out = np.zeros(len(v))
    top = float(np.max(v))
    if top <= 0:
        return out
    # Of degree one in v, so its size can be taken out.
    n = np.maximum(v, 0.0) / top
    used = n > 0
    t = np.broadcast_to(np.asarray(steps, dtype=np.float64), v.shape)[used]
    out[used] = top * _by_size(n[used], t, p)
    return out


def _by_size(n: Array, t: Array, p: float) -> Array:
    """Newton on the logarithm of the norm; halves the bracket where that does not get nearer."""
    finest = max(1e-14, 1e-15 / (p - 1.0))
    spread = len(n) ** ((2.0 - p) / p)
    # Fewer weights have a smaller norm, and equal ones of the size of the largest a larger one.
    low = float(np.log(np.max(n / (1.0 + t)))) - 1e-9
    high = float(np.log(len(n) ** (1.0 / p) / (1.0 + t.min() * spread))) + 1e-9
    log_size = float(np.log(norm(n / (1.0 + t * spread), p)))  # exact where all are equal
    w: Array | None = None
    last = np.inf
    for _ in range(_MOST_STEPS):
        x, w = _roots(n, t * np.exp((2.0 - p) * log_size), p, w)
        size = norm(x, p)
        off = float(np.log(size)) - log_size if size > 0 else -np.inf
        low, high = (log_size, high) if off > 0 else (low, log_size)
        proposal = 0.5 * (low + high)
        if size > 0:
            # d log x / d log(pull) is -held / (x + (p - 1) held).
            held = n - x
            share = (x / x.max()) ** p
            rate = float(share @ (held / (x + (p - 1.0) * held))) / float(share.sum())
            slope = 1.0 + (2.0 - p) * rate
            if abs(off) <= finest * slope:
                break
            newton = log_size + off / slope
            if abs(off) < 0.5 * last and low <= newton <= high:
                proposal = newton
        if proposal == log_size:
            break
        log_size, last = proposal, abs(off)
    return x


def _roots(n: Array, pull: Array, p: float, w: Array | None) -> tuple[Array, Array]:
    """Solve ``x + pull x^(p-1) = n``, from `w` of the last time; return x and the new w.

    Of the two terms the convex one is that of the higher power: for p < 2 it is x, as a power of
    ``w = x^(p-1)``, else that of ``w = x``.
    """
    if p < 2.0:
        power = 1.0 / (p - 1.0)
        bound = np.minimum(n / pull, n ** (p - 1.0))
        w, x = power_roots(n, 1.0, pull, power, bound if w is None else w, bound, 0.0)
        return x, w
    bound = np.minimum(n, (n / pull) ** (1.0 / (p - 1.0)))
    x, _ = power_roots(n, pull, 1.0, p - 1.0, bound if w is None else w, bound, 0.0)
    return x, x
