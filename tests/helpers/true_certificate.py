"""Primal and dual objective from kernels, weights and dual variables, in extended precision.

Written from the table of losses and regularizers, with nothing of the library's own arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.regularizers.fixed import Fixed

__all__ = ["Truth", "truth"]

LONG = np.longdouble
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Truth:
    """Objectives of a solution.

    Attributes
    ----------
    primal, dual : float
        Of the function with these weights and intercept, and of the dual variables.
    slack : float
        What float64 may hide in them: rounding of sums of n products (Higham: n units in the last
        place of the sum of their sizes), and of the terms themselves.
    outside : float
        How far the dual variables are outside their box or off their sum, beside their size.
    """

    primal: float
    dual: float
    slack: float
    outside: float

    @property
    def gap(self):
        """Relative duality gap."""
        return (self.primal - self.dual) / max(1.0, abs(self.primal))


def truth(Ks, y, C, loss, regularizer, d, alpha, intercept, witness=None):
    """Evaluate a solution on `Ks`; the dual is the better one of two if there is a witness."""
    Ks = [np.asarray(K, dtype=LONG) for K in Ks]
    y, C, d, alpha = (np.asarray(a, dtype=LONG) for a in (y, C, d, alpha))
    z = sum(w * (alpha @ K) for w, K in zip(d, Ks, strict=True))
    z = z + np.asarray(intercept, dtype=LONG)[:, None]
    primal, size = _primal(Ks, y, C, loss, regularizer, d, alpha, z)
    rounding = _EPS * len(Ks[0])
    error = rounding * sum(w * (abs(alpha) @ abs(K)) for w, K in zip(d, Ks, strict=True))
    error = error + _EPS * np.abs(z)
    ends = [_loss(loss, y, z + way * error, C) for way in (-1, 0, 1)]
    slack = np.sum(np.maximum(ends[0], ends[2]) - ends[1])
    more = _quad(Ks, alpha) + rounding * _quad([abs(K) for K in Ks], abs(alpha))
    slack += _omega(regularizer, d * np.sqrt(more)) - _omega(
        regularizer, d * np.sqrt(_quad(Ks, alpha))
    )
    dual, lower, outside = -np.inf, 0.0, 0.0
    for given in [alpha] if witness is None else [alpha, witness]:
        inside, off = _inside(loss, y, C, given)
        quad = _quad(Ks, inside)
        value, terms = _dual(loss, y, C, regularizer, inside, quad)
        if value > dual:
            above = quad + rounding * _quad([abs(K) for K in Ks], abs(inside))
            lower = value - _dual(loss, y, C, regularizer, inside, above)[0]
            dual, outside, size = value, off, size + terms
    return Truth(float(primal), float(dual), float(abs(slack) + lower + 64 * _EPS * size), outside)


def _primal(Ks, y, C, loss, regularizer, d, alpha, z):
    """Primal objective, and the sum of the sizes of its terms."""
    losses = _loss(loss, y, z, C).sum()
    price = _omega(regularizer, d * np.sqrt(_quad(Ks, alpha)))
    return losses + price, losses + abs(price)


def _dual(loss, y, C, regularizer, alpha, quad):
    """Dual objective of alpha scaled into the constraint, and the sizes of its terms."""
    scale = _scale(regularizer, quad)
    conjugates = _conjugate(loss, y, scale * alpha, C)
    penalty = _dual_price(regularizer, scale**2 * quad)
    return -np.sum(conjugates) - penalty, np.abs(conjugates).sum() + abs(penalty)


def _quad(Ks, alpha):
    return np.array([max(LONG(0), np.sum(alpha * (alpha @ K))) for K in Ks])


def _inside(loss, y, C, alpha):
    """The dual variables in their box, and how much that changed or is missing in their sum."""
    alpha = np.asarray(alpha, dtype=LONG)
    size = np.abs(alpha).sum(axis=1).max()
    if not size:
        return alpha, 0.0
    if loss.name == "squared":
        low, high = np.full_like(C, -np.inf), np.full_like(C, np.inf)
    elif loss.name == "epsilon_insensitive":
        low, high = -C, C
    else:
        top = np.full_like(C, np.inf) if loss.name == "squared_hinge" else C
        low, high = np.where(y > 0, LONG(0), -top), np.where(y > 0, top, LONG(0))
    inside = np.clip(alpha, low, high)
    off = max(np.abs(inside - alpha).max(), np.abs(inside.sum(axis=1)).max())
    return inside, float(off / size)


def _loss(loss, y, z, C):
    margin = 1 - y * z
    return (
        C
        * {
            "hinge": lambda: np.maximum(margin, 0),
            "squared_hinge": lambda: np.maximum(margin, 0) ** 2,
            "logistic": lambda: np.logaddexp(LONG(0), -y * z),
            "smooth_hinge": lambda: np.logaddexp(LONG(0), loss.sigma * margin) / LONG(loss.sigma),
            "squared": lambda: (y - z) ** 2,
            "epsilon_insensitive": lambda: np.maximum(np.abs(y - z) - LONG(loss.epsilon), 0),
        }[loss.name]()
    )


def _conjugate(loss, y, alpha, C):
    a = y * alpha
    return {
        "hinge": lambda: -a,
        "squared_hinge": lambda: -a + a**2 / (4 * C),
        "logistic": lambda: C * _negative_entropy(a / C),
        "smooth_hinge": lambda: -a + C / LONG(loss.sigma) * _negative_entropy(a / C),
        "squared": lambda: alpha**2 / (4 * C) - alpha * y,
        "epsilon_insensitive": lambda: LONG(loss.epsilon) * np.abs(alpha) - alpha * y,
    }[loss.name]()


def _negative_entropy(t):
    t = np.clip(t, LONG(0), LONG(1))
    return _x_log_x(t) + _x_log_x(1 - t)


def _x_log_x(t):
    return np.where(t > 0, t * np.log(np.where(t > 0, t, LONG(1))), LONG(0))


def _omega(regularizer, norms):
    """Its value at weights that are optimal as far as the library knows, so from above."""
    small = np.asarray(norms, dtype=np.float64)
    d = np.asarray(regularizer.weights_from_norms(small), dtype=LONG)
    used = norms > 0
    with np.errstate(divide="ignore"):
        return np.sum(norms[used] ** 2 / d[used]) / 2 + _price(regularizer, d)


def _price(regularizer, d):
    """r(d), with d on the simplex or in the ball exactly."""
    if isinstance(regularizer, Simplex | LpBall | Fixed):
        return LONG(0)
    s = LONG(regularizer.weight)
    if isinstance(regularizer, L1):
        return s * d.sum()
    if isinstance(regularizer, ElasticNet):
        rho = LONG(regularizer.l1_ratio)
        return s * rho * d.sum() + s * (1 - rho) / 2 * np.sum(d**2)
    if isinstance(regularizer, Entropy):
        return s * (np.log(LONG(len(d))) + _x_log_x(d).sum())
    if isinstance(regularizer, SquaredLp):
        return s / 2 * _norm(d, regularizer.p) ** 2
    groups = _groups(regularizer, len(d))
    return s * sum(_norm(d[own], regularizer.p) for own in groups)


def _dual_price(regularizer, q):
    """r*(q / 2); q keeps any constraint."""
    z = q / 2
    if isinstance(regularizer, L1 | BlockNorm):
        return LONG(0)
    if isinstance(regularizer, Simplex):
        return z.max()
    if isinstance(regularizer, Fixed):
        return np.asarray(regularizer.weights, dtype=LONG) @ z
    if isinstance(regularizer, LpBall):
        return _norm(z, _conjugate_exponent(regularizer.p))
    s = LONG(regularizer.weight)
    if isinstance(regularizer, ElasticNet):
        rho = LONG(regularizer.l1_ratio)
        return np.sum(np.maximum(z - s * rho, 0) ** 2) / (2 * s * (1 - rho))
    if isinstance(regularizer, Entropy):
        return z.max() + s * np.log(np.mean(np.exp((z - z.max()) / s)))
    return _norm(z, _conjugate_exponent(regularizer.p)) ** 2 / (2 * s)


def _scale(regularizer, q):
    """Largest t <= 1 for which t alpha keeps the constraint of the dual, if there is one."""
    if not isinstance(regularizer, L1 | BlockNorm):
        return LONG(1)
    p = regularizer.p if isinstance(regularizer, BlockNorm) else 1.0
    groups = _groups(regularizer, len(q))
    top = max(_norm(q[own] / 2, _conjugate_exponent(p)) for own in groups)
    return min(LONG(1), np.sqrt(LONG(regularizer.weight) / top)) if top > 0 else LONG(1)


def _groups(regularizer, m):
    if isinstance(regularizer, L1):
        return [slice(k, k + 1) for k in range(m)]
    return [slice(k, k + regularizer.groups) for k in range(0, m, regularizer.groups)]


def _conjugate_exponent(p):
    return np.inf if p == 1 else p / (p - 1)


def _norm(x, p):
    top = np.abs(x).max()
    if np.isinf(p) or not top:
        return top
    return top * np.sum((np.abs(x) / top) ** LONG(p)) ** (1 / LONG(p))
