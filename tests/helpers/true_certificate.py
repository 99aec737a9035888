"""Primal and dual objective from kernels, weights and dual variables, in extended precision.

Written from the table of losses and regularizers, with nothing of the library's own arithmetic:
of a regularizer only its kind and its public settings are read. On x86 processors extended
precision has 64 bits of mantissa; where it is ordinary double precision the numbers are as exact
as the library's own.
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

__all__ = [
    "LONG",
    "Truth",
    "constant_objective",
    "dual_objective",
    "floor_of",
    "norms_of",
    "primal_objective",
    "relative_gap",
    "truth",
]

LONG = np.longdouble
_EPS = float(np.finfo(np.float64).eps)


def relative_gap(primal, dual, floor):
    """Return (P - D) / max(|P|, |D|), or zero where both are below the floor."""
    size = max(abs(primal), abs(dual))
    return (primal - dual) / size if size > floor else 0.0


def floor_of(Ks, y, C, loss):
    """Objective below which float64 tells nothing from zero.

    1e-12 of that of the best constant function (of one class: of a single sample), or what targets
    cost that are off by four units in the last place.
    """
    if loss.name == "one_class":
        return 0.5e-12 * max(float(np.mean(np.diagonal(K))) for K in Ks)
    floor = 1e-12 * constant_objective(y, C, loss)
    if loss.task == "regression":
        y, C = np.asarray(y, dtype=LONG), np.asarray(C, dtype=LONG)
        floor = max(floor, float(np.sum(_loss(loss, y, y * (1 + 4 * _EPS), C))))
    return floor


@dataclass(frozen=True)
class Truth:
    """Objectives of a solution.

    Attributes
    ----------
    primal, dual : float
        Of the function with these weights and intercept, and of the dual variables.
    floor : float
        Objective below which float64 tells nothing from zero.
    slack : float
        What float64 may hide in them: rounding of sums of n products (Higham: n units in the last
        place of the sum of their sizes), and of the terms themselves.
    outside : float
        How far the dual variables are outside their box or off their sum, beside their size.
    """

    primal: float
    dual: float
    floor: float
    slack: float
    outside: float

    @property
    def gap(self):
        """Relative duality gap."""
        return relative_gap(self.primal, self.dual, self.floor)


def truth(Ks, y, C, loss, regularizer, d, alpha, intercept, witness=None):
    """Evaluate a solution on `Ks`; the dual is the better one of two if there is a witness."""
    Ks = [np.asarray(K, dtype=LONG) for K in Ks]
    y, C, d, alpha = (np.asarray(a, dtype=LONG) for a in (y, C, d, alpha))
    intercept = np.asarray(intercept, dtype=LONG)
    used = [(w, K) for w, K in zip(d, Ks, strict=True) if w]
    z = sum((w * (alpha @ K) for w, K in used), np.zeros_like(y)) + intercept[:, None]
    quad = _quad(Ks, alpha)
    losses = _loss(loss, y, z, C).sum()
    price = _omega(regularizer, d * np.sqrt(quad))
    shift = _total(loss) * intercept.sum()
    rounding = _EPS * len(Ks[0])
    error = sum((rounding * w * (abs(alpha) @ abs(K)) for w, K in used), _EPS * np.abs(z))
    ends = [_loss(loss, y, z + way * error, C) for way in (-1, 0, 1)]
    slack = np.sum(np.maximum(ends[0], ends[2]) - ends[1])
    more = quad + rounding * _quad([abs(K) for K in Ks], abs(alpha))
    slack += _omega(regularizer, d * np.sqrt(more)) - price
    size = losses + abs(price) + abs(shift)
    dual, lower, outside = -np.inf, 0.0, 0.0
    for given in [alpha] if witness is None else [alpha, witness]:
        inside, off = _inside(loss, y, C, given)
        quad = _quad(Ks, inside)
        value, terms = _dual(loss, y, C, regularizer, inside, quad)
        if value > dual:
            above = quad + rounding * _quad([abs(K) for K in Ks], abs(inside))
            lower = value - _dual(loss, y, C, regularizer, inside, above)[0]
            dual, outside, size = value, off, size + terms
    return Truth(
        float(losses + price + shift),
        float(dual),
        floor_of(Ks, y, C, loss),
        float(abs(slack) + lower + 64 * _EPS * size),
        outside,
    )


def norms_of(Ks, d, alpha):
    """Norms of the components d_k K_k alpha, over all tasks."""
    Ks = [np.asarray(K, dtype=LONG) for K in Ks]
    return np.asarray(d, dtype=LONG) * np.sqrt(_quad(Ks, np.asarray(alpha, dtype=LONG)))


def primal_objective(y, C, loss, regularizer, norms, decisions, intercept):
    """Objective of a function by the norms of its components and its decision values."""
    y, C, norms, z, b = (np.asarray(a, LONG) for a in (y, C, norms, decisions, intercept))
    return float(_loss(loss, y, z, C).sum() + _omega(regularizer, norms) + _total(loss) * b.sum())


def dual_objective(Ks, y, C, loss, regularizer, alpha):
    """Lower bound on the optimum: any alpha, moved into its box and scaled into the constraint."""
    Ks = [np.asarray(K, dtype=LONG) for K in Ks]
    y, C = np.asarray(y, dtype=LONG), np.asarray(C, dtype=LONG)
    inside, _ = _inside(loss, y, C, alpha)
    return float(_dual(loss, y, C, regularizer, inside, _quad(Ks, inside))[0])


def constant_objective(y, C, loss):
    """Objective of the best constant function; weights that are not needed cost nothing."""
    if loss.name == "one_class":
        return 0.0
    y, C = np.asarray(y, dtype=LONG), np.asarray(C, dtype=LONG)
    return float(sum(_best_constant(loss, *task) for task in zip(y, C, strict=True)))


def _best_constant(loss, y, C):
    """Smallest sum of losses of a constant, by trisection: each loss is convex."""
    reach = 60 + 2 * np.abs(y).max()
    low, high = -reach, reach
    for _ in range(220):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        if _loss(loss, y, left, C).sum() <= _loss(loss, y, right, C).sum():
            high = right
        else:
            low = left
    return _loss(loss, y, (low + high) / 2, C).sum()


def _dual(loss, y, C, regularizer, alpha, quad):
    """Dual objective of alpha scaled into the constraint, and the sizes of its terms."""
    scale = _scale(regularizer, quad)
    conjugates = _conjugate(loss, y, scale * alpha, C)
    penalty = _dual_price(regularizer, scale**2 * quad)
    return -np.sum(conjugates) - penalty, np.abs(conjugates).sum() + abs(penalty)


def _quad(Ks, alpha):
    used = np.flatnonzero(alpha.any(axis=0))
    few, square = alpha[:, used], np.ix_(used, used)
    return np.array([max(LONG(0), np.sum(few * (few @ K[square]))) for K in Ks])


def _total(loss):
    """The sum that the dual variables of one task have."""
    return LONG(1 if loss.name == "one_class" else 0)


def _inside(loss, y, C, alpha):
    """The dual variables in their box with the right sum, and how far they were from that."""
    alpha = np.asarray(alpha, dtype=LONG)
    size = np.abs(alpha).sum(axis=1).max()
    low, high = _box(loss, y, C)
    inside = np.clip(alpha, low, high)
    off = max(np.abs(inside - alpha).max(), np.abs(inside.sum(axis=1) - _total(loss)).max())
    rows = [_centred(*task, _total(loss)) for task in zip(inside, low, high, strict=True)]
    return np.array(rows), float(off / size) if size else 0.0


def _box(loss, y, C):
    if loss.name == "squared":
        return np.full_like(C, -np.inf), np.full_like(C, np.inf)
    if loss.name == "epsilon_insensitive":
        return -C, C
    if loss.name == "one_class":
        return np.zeros_like(C), C
    top = np.full_like(C, np.inf) if loss.name == "squared_hinge" else C
    return np.where(y > 0, LONG(0), -top), np.where(y > 0, top, LONG(0))


def _centred(alpha, low, high, total):
    """Shift alpha inside its box to the right sum, by bisection, and the rest to one entry.

    What is only rounding goes to the largest entry with room for it: there it is no more than its
    last digits, and a sample of tiny weight would pay for it by orders of magnitude.
    """
    missing = total - alpha.sum()
    if missing == 0:
        return alpha
    room = high - alpha if missing > 0 else alpha - low
    if abs(missing) <= 64 * _EPS * np.abs(alpha).sum() and room.max() >= abs(missing):
        alpha = alpha.copy()
        alpha[np.argmax(np.where(room >= abs(missing), np.abs(alpha), -1))] += missing
        return alpha
    reach = np.abs(alpha).max() + abs(total) + np.where(np.isfinite(high), high, 0).max()
    least, most = -2 * reach, 2 * reach
    for _ in range(160):
        middle = (least + most) / 2
        if np.clip(alpha - middle, low, high).sum() > total:
            least = middle
        else:
            most = middle
    alpha = np.clip(alpha - most, low, high)
    missing = total - alpha.sum()
    room = np.minimum(alpha - low, high - alpha)
    alpha[np.argmax(room)] += missing
    return alpha


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
            "one_class": lambda: np.maximum(-z, 0),
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
        "one_class": lambda: LONG(0) * alpha,
    }[loss.name]()


def _negative_entropy(t):
    # Rounding 1 - t would lose the digits of a small t, and C times that is seen when C is large.
    t = np.clip(t, LONG(0), LONG(1))
    rest = np.where(t < 1, (1 - t) * np.log1p(-np.where(t < 1, t, LONG(0))), LONG(0))
    return _x_log_x(t) + rest


def _x_log_x(t):
    return np.where(t > 0, t * np.log(np.where(t > 0, t, LONG(1))), LONG(0))


def _omega(regularizer, norms):
    """Price of a function with these norms, with the weights that make it lowest."""
    if isinstance(regularizer, Fixed):
        d = np.asarray(regularizer.weights, dtype=LONG)
        return np.sum(norms[d > 0] ** 2 / d[d > 0]) / 2
    if isinstance(regularizer, Simplex):
        return norms.sum() ** 2 / 2
    if isinstance(regularizer, LpBall):
        return _mixed_norm(norms, regularizer.p) ** 2 / 2
    s = LONG(regularizer.weight)
    if isinstance(regularizer, L1):
        return np.sqrt(2 * s) * norms.sum()
    if isinstance(regularizer, BlockNorm):
        groups = _groups(regularizer, len(norms))
        return np.sqrt(2 * s) * sum(_mixed_norm(norms[own], regularizer.p) for own in groups)
    if isinstance(regularizer, SquaredLp):
        half = _mixed_norm(norms, regularizer.p) ** 2 / 2
        return LONG(3) / 2 * s ** (LONG(1) / 3) * half ** (LONG(2) / 3)
    if isinstance(regularizer, ElasticNet):
        return _elastic_net(
            norms, s * LONG(regularizer.l1_ratio), s * LONG(1 - regularizer.l1_ratio)
        )
    return _entropy(norms, s)


def _elastic_net(norms, a, b):
    """Sum of min over d of v^2 / (2 d) + a d + b d^2 / 2, where a + b d = v^2 / (2 d^2)."""
    v = norms[norms > 0]
    low, high = np.zeros_like(v), (v**2 / (2 * b)) ** (LONG(1) / 3)
    for _ in range(120):
        d = (low + high) / 2
        too_large = 2 * d**2 * (a + b * d) > v**2
        low, high = np.where(too_large, low, d), np.where(too_large, d, high)
    return np.sum(v**2 / (2 * high) + a * high + b / 2 * high**2)


def _entropy(norms, s):
    """Min over the simplex of sum v^2 / (2 d) + s d log(m d), by its stationary point.

    There s log(d) - v^2 / (2 d^2) is the same for all kernels, at the level at which the weights
    sum to one. With weights exp(-u) that is -s u - v^2 exp(2 u) / 2, which falls with u.
    """
    m = len(norms)
    half = norms**2 / 2

    def weights(level):
        low, high = np.full(m, LONG(-2)), np.full(m, LONG(5000))
        for _ in range(90):
            u = (low + high) / 2
            below = -s * u - half * np.exp(2 * u) < level
            low, high = np.where(below, low, u), np.where(below, u, high)
        return np.exp(-high)

    with np.errstate(over="ignore"):
        # All weights at 1 / m or below, and at 1 or above.
        least, most = -s * np.log(LONG(m)) - m**2 * half.max() - s, LONG(0)
        for _ in range(130):
            level = (least + most) / 2
            if weights(level).sum() > 1:
                most = level
            else:
                least = level
        d = weights(least)
    d = d / d.sum()
    used = norms > 0
    return np.sum(half[used] / d[used]) + s * np.mean(_above_tangent(m * d))


def _above_tangent(x):
    """x log(x) - x + 1, also to many digits where x is nearly 1."""
    e = x - 1
    series = e**2 * (LONG(1) / 2 - e / 6 + e**2 / 12 - e**3 / 20 + e**4 / 30)
    return np.where(np.abs(e) < 1e-4, series, _x_log_x(x) - e)


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
        return z.max() + s * np.log1p(np.mean(np.expm1((z - z.max()) / s)))
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
    return np.inf if p == 1 else LONG(p) / (LONG(p) - 1)


def _mixed_norm(norms, p):
    """The norm of exponent 2 p / (p + 1) that weights in a ball of exponent p lead to."""
    return _norm(norms, 2 * LONG(p) / (LONG(p) + 1))


def _norm(x, p):
    top = np.abs(x).max()
    if np.isinf(p) or not top:
        return top
    return top * np.sum((np.abs(x) / top) ** LONG(p)) ** (1 / LONG(p))
