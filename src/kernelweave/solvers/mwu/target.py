"""Algorithm 4 of MWUMKL for a given target omega: fixed steps, T rounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log, sqrt

import numpy as np
from scipy.optimize import minimize_scalar

from kernelweave.compiled.mwu_step import exponentiate, pair_quads
from kernelweave.losses.piecewise_linear import Hinge
from kernelweave.operators.rounds import BoxConstraints, PairStep, Rounds
from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import State
from kernelweave.solvers.certificate import Witness
from kernelweave.solvers.inner import InnerWork, Point
from kernelweave.solvers.mwu.margin import ridge_of

__all__ = ["FixedTargetRun", "Target"]

# Rounds of the first step, and by how much of all rounds so far a step grows: each ends with a
# certificate, which costs as much as many rounds.
_FIRST_ROUNDS = 16
_GROWTH = 0.2
# Logarithms of the largest |f(x)| between which the scale of the function is looked for.
_LOG_SCALES = (-12.0, 12.0)


@dataclass(frozen=True)
class Target:
    """The constants of algorithm 4, on unit-trace kernels scaled by omega.

    Attributes
    ----------
    rate : float
        eps'/(2 rho) with eps' = -ln(1 - eps/(2 rho)).
    rounds : int
        T = 8 rho^2 ln(n) / eps^2, rounded up.
    scale : ndarray of shape (m,)
        omega / trace of every kernel.
    ridge : ndarray of shape (n,)
        What the 2-norm soft margin adds to the diagonal of the scaled kernels.
    paper : bool
        Whether omega is the paper's: all T rounds are made, and its own classifier is returned.
    """

    rate: float
    rounds: int
    scale: Array
    ridge: Array
    paper: bool

    @classmethod
    def of(cls, problem: Problem, eps: float, omega: float | None) -> Target:
        """Return the constants; `omega` None is the paper's, with its bound rho = 3/2."""
        value = 1.0 if omega is None else omega
        diagonal = problem.bank.diagonal()
        trace = diagonal.sum(axis=1)
        # A kernel that is zero everywhere stays so.
        inverse = np.divide(1.0, trace, out=np.zeros(problem.m), where=trace > 0)
        ridge = value * ridge_of(problem)[0] / problem.n
        rho = 1.5 if omega is None else 1.0 + _width(problem, value * diagonal, inverse, ridge)
        rate = -log(1.0 - eps / (2.0 * rho)) / (2.0 * rho)
        rounds = ceil(8.0 * rho**2 * log(problem.n) / eps**2)
        return cls(rate, max(1, rounds), value * inverse, ridge, omega is None)


def _width(problem: Problem, scaled: Array, inverse: Array, ridge: Array) -> float:
    """Bound on |A_k alpha| for a pair: half the root of G_jj + G_ll + 2 |G_jl|.

    |G_jl| is at most the root of G_jj G_ll, so the widest pair is that of the largest diagonals,
    one of each class.
    """
    y = problem.y[0]
    root = np.zeros(problem.m)
    for sign in (1.0, -1.0):
        own = y == sign
        root += np.sqrt((scaled[:, own] * inverse[:, None] + ridge[own]).max(axis=1))
    return float(0.5 * root.max())


@dataclass
class FixedTargetRun:
    """The numbers of a run: algorithm 4 with `a` kept signed and as a running sum.

    Attributes
    ----------
    quad : ndarray of shape (m,)
        a'K_k a of the running sum, kernels as the bank has them.
    square : float
        a' diag(ridge) a.
    done : int
        Rounds so far.
    """

    problem: Problem
    target: Target
    most: int
    rounds: Rounds
    choice: PairStep
    counter: InnerWork
    quad: Array
    square: float = 0.0
    done: int = 0

    @classmethod
    def begin(
        cls, problem: Problem, target: Target, most: int | None, box: Array, start: Point | None
    ) -> FixedTargetRun:
        """Start at zero, or where another run of the same length had come to."""
        planned = target.rounds if most is None else min(most, target.rounds)
        y = problem.y[0]
        # A coordinate is full when half a step more would take a / T beyond C.
        full = np.where(np.isfinite(box), box * planned - 0.5 + 1e-9, np.inf)
        rules = BoxConstraints(
            np.zeros(problem.n),
            target.ridge,
            np.where(y > 0, full, -np.inf),
            np.where(y > 0, np.inf, -full),
        )
        rounds = problem.bank.rounds(rules)
        course = cls(problem, target, planned, rounds, PairStep.nobody(0), InnerWork(), np.zeros(0))
        course._place(start)
        return course

    def _place(self, start: Point | None) -> None:
        done = 0 if start is None else int(start.extra.get("rounds", 0))
        a = np.zeros(self.problem.n)
        if start is not None and done:
            size = float(np.abs(start.alpha[0]).sum())
            # Every round adds one half twice: the running sum is a multiple of it.
            a = np.round(2.0 * start.alpha[0] * (done / size)) / 2.0 if size > 0 else a
        self.done = self.counter.n_steps = done
        self.quad = self.problem.bank.quad(a) if done else np.zeros(self.problem.m)
        self.square = float(self.target.ridge @ a**2)
        self.choice = self.rounds.start(a, self._coefficients())

    def _coefficients(self) -> Array:
        """Weights of the kernels in g, up to a factor: 2 |p12_k| / |u_k| on unit-trace kernels."""
        out = np.empty(self.problem.m)
        exponentiate(self.quad, self.target.scale, self.square, self.target.rate, out)
        return out

    def go(self) -> None:
        """Make the rounds of one step: FIND-alpha, update, EXPONENTIATE-M."""
        many = max(_FIRST_ROUNDS, int(_GROWTH * self.done))
        for _ in range(min(many, self.most - self.done)):
            choice = self.choice
            if self.problem.deadline.passed():
                return
            if not choice.there:
                self.most = self.done
                return
            pair_quads(self.quad, choice.products, choice.block, 0.5)
            for place, value in ((choice.i, choice.v_i), (choice.j, choice.v_j)):
                self.square += self.target.ridge[place] * (abs(value) + 0.25)
            self.done += 1
            self.counter.n_steps += 1
            self.choice = self.rounds.advance(choice, 0.5, -0.5, self._coefficients())

    def state(self) -> State:
        """Return the direction a / T and the weights of section 4.3, with a scale.

        The paper's own target gives its own classifier, which bisects the hulls. For others the
        function gets the scale of lowest objective, and later the best intercept. The dual
        variables that bound the optimum have a scale of their own, inside the box.
        """
        problem = self.problem
        a = self.rounds.values()
        c = self._coefficients()
        total = float(c.sum())
        d = c / total if total > 0 else problem.regularizer.start(problem.m)
        fitted = self.rounds.fitted() / total if total > 0 else np.zeros(problem.n)
        paper, inside = self.target.paper, self._best_scale(a)
        scale, b = self._bisector(a, fitted) if paper else (self._lowest_scale(d, fitted), 0.0)
        point = Point(d, scale * a[None], scale * fitted[None], np.array([b]), np.inf)
        witness = Witness(inside * a[None], inside**2 * self.quad)
        ended = "rounds" if self.done >= self.most else ""
        quad = scale**2 * self.quad
        return State(
            point,
            quad,
            self.counter,
            False,
            self,
            witness,
            ended,
            last_counts=True,
            to_the_end=paper,
        )

    def remembered(self) -> dict[str, Array]:
        """Return what another run needs besides alpha to go on as this one would."""
        return {"rounds": np.array(self.done)}

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
        norms = d * np.sqrt(self.quad)

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
        size = float(np.abs(a).sum())
        if size == 0:
            return 0.0
        quadratic = float(self.quad.max()) + float(ridge_of(self.problem)[0] @ a**2)
        scale = size / quadratic if quadratic > 0 else np.inf
        if isinstance(self.problem.loss, Hinge):
            used = a != 0
            scale = min(scale, float(np.min(self.problem.C[0, used] / np.abs(a[used]))))
        return scale if np.isfinite(scale) else sqrt(self.problem.n) / size
