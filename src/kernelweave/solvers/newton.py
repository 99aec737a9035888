r"""The single-kernel problem for smooth losses, by Newton's method in the primal.

.. math::

    \min_{\alpha, b} \; P(\alpha, b) = \sum_i \ell(y_i, (K\alpha)_i + b)
    + \tfrac12 \alpha^\top K \alpha + \mathrm{alpha\_sum}\, b .

At the solution :math:`\alpha = -\ell'(K\alpha + b)`, which is the dual solution too. b is kept at
its best for the current :math:`K\alpha`; then the dual point :math:`-\ell'` has the right sum and
is :math:`\tfrac12 \rho^\top K \rho`, :math:`\rho = \alpha + \ell'`, away from the primal value.

At :math:`(\alpha, b)`, with :math:`g = \ell'(K\alpha + b)`, :math:`W = \ell''`, :math:`S = W^{1/2}`
and the residual :math:`\rho = \alpha + g`, the Newton step is

.. math::

    \delta = -\rho - S \eta, \qquad (I + S K S)\, \eta = S (\Delta b\, 1 - K \rho), \qquad
    S1 \cdot \eta = 0 .

The last equation keeps the sum of alpha (b is at its best, so the gradient sums to its target).
There is no division by S: rows without curvature drop out, and errors shrink with the residual.
The constraint also lets K be centred, which removes its large constant part from the system.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve

from kernelweave.arrays import Array, Index
from kernelweave.combine.base import Gram
from kernelweave.deadline import NEVER, Deadline
from kernelweave.errors import InvalidInputError
from kernelweave.linear_systems import (
    LinAlgError,
    Solve,
    conjugate_gradients,
    diagonal,
    jittered_cholesky,
    pivoted_cholesky,
    with_low_rank,
)
from kernelweave.losses import Loss
from kernelweave.problem import lost_in_rounding
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.certificate import centre

# Up to this many rows a matrix is factorised, if need be: n^3 / 3 operations are a second a step,
# and the matrix, its part and its factor take 72 MB each.
MOST_FACTORISED = 3000
# Up to this many straight away: of 60, 300 and 1,500 rows a factor takes as long as 2, 25 and 60
# iterations. Beyond, conjugate gradients are tried first, at the price of one more factorisation at
# most.
_CG_FROM = 300
# Rank of a pivoted factor, and the iterations under the diagonal that call for it. Each of those
# took a product with all n rows of K, the factor takes this many rows; where it serves, from 3,000
# rows on, to apply it takes 7% of such a product.
_RANK = 100
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """Feasible dual variables, ``fitted = K @ alpha`` and the best b for that.

    `violation` is the relative duality gap of exactly these numbers, (P - D) / abs(P).
    """

    alpha: Array
    fitted: Array
    intercept: float
    violation: float
    n_steps: int
    converged: bool


@dataclass(frozen=True, eq=False)
class _Point:
    """Where we are, or a step from there; `fitted` is K alpha, and b at its best for a point."""

    alpha: Array
    fitted: Array
    b: float
    primal: float = np.nan


class _Problem:
    """One smooth loss on one kernel."""

    def __init__(self, loss: Loss, y: Array, C: Array, gram: Gram, deadline: Deadline) -> None:
        self.loss, self.y, self.gram = loss, np.asarray(y, dtype=np.float64), gram
        self.deadline = deadline
        self.C = np.broadcast_to(np.asarray(C, dtype=np.float64), self.y.shape)
        self.matrix = gram.dense()
        self.diag = np.maximum(gram.diagonal(), 0.0)
        self.domain = loss.domain(self.y, self.C)
        # Gaps are relative to the objective; where that vanishes, rounding does not.
        zero = np.zeros(self.y.shape)
        self.constant = self.point(zero, zero.copy(), 0.0)
        self.floor = lost_in_rounding(loss, self.y, self.C, self.constant.primal)

    def product(self, idx: Index, v: Array) -> Array:
        """``K[:, idx] @ v``."""
        matrix = self.matrix
        if matrix is not None and matrix.dtype == np.float64 and len(idx) == self.gram.n:
            return matrix @ v
        return self.gram.product(idx, v) if len(idx) else np.zeros(self.gram.n)

    def full_product(self, v: Array) -> Array:
        idx = np.flatnonzero(v)
        return self.product(idx, v[idx])

    def point(self, alpha: Array, fitted: Array, b: float) -> _Point:
        """The point at alpha, with the best b."""
        b = self.loss.best_intercept(self.y, fitted, self.C, b)
        losses = self.loss.value(self.y, fitted + b, self.C)
        primal = losses.sum() + 0.5 * (alpha @ fitted) + self.loss.alpha_sum * b
        return _Point(alpha, fitted, b, float(primal))

    def rough_gap(self, here: _Point) -> float:
        """Relative gap of alpha moved into its box, without the product that this would need."""
        alpha = np.clip(here.alpha, *self.domain)
        loss = here.primal - 0.5 * float(here.alpha @ here.fitted)
        conjugate = float(self.loss.conjugate(self.y, alpha, self.C).sum())
        gap = loss + conjugate + float(alpha @ here.fitted)
        return gap / max(abs(here.primal), self.floor)

    def certified(self, alpha: Array, fitted: Array, b: float) -> NewtonResult:
        """Make alpha feasible and measure the duality gap there."""
        feasible = centre(alpha, *self.domain, self.loss.alpha_sum)
        change = feasible - alpha
        # Changes of rounding size change K alpha by as little: not worth a product.
        if np.abs(change).max(initial=0.0) > 1e-15 * np.abs(alpha).max(initial=0.0):
            fitted = fitted + self.full_product(change)
        there = self.point(feasible, fitted, b)
        conjugate = float(self.loss.conjugate(self.y, feasible, self.C).sum())
        gap = there.primal + conjugate + 0.5 * float(feasible @ fitted)
        size = abs(there.primal)
        violation = max(gap, 0.0) / size if size > self.floor else 0.0
        return NewtonResult(feasible, fitted, there.b, violation, 0, False)


def solve_smooth(
    loss: Loss,
    y: Array,
    C: Array,
    gram: Gram,
    *,
    tol: float,
    alpha: Array | None = None,
    fitted: Array | None = None,
    intercept: float = 0.0,
    max_iter: int = 200,
    deadline: Deadline = NEVER,
) -> NewtonResult:
    """Solve the single-kernel problem of a smooth loss, by Newton's method with a line search.

    The linear systems are solved by conjugate gradients on products with K, or by Cholesky where
    the matrix is there and small, or not too large (3,000 rows with curvature, fewer where memory
    is short) and conjugate gradients are slow. `tol` is the relative duality gap (P - D) / abs(P):
    relative to P alone, so that small C means the same precision as large C. `alpha`, `fitted`
    (``K @ alpha``) and `intercept` are a warm start; if `max_iter` steps were not enough from
    there, as many are taken from zero. When the deadline passes, what there is is returned.
    """
    if not loss.smooth:
        raise TypeError(f"Newton's method needs a smooth loss; {loss!r} is not.")
    # A loss that grows like exp may overflow at a bad warm start or too long a step: both are
    # turned down, for their objective is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        problem = _Problem(loss, y, C, gram, deadline)
        here = cold = problem.constant
        if alpha is not None and np.any(alpha):
            alpha = np.asarray(alpha, dtype=np.float64)
            fitted = problem.full_product(alpha) if fitted is None else fitted
            warm = problem.point(alpha, fitted, intercept)
            # After a large change of K zero can be better.
            here = warm if warm.primal <= cold.primal else cold
        found = _iterate(problem, here, tol, max_iter)
        if found.violation <= tol or found.n_steps < max_iter or here is cold:
            return found
        # From inside the margin of a steep loss with corners, samples enter and leave their corners
        # one at a time and nothing is gained. From zero they only leave.
        again = _iterate(problem, cold, tol, max_iter)
        best = again if again.violation < found.violation else found
        return replace(best, n_steps=found.n_steps + again.n_steps)


def _iterate(problem: _Problem, here: _Point, tol: float, max_iter: int) -> NewtonResult:
    """Newton steps from `here` until the certificate is good enough, or no better."""
    steps = _Steps(problem, tol)
    step, last, fresh, stalls = 0, False, False, 0
    best: NewtonResult | None = None
    while True:
        if problem.deadline.passed():
            # A product can take as long as all that a user was ready to wait.
            found = best or problem.certified(here.alpha, here.fitted, here.b)
            return replace(found, n_steps=step, converged=found.violation <= tol)
        gradient = problem.loss.gradient(problem.y, here.fitted + here.b, problem.C)
        rho = here.alpha + gradient
        Krho = problem.full_product(rho)
        distance = 0.5 * max(float(rho @ Krho), 0.0) / max(abs(here.primal), problem.floor)
        last = last or step >= max_iter
        if last or distance <= tol or problem.rough_gap(here) <= 2.0 * tol:
            found = problem.certified(here.alpha, here.fitted, here.b)
            if found.violation > tol:
                # Minus the gradient may be the better dual point.
                dual = problem.certified(-gradient, here.fitted - Krho, here.b)
                found = dual if dual.violation < found.violation else found
            # The primal point is exact to rounding, and its certificate gets no better.
            stuck = best is not None and found.violation > 0.5 * best.violation
            stalls = stalls + 1 if stuck and distance <= 1e-15 else 0
            best = found if best is None or found.violation < best.violation else best
            if best.violation <= tol or last:
                return replace(best, n_steps=step, converged=best.violation <= tol)
            # The certificate asks for more than the objective did.
            steps.tol = max(0.01 * steps.tol, 1e-14)
        moved = None
        if stalls < 4:
            moved = _search(problem, here, steps.direction(here, rho, Krho))
        if moved is not None:
            here, step, fresh = moved, step + 1, False
        else:
            # What is left is rounding. K alpha computed afresh and a factorisation suffer less from
            # it than sums of steps and conjugate gradients do; after that, this is all.
            last, stalls = not steps.factorise() and fresh, 0
            here = problem.point(here.alpha, problem.full_product(here.alpha), here.b)
            fresh = True


class _Steps:
    """Newton directions, by conjugate gradients under a preconditioner that gets better.

    At first that is the diagonal or, of few rows, a Cholesky factor. When the diagonal proves too
    weak a better one is made and used from then on: a Cholesky factor of the system where the
    matrix is there and not too large, or a pivoted factor of K of small rank, ``M = D + S L L' S``.
    When the deadline passes a step is taken as it is.
    """

    def __init__(self, problem: _Problem, tol: float) -> None:
        self.problem, self.tol = problem, tol
        # The matrix, its part with curvature, and the factor of that.
        self._most = problem.gram.square_limit(MOST_FACTORISED, copies=3)
        self._factorise = False
        self._factor: Array | None = None
        self._rest = problem.diag

    def direction(self, here: _Point, rho: Array, Krho: Array) -> _Point:
        """Newton direction at `here`: its model value misses at most a tenth of its fall.

        Or of what the tolerance asks for. With the residual r of the system, the quadratic model of
        the objective is at most ``r'r / 2`` above its least value, so this is what is looked at,
        not the error of eta: that one can be small while the objective rises. Any step is one of
        descent, for the slope along conjugate gradients rises to that of the exact step.
        """
        problem = self.problem
        w = problem.loss.curvature(problem.y, here.fitted + here.b, problem.C)
        # Below 1e-14 of the identity in I + S K S the curvature of a row is nothing.
        rows = np.flatnonzero(w * problem.diag > 1e-14)
        w = w[rows]
        s, total = np.sqrt(w), float(w.sum())
        eta, Kseta, Ksp = np.zeros_like(s), np.zeros_like(rho), np.zeros_like(rho)

        def inside(r: Array) -> Array:
            """Residuals count only modulo s: the representative that is smallest."""
            return r - (float(s @ r) / total) * s

        def product(p: Array) -> Array:
            nonlocal Ksp
            Ksp = problem.product(rows, s * p)
            return inside(p + s * Ksp[rows])

        def precondition(r: Array) -> Array:
            z = solve(inside(r))
            return z - (float(s @ z) / sMs) * Ms

        target = 0.1 * self.tol * max(abs(here.primal), problem.floor)
        fall, along = 0.5 * float(rho @ Krho), s * Krho[rows]

        def enough() -> bool:
            least = max(target, 0.1 * (fall + 0.5 * float(along @ eta)))
            return 0.5 * float(residual @ residual) <= least or problem.deadline.passed()

        done = not len(rows)
        if not done:
            residual = inside(-s * (Krho[rows] - float(w @ Krho[rows]) / total))
        while not done:
            solve, limit = self._preconditioner(rows, s)
            if not limit:
                # Weights over many decades: an iteration would square what may overflow.
                eta = eta + inside(solve(residual))
                Kseta = problem.product(rows, s * eta)
                break
            Ms = solve(s)
            sMs = float(s @ Ms)
            steps = conjugate_gradients(product, precondition, residual)
            while limit and not (done := enough()):
                length, way, left = next(steps, (0.0, eta, residual))
                if not length > 0:
                    done = True
                    break
                residual, limit = inside(left), limit - 1
                eta = eta + length * way
                Kseta = Kseta + length * Ksp
            done = done or enough() or not self._improve(rows)
        alpha, fitted = -rho, -Krho - Kseta
        alpha[rows] -= s * eta
        # S eta = W (K delta + db) sums to zero, so db is what K delta lacks in the weighted mean.
        return _Point(alpha, fitted, -float(w @ fitted[rows]) / total if total > 0 else 0.0)

    def _small(self, rows: Index) -> bool:
        return self.problem.matrix is not None and len(rows) <= self._most

    def _preconditioner(self, rows: Index, s: Array) -> tuple[Solve, int]:
        """How to solve with ``I + S K S``, nearly, for how many iterations; a factor needs none."""
        if self._small(rows) and (self._factorise or len(rows) <= _CG_FROM):
            return self._cholesky(rows, s), 0
        solve = diagonal(1.0 + s * s * self._rest[rows])
        if self._factor is not None and not self._small(rows):
            low_rank = with_low_rank(solve, self._factor[:, rows] * s, np.ones(len(self._factor)))
            return low_rank, 2 * len(rows) + 10
        # As many products of 2 n^2 operations take n^3 / 4: more, and a factor is quicker.
        return solve, len(rows) // 8 if self._small(rows) else _RANK

    def _improve(self, rows: Index) -> bool:
        """Take a better preconditioner from now on, if there is one."""
        if self._small(rows):
            self._factorise = True
            return True
        if self._factor is not None:
            return False
        self._rest = self.problem.diag.copy()
        self._factor = pivoted_cholesky(
            lambda i: self.problem.product(np.array([i]), np.ones(1)),
            self._rest,
            1e-10 * float(self._rest.sum()),
            _RANK,
        )
        return True

    def _cholesky(self, rows: Index, s: Array) -> Solve:
        """Solve with a factor of ``I + S K S``, K centred by the weights."""
        matrix, w = np.asarray(self.problem.matrix), s * s
        whole = len(rows) == len(matrix)
        B = np.array(matrix if whole else matrix[np.ix_(rows, rows)], dtype=np.float64)
        # Centred so, B has s as an eigenvector: eta stays orthogonal to it by itself.
        share = w / w.sum()
        # Rounding goes by the size of each row before it was centred. Weights of samples may differ
        # by many decades: the same for all rows would be too little for some or drown the others.
        sizes = w * float(np.abs(B.diagonal()).max())
        mean = B @ share
        B -= mean
        B -= (mean - mean @ share)[:, None]
        B *= s
        B *= s[:, None]
        B.flat[:: len(B) + 1] += 1.0
        try:
            # With a larger diagonal where rounding made K indefinite.
            factor = jittered_cholesky(B, sizes, most=1e12)
        except LinAlgError:
            raise InvalidInputError(
                "kernel values times C are too large for float64, or a kernel is far from positive "
                "semi-definite. Lower C, scale the columns of X, or use normalize='trace'."
            ) from None
        return lambda v: cho_solve((factor, True), v, check_finite=False)

    def factorise(self) -> bool:
        """Use factorisations from now on, where n allows it; whether this changes anything."""
        problem, n = self.problem, self.problem.gram.n
        if self._factorise or n > self._most or (problem.matrix is not None and n <= _CG_FROM):
            return False
        if problem.matrix is None:
            problem.matrix = problem.gram.block(np.arange(n))
        self._factorise = True
        return True


def _search(problem: _Problem, here: _Point, step: _Point) -> _Point | None:
    """Go along the step to where the objective is nearly least; None if it does not fall at all.

    The slope along the step rises, so its zero can be bracketed. A thorough search costs O(n) an
    evaluation, nothing beside the step, and spares many steps where a loss has sharp corners.
    """
    loss, y, C = problem.loss, problem.y, problem.C
    square = max(float(step.alpha @ step.fitted), 0.0)
    outer = step.fitted + step.b
    constant = loss.alpha_sum * step.b + float(here.alpha @ step.fitted)

    def slope(t: float) -> float:
        gradient = loss.gradient(y, here.fitted + here.b + t * outer, C)
        return float(gradient @ outer) + constant + t * square

    first = slope(0.0)
    # K alpha is a sum of such terms, and their rounding is multiplied with alpha once more.
    terms = np.sqrt(problem.diag)
    alphas = float(terms @ np.abs(here.alpha)) + float(terms @ np.abs(step.alpha))
    noise = max(1e-12 * abs(here.primal), _EPS * float(terms @ np.abs(step.alpha)) * alphas)
    # A slope lost in rounding: the whole step still mends alpha where K does not see it.
    t = zero_of_slope(slope, first) if first < -noise else 1.0
    alpha, fitted = here.alpha + t * step.alpha, here.fitted + t * step.fitted
    there = problem.point(alpha, fitted, here.b + t * step.b)
    return there if there.primal <= here.primal + noise else None
