"""Algorithm 4 of MWUMKL for a given target omega: fixed steps, T rounds."""

from __future__ import annotations

from math import ceil, exp, log, sqrt

import numpy as np
from scipy.optimize import minimize_scalar

from kernelweave.arrays import Array
from kernelweave.compiled.mwu import exponentiate, pair_quads
from kernelweave.losses import Hinge, Loss, SquaredHinge
from kernelweave.problem import Problem
from kernelweave.solvers.base import State
from kernelweave.solvers.certificate import Witness
from kernelweave.solvers.inner import InnerWork, Point
from kernelweave.solvers.mwu.descent import ridge_of
from kernelweave.solvers.mwu.rounds import BoxConstraints, rounds_of

# Rounds of the first step, and by how much of all rounds so far a step grows: each ends with a
# certificate, which costs as much as many rounds.
_FIRST_ROUNDS = 16
_GROWTH = 0.2
# Logarithms of the largest |f(x)| between which the scale of the function is looked for: targets
# are -1 and 1, so that functions beyond these are far too flat or too steep.
_LOG_SCALES = (-12.0, 12.0)
# The bound of lemma 4.2 on |A_k alpha| for the paper's own target, omega = 1.
_PAPER_WIDTH = 1.5


class _GivenIntercept:
    """A loss under which the certificate is that of the intercept it is given, not of the best."""

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        return start


class _BisectedHinge(_GivenIntercept, Hinge):
    pass


class _BisectedSquaredHinge(_GivenIntercept, SquaredHinge):
    pass


# The losses of the paper's own classifier, whose intercept bisects the two hulls.
BISECTED: dict[type[Loss], type[Loss]] = {
    Hinge: _BisectedHinge,
    SquaredHinge: _BisectedSquaredHinge,
}


class FixedTargetRun:
    r"""Algorithm 4 on unit-trace kernels scaled by omega, with `a` kept signed, as a running sum.

    With the width rho, :math:`\epsilon' = -\ln(1 - \epsilon / (2\rho))` and
    :math:`T = \lceil 8 \rho^2 \ln(n) / \epsilon^2 \rceil` rounds.
    `omega` None is the paper's own target, with its bound rho = 3/2: all T rounds are made, and its
    own classifier is returned. `most` is the most rounds, and `start` where another run of the same
    length had come to.
    """

    def __init__(
        self,
        problem: Problem,
        eps: float,
        omega: float | None,
        most: int | None,
        start: Point | None,
    ) -> None:
        self.problem, self.counter, self._paper = problem, InnerWork(), omega is None
        value = 1.0 if omega is None else omega
        diagonal = problem.bank.diagonal()
        trace = diagonal.sum(axis=1)
        # A kernel that is zero everywhere stays so.
        self._scale = np.divide(value, trace, out=np.zeros(problem.m), where=trace > 0)
        # What the 2-norm soft margin adds to the diagonal of the scaled kernels.
        self._ridge = value * ridge_of(problem)[0] / problem.n
        rho = _PAPER_WIDTH
        if omega is not None:
            rho = 1.0 + _width(problem.y[0], diagonal * self._scale[:, None] + self._ridge)
        self._rate = -log(1.0 - eps / (2.0 * rho)) / (2.0 * rho)
        planned = max(1, ceil(8.0 * rho**2 * log(problem.n) / eps**2))
        self._most = planned if most is None else min(most, planned)

        y = problem.y[0]
        # A coordinate is full when half a step more would take a / T beyond n C / omega.
        full = problem.n / value * _box(problem) * self._most - 0.5 + 1e-9
        rules = BoxConstraints(
            np.zeros(problem.n),
            self._ridge,
            np.where(y > 0, full, -np.inf),
            np.where(y > 0, np.inf, -full),
        )
        self._rounds = rounds_of(problem.bank, rules)
        done = 0 if start is None else int(start.extra.get("rounds", 0))
        self.counter.n_steps = done
        a = np.zeros(problem.n)
        if start is not None and done:
            size = float(np.abs(start.alpha[0]).sum())
            # Every round adds one half twice: the running sum is a multiple of it.
            a = np.round(2.0 * start.alpha[0] * (done / size)) / 2.0 if size > 0 else a
        # a'K_k a of the running sum, kernels as the bank has them, and a' diag(ridge) a.
        self._quad = problem.bank.quad(a) if done else np.zeros(problem.m)
        self._square = float(self._ridge @ a**2)
        self._choice = self._rounds.start(a, self._coefficients())

    def _coefficients(self) -> Array:
        """Weights of the kernels in g, up to a factor: 2 |p12_k| / |u_k| on unit-trace kernels."""
        out = np.empty(self.problem.m)
        exponentiate(self._quad, self._scale, self._square, self._rate, out)
        return out

    def go(self, gap: float, inner_gap: float) -> None:
        """Make the rounds of one step: FIND-alpha, update, EXPONENTIATE-M."""
        many = max(_FIRST_ROUNDS, int(_GROWTH * self.counter.n_steps))
        for _ in range(min(many, self._most - self.counter.n_steps)):
            choice = self._choice
            if self.problem.deadline.passed():
                return
            if choice is None:
                self._most = self.counter.n_steps
                return
            pair_quads(self._quad, choice.products, choice.block, 0.5)
            for place, value in ((choice.i, choice.v_i), (choice.j, choice.v_j)):
                self._square += self._ridge[place] * (abs(value) + 0.25)
            self.counter.n_steps += 1
            self._choice = self._rounds.advance(choice, 0.5, -0.5, self._coefficients())

    def state(self) -> State:
        """Return the direction a / T and the weights of section 4.3, with a scale.

        The paper's own target gives its own classifier, which bisects the hulls. For others the
        function gets the scale of lowest objective, and later the best intercept. The dual
        variables that bound the optimum have a scale of their own, inside the box.
        """
        problem = self.problem
        a = self._rounds.values()
        c = self._coefficients()
        total = float(c.sum())
        d = c / total if total > 0 else problem.regularizer.start(problem.m)
        fitted = self._rounds.fitted() / total if total > 0 else np.zeros(problem.n)
        inside = self._best_scale(a)
        scale, b = (
            self._bisector(a, fitted) if self._paper else (self._lowest_scale(d, fitted), 0.0)
        )
        point = Point(d, scale * a[None], scale * fitted[None], np.array([b]), np.inf)
        return State(
            point,
            scale**2 * self._quad,
            self.counter,
            False,
            self,
            Witness(inside * a[None], inside**2 * self._quad),
            "rounds" if self.counter.n_steps >= self._most else "",
            last_counts=True,
            to_the_end=self._paper,
        )

    def remembered(self) -> dict[str, Array]:
        return {"rounds": np.array(self.counter.n_steps)}

    def _bisector(self, a: Array, fitted: Array) -> tuple[float, float]:
        r"""Scale and intercept of the function whose zero set bisects the two hulls.

        The nearest points of the hulls are the means of each class weighted by a. There the
        function is 1 and -1 (Bennett and Bredensteiner 2000; the authors' program does the same),
        with what the 2-norm soft margin adds to the diagonal counted in: with f = K(d) a + ridge a,
        s = |a|_1 / (a'f) and b = -s sum_i |a_i| f_i / |a|_1.
        """
        f = fitted + ridge_of(self.problem)[0] * a
        size, between = float(np.abs(a).sum()), float(a @ f)
        if not between > 0:
            return 0.0, 0.0
        scale = size / between
        return scale, -scale * float(np.abs(a) @ f) / size

    def _lowest_scale(self, d: Array, fitted: Array) -> float:
        """The factor on the function at which the objective of the problem is lowest."""
        problem = self.problem
        y, C, loss = problem.y[0], problem.C[0], problem.loss
        size = float(np.abs(fitted).max())
        if size == 0:
            return 0.0
        norms = d * np.sqrt(self._quad)

        def objective(log_scale: float) -> float:
            z = exp(log_scale) / size * fitted
            b = loss.best_intercept(y, z, C)
            omega = problem.regularizer.omega(exp(log_scale) / size * norms)
            return float(np.sum(loss.value(y, z + b, C)) + omega)

        # Convex in the factor, so it has one lowest point in its logarithm too.
        found = minimize_scalar(objective, bounds=_LOG_SCALES, method="bounded")
        return exp(float(found.x)) / size

    def _best_scale(self, a: Array) -> float:
        """The factor at which the dual of the problem is largest, inside the box."""
        size, used = float(np.abs(a).sum()), a != 0
        if size == 0:
            return 0.0
        quadratic = float(self._quad.max()) + float(ridge_of(self.problem)[0] @ a**2)
        scale = size / quadratic if quadratic > 0 else np.inf
        scale = min(scale, float(np.min(_box(self.problem)[used] / np.abs(a[used]))))
        return scale if np.isfinite(scale) else sqrt(self.problem.n) / size


def _box(problem: Problem) -> Array:
    """The largest |alpha_i|: C under the 1-norm, infinite under the 2-norm."""
    low, high = problem.loss.domain(problem.y[0], problem.C[0])
    return high - low


def _width(y: Array, diagonal: Array) -> float:
    """Bound on |A_k alpha| for a pair: half the root of G_jj + G_ll + 2 |G_jl|.

    |G_jl| is at most the root of G_jj G_ll, so the widest pair is that of the largest diagonals,
    one of each class.
    """
    roots = [np.sqrt(diagonal[:, y == sign].max(axis=1)) for sign in (1.0, -1.0)]
    return float(0.5 * np.max(roots[0] + roots[1]))
