"""Cutting planes, and the small programs over them: the masters and a step with curvature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import highspy
import numpy as np
from scipy.linalg import LinAlgError, lu_factor, lu_solve

from kernelweave.arrays import Array, Index
from kernelweave.compiled.smo import smo_steps
from kernelweave.problem import Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.certificate import Witness

_EPS = float(np.finfo(np.float64).eps)

# --- Cuts

# A cut that was of no use to this many masters in a row is dropped: the programs stay small, and a
# cut that is dropped too early comes back when its weights are tried again. With 4 in place of 20
# fits take as many single-kernel solves.
_PATIENCE = 20


class Cuts:
    r"""The rows of the semi-infinite program (SILP eq. 11 and Algorithm 1).

    Any feasible :math:`\alpha_j` bounds the best objective without r at all weights d,

    .. math:: J(d) \ge c_j - \tfrac12 \sum_k d_k q_k(\alpha_j), \qquad
              c_j = -\sum_i \ell^*(-\alpha_{ji}),

    in the paper's words :math:`-\sum_k d_k S_k(\alpha_j)` for weights of sum one. A mean of dual
    points with weights :math:`\lambda` is feasible too, and by convexity its bound is at least the
    mean of theirs: the multipliers of a master problem make a :class:`Witness`.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.constants = np.empty(0)  # c_j, the oldest cut first
        self.quads = np.empty((0, problem.m))  # q_k(alpha_j)
        self._alphas = np.empty((0, problem.n_tasks, problem.n))
        self._idle = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.constants)

    def add(self, alpha: Array, quad: Array) -> float:
        """Take the cut of a feasible alpha, `quad` being its q_k; returns its constant."""
        constant = -self._problem.dual_loss(alpha)
        self.constants = np.append(self.constants, constant)
        self.quads = np.concatenate([self.quads, quad[None]])
        self._alphas = np.concatenate([self._alphas, alpha[None]])
        self._idle = np.append(self._idle, 0)
        return constant

    def values(self, d: Array) -> Array:
        """Each cut's bound on J(d)."""
        return self.constants - 0.5 * (self.quads @ d)

    def used(self, multipliers: Array) -> Index:
        """Note which cuts a master used; returns the positions of those that may be dropped."""
        self._idle = np.where(multipliers > 0, 0, self._idle + 1)
        return np.flatnonzero(self._idle >= _PATIENCE)

    def drop(self, positions: Index) -> None:
        """Forget some cuts."""
        for name in ("constants", "quads", "_alphas", "_idle"):
            setattr(self, name, np.delete(getattr(self, name), positions, axis=0))

    def witness(self, multipliers: Array) -> Witness:
        """Mean of the dual points, with an upper bound on its q_k (both by convexity)."""
        used = np.flatnonzero(multipliers > 0)
        share = multipliers[used] / multipliers[used].sum()
        alpha = np.tensordot(share, self._alphas[used], axes=1)
        return Witness(alpha, share @ self.quads[used])


@dataclass(frozen=True)
class MasterSolution:
    """Weights that minimise r(d) + max_j cut_j(d), and the multipliers of the cuts, of sum one.

    `value` is the bound they prove on the cuts' minimum, computed here and not by the solver.
    """

    d: Array
    multipliers: Array
    value: float


# --- The master on a polyhedron

# A solution is believed if its two sides, computed here, agree to this part of their size: far
# above the tolerances that HiGHS is given, and far below what a step is judged by.
_AGREEMENT = 1e-6
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "random_seed": 0,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class CutLP:
    r"""Minimise :math:`s \sum_k d_k + \theta` with :math:`\theta \ge c_j - \frac12 q_j \cdot d`.

    This is SILP's linear program (Algorithm 1, with the opposite sign): on the simplex
    :math:`s = 0` and the weights sum to one, under l1 the sum is free up to `limit`. Rows enter
    one by one, and every solve starts from the basis of the one before. An answer of HiGHS counts
    only if its weights and multipliers prove each other; otherwise the program is solved cold.

    `price` is s, or None for weights that sum to one. Cuts are dropped here, not where they are.
    """

    def __init__(self, cuts: Cuts, price: float | None) -> None:
        self._cuts = cuts
        self._price = price
        self._highs: Any = None
        self._unit = max(1e-8 * (price or 0.0), 1e-300)
        self._rows = 0

    def drop(self, positions: Index) -> None:
        """Drop cuts, from the program and from where they came."""
        if not len(positions):
            return
        inside = positions[positions < self._rows]
        if len(inside):
            self._highs.deleteRows(len(inside), (inside + 1).astype(np.int32))
            self._rows -= len(inside)
        self._cuts.drop(positions)

    def solve(self, limit: float = 1.0) -> MasterSolution | None:
        """Return the optimum, or None if HiGHS has none that stands our check."""
        # Rows must not outgrow the scale in which HiGHS sees them.
        if self._highs is None or not 1e-4 * self._unit <= self._size() <= 1e4 * self._unit:
            self._build()
        if (answer := self._answer(limit)) is None:
            self._build()
            answer = self._answer(limit)
        return answer

    def _size(self) -> float:
        """Size of the latest cut; one of nearly nothing, from alpha = 0, tells no scale."""
        cuts = self._cuts
        latest = max(abs(float(cuts.constants[-1])), 0.5 * float(cuts.quads[-1].max()))
        return latest if latest > 1e-12 * self._unit else self._unit

    def _build(self) -> None:
        """Start from nothing: no rows but that on the sum of the weights, no basis."""
        m, infinite = self._cuts.quads.shape[1], highspy.kHighsInf
        self._highs, self._rows, self._unit = highspy.Highs(), 0, self._size()
        for option, value in _OPTIONS.items():
            self._highs.setOptionValue(option, value)
        lower = np.append(np.zeros(m), -infinite)
        self._highs.addVars(m + 1, lower, np.full(m + 1, infinite))
        cost = np.append(np.full(m, (self._price or 0.0) / self._unit), 1.0)
        self._highs.changeColsCost(m + 1, np.arange(m + 1, dtype=np.int32), cost)
        self._highs.addRow(-infinite, infinite, m, np.arange(m, dtype=np.int32), np.ones(m))

    def _run(self, limit: float) -> tuple[bool, Array, Array]:
        """Let HiGHS solve: whether it says it did, the columns, and the multipliers of the rows."""
        cuts, highs, m = self._cuts, self._highs, self._cuts.quads.shape[1]
        highs.changeRowBounds(0, limit if self._price is None else -highspy.kHighsInf, limit)
        for j in range(self._rows, len(cuts)):
            row = np.append(0.5 * cuts.quads[j] / self._unit, 1.0)
            indices = np.arange(m + 1, dtype=np.int32)
            highs.addRow(cuts.constants[j] / self._unit, highspy.kHighsInf, m + 1, indices, row)
        self._rows = len(cuts)
        if highs.run() == highspy.HighsStatus.kError:
            # The threads of HiGHS are the process's. Where another user of it has set their number
            # it refuses to run on one of them, while it would run on those there are.
            highs.setOptionValue("threads", 0)
            highs.run()
        solution = highs.getSolution()
        optimal = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return optimal, np.array(solution.col_value), np.array(solution.row_dual)

    def _answer(self, limit: float) -> MasterSolution | None:
        """Return what HiGHS finds, if the two sides of it prove each other."""
        optimal, columns, duals = self._run(limit)
        cuts, m = self._cuts, self._cuts.quads.shape[1]
        if not optimal or len(columns) != m + 1 or len(duals) != len(cuts) + 1:
            return None
        d, multipliers = np.maximum(columns[:m], 0.0), np.maximum(duals[1:], 0.0)
        total = multipliers.sum()
        if not (np.isfinite(d).all() and np.isfinite(total) and total > 0):
            return None
        multipliers = multipliers / total
        if self._price is None:
            if not d.sum() > 0:
                return None
            d = d * (limit / d.sum())
        price = self._price or 0.0
        above = price * float(d.sum()) + float(cuts.values(d).max())
        most = float(np.max(0.5 * (multipliers @ cuts.quads) - price))
        reach = most if self._price is None else max(most, 0.0)
        below = float(multipliers @ cuts.constants) - limit * reach
        if not abs(above - below) <= _AGREEMENT * max(self._unit, abs(above)):
            return None
        return MasterSolution(d, multipliers, below)


# --- The master under other regularizers

# Newton's steps double the digits: some ten of them suffice.
_MOST_STEPS = 50
# Change of one multiplier, of a sum of one, by which the curvature is taken: the root of what
# float64 resolves, which balances rounding against the error of a difference.
_DIFFERENCE = 1.5e-8
# The master is solved to this part of what is between it and the best objective so far.
_ACCURACY = 0.01

# The minimiser and the minimum over d of r(d) - 1/2 mix . d (and a proximal term, if any).
Response = Callable[[Array], tuple[Array, float]]


def solve_dual(
    cuts: Cuts, regularizer: Regularizer, start: Array, upper: float
) -> MasterSolution | None:
    r"""Minimise :math:`r(d) + \max_j (c_j - \frac12 q_j \cdot d)` by its dual.

    For a strictly convex r (the lp ball, the elastic net, ...) the linear program of SILP becomes

    .. math:: \max_{\lambda \ge 0,\, \sum \lambda = 1} \; \lambda \cdot c
              - r^*\Big(\tfrac12 \sum_j \lambda_j q_j\Big),

    smooth, with one variable for each cut. The weights follow in closed form: they attain
    :math:`r^*` there (:meth:`Regularizer.dual_weights`).

    From the multipliers `start`, to a value 99 % of the way to `upper`, which the optimum is known
    to be below. None if the regularizer cannot tell the weights.
    """
    if regularizer.dual_weights(cuts.quads[-1]) is None:
        return None

    def response(mix: Array) -> tuple[Array, float]:
        return np.asarray(regularizer.dual_weights(mix)), -regularizer.dual_penalty(mix)

    return _climb(cuts, response, start, upper)


def solve_proximal(
    cuts: Cuts, regularizer: Regularizer, centre: Array, step: float, start: Array, upper: float
) -> MasterSolution:
    r"""Minimise :math:`r(d) + \max_j (c_j - \frac12 q_j \cdot d) + \frac1{2t} |d - \hat d|^2`.

    The step of a proximal bundle method (Bonnans et al. 2006, Numerical Optimization, section
    10.3), for any r with a prox: the weights that belong to multipliers are
    :math:`\mathrm{prox}_{t r}(\hat d + \frac t2 \sum_j \lambda_j q_j)`.
    """

    def response(mix: Array) -> tuple[Array, float]:
        d = regularizer.prox(centre + 0.5 * step * mix, step)
        away = float(np.sum((d - centre) ** 2)) / (2.0 * step)
        return d, float(regularizer.value(d)) + away - 0.5 * float(mix @ d)

    return _climb(cuts, response, start, upper)


def _climb(cuts: Cuts, response: Response, start: Array, upper: float) -> MasterSolution:
    """Climb on the simplex of multipliers by Newton's method, curvature from differences."""

    def at(multipliers: Array) -> tuple[MasterSolution, Array]:
        d, value = response(multipliers @ cuts.quads)
        found = MasterSolution(d, multipliers, float(multipliers @ cuts.constants) + value)
        return found, cuts.values(d)

    def slope(here: Array, way: Array, t: float) -> float:
        return -float(at(here + t * way)[1] @ way)

    # A mean with a poor cut can be far below a single good one.
    firsts = [at(multipliers) for multipliers in [start, *np.eye(len(cuts))]]
    best, heights = max(firsts, key=lambda first: first[0].value)
    for _ in range(_MOST_STEPS):
        # The weights are this far from the bound of the multipliers.
        left = float(heights.max() - best.multipliers @ heights)
        if not left > max(_ACCURACY * (upper - best.value), _EPS * abs(best.value)):
            break
        moved = [at(best.multipliers + row)[1] for row in _DIFFERENCE * np.eye(len(cuts))]
        B = (heights - np.array(moved)) / _DIFFERENCE
        hessian, here = 0.5 * (B + B.T), best.multipliers
        way = minimise_model(hessian, -heights, here, 0.01 * left) - here
        first = -float(heights @ way)
        if not first < 0:
            break
        t = zero_of_slope(partial(slope, here, way), first)
        found, seen = at(here + t * way)
        # A short step to a steep cut may gain little of what is left: only rounding ends the climb.
        if not found.value - best.value > _EPS * abs(best.value):
            break
        best, heights = found, seen
    total = float(best.multipliers.sum())
    return MasterSolution(best.d, best.multipliers / total, best.value)


# --- Steps with curvature

# Added to a Hessian that may be singular, far below what the model is wrong by.
_RIDGE = 1e-10
# Interior-point methods need 10 to 20 iterations whatever the size (Wright 1997, chapter 1).
_MOST_ITERATIONS = 60
# Complementarity at which a program scaled to slopes of one counts as solved: a factor of ten above
# what its own sums, of some hundred terms, can resolve.
_SOLVED = 1e-13
# Part of the way to the nearest bound that one step may go (Wright 1997, section 10.4).
_INSIDE = 0.995


def minimise_model(
    hessian: Array, gradient: Array, d: Array, accuracy: float, most: float | None = None
) -> Array:
    """Minimise g'(x - d) + 1/2 (x - d)'H(x - d) over weights x >= 0, by SMO steps from d.

    They keep the sum of d, or have any sum up to `most`. `accuracy` is how far above the minimum
    the model may end.
    """
    H, x = hessian.copy(), d.copy()
    H[np.diag_indices_from(H)] += _RIDGE * max(H.trace() / len(H), 1e-300)
    slope = H @ d - gradient
    if most is not None:
        # One more variable takes up what is left of the sum.
        H, slope = np.pad(H, ((0, 1), (0, 1))), np.append(slope, 0.0)
        x = np.append(d, most - d.sum())
    total = float(x.sum())
    none, all_of_it = np.zeros_like(x), np.full_like(x, total)
    tol, steps = accuracy / total, 100 * len(x) + 10_000
    smo_steps(H, H.diagonal().copy(), H @ x, slope, slope, none, all_of_it, x, tol, steps, 0)
    return x[: len(d)]


def nearest_below(
    constants: Array, slopes: Array, centre: Array, metric: Array, limit: float, exact_sum: bool
) -> tuple[Array, Array] | None:
    r"""Minimise :math:`\max_j (c_j + g_j \cdot d) + \frac12 (d - \hat d)' H (d - \hat d)`.

    Over weights d >= 0 that sum to `limit` (or, without `exact_sum`, to at most that). Returns
    (weights, multipliers of the cuts), or None where the numbers are not finite.

    With a level :math:`\theta`, slacks :math:`s_j = \theta - c_j - g_j \cdot d` and multipliers
    :math:`\lambda_j`, :math:`z_k`, :math:`\nu` the optimality conditions are

    .. math:: H (d - \hat d) + \sum_j \lambda_j g_j - z - \nu 1 = 0, \quad
              \sum_j \lambda_j = 1, \quad \lambda_j s_j = 0, \quad z_k d_k = 0.
    """
    size = len(centre)
    if not exact_sum:
        # One more weight takes up what is left of the limit.
        slopes = np.pad(slopes, ((0, 0), (0, 1)))
        metric = np.pad(metric, ((0, 1), (0, 1)))
        centre = np.append(centre, limit - centre.sum())
    # In units in which weights sum to one and slopes, beside what they have in common, are one.
    common = 0.5 * (slopes.max(axis=0) + slopes.min(axis=0)) if exact_sum else np.zeros(1)
    shift = float(common.mean())
    unit = limit * float(np.abs(slopes - shift).max())
    unit = max(unit, float(np.ptp(constants)), 1e-300)
    c, G = (constants - constants.max()) / unit, (slopes - shift) * (limit / unit)
    H, (J, m) = metric * (limit / unit * limit), slopes.shape
    # The conditions are A v - (z, s, 0, 0) = right with v = (d, multipliers, level, price).
    A = np.zeros((m + J + 2, m + J + 2))
    A[:m, :m], A[:m, m:-2], A[m:-2, :m] = H, G.T, -G
    A[m:-2, -2] = A[-2, m:-2] = A[-1, :m] = 1.0
    A[:m, -1] = -1.0
    x, y = np.full(m, 1.0 / m), np.full(J, 1.0 / J)
    heights = c + G @ x
    level = float(heights.max()) + 1.0
    with np.errstate(all="ignore"):
        right = np.concatenate([H @ (centre / limit), c, [1.0, 1.0]])
        first = np.concatenate([x, y, [level, 0.0]]), np.concatenate([np.ones(m), level - heights])
        found = _interior_point(A, right, *first)
    if found is None:
        return None
    # A weight smaller than the multiplier that presses it to zero is zero.
    both = np.where(found[0] > found[1], found[0], 0.0)
    weights, multipliers = both[:m], both[m:]
    if not (weights.sum() > 0 and multipliers.sum() > 0):
        return None
    weights *= limit / weights.sum()
    return weights[:size], multipliers / multipliers.sum()


def _interior_point(A: Array, right: Array, v: Array, w: Array) -> tuple[Array, Array] | None:
    """Find v and w with A v - w = right, v >= 0 and w >= 0, and v w = 0 entry by entry.

    The last entries of v, beyond the length of w, are free, and w is zero there. By Mehrotra's
    predictor-corrector method from v, w > 0 (Wright 1997, Primal-Dual Interior-Point Methods,
    chapter 10). Returns those entries of v that are not free with w, at the smallest error met.
    """
    best, least = None, np.inf
    size = len(w)

    def padded(part: Array) -> Array:
        return np.append(part, np.zeros(len(v) - size))

    for _ in range(_MOST_ITERATIONS):
        u, residual = v[:size], A @ v - padded(w) - right
        mu = float(u @ w) / size
        error = max(mu, float(np.abs(residual).max()))
        if not np.isfinite(error):
            break
        if error < least:
            best, least = (u, w), error
        if error <= _SOLVED:
            break
        try:
            factor = lu_factor(A + np.diag(padded(w / u)), overwrite_a=True, check_finite=False)
        except (LinAlgError, ValueError):
            break
        # Newton's step to products v w of zero; then to those it will have reached, all equal, with
        # what it leaves out of them corrected.
        change = -u * w
        for corrected in (False, True):
            dv = lu_solve(factor, padded(change / u) - residual, check_finite=False)
            du = dv[:size]
            dw = (change - w * du) / u
            if not corrected:
                far = _room(u, du, w, dw, most=1.0)
                ahead = float((u + far * du) @ (w + far * dw)) / size
                aim = mu * min(1.0, max(ahead, 0.0) / mu) ** 3 if mu > 0 else 0.0
                change = aim - u * w - du * dw
        length = min(1.0, _INSIDE * _room(u, du, w, dw, most=2.0))
        v, w = v + length * dv, w + length * dw
    return best


def _room(u: Array, du: Array, w: Array, dw: Array, most: float) -> float:
    """Longest step, up to `most`, that leaves all numbers at zero or above."""
    for value, change in ((u, du), (w, dw)):
        falling = change < 0
        if falling.any():
            most = min(most, float(np.min(-value[falling] / change[falling])))
    return most
