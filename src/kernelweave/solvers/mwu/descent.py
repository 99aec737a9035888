"""Rounds that end at the optimum: pairs of violators, multiplicative weights that add up."""

from __future__ import annotations

from math import log

import numpy as np

from kernelweave.arrays import Array
from kernelweave.combine import CombinedOperator, WeightedSum
from kernelweave.compiled.mwu import pair_step
from kernelweave.problem import Problem
from kernelweave.solvers.base import State
from kernelweave.solvers.certificate import feasible_alpha
from kernelweave.solvers.inner import InnerWork, Point
from kernelweave.solvers.mwu.rounds import BoxConstraints, PairStep, rounds_of

# The rounds that other values take to a gap of 1e-3: benchmarks/papers/tuned_constants.py. In what
# follows h is the hinge, s the squared hinge loss, at C = 10 and with the SimpleMKL kernels.
#
# Rounds between two certificates: at first, as a part of all so far (no more of them are made in
# vain), and at most as many as there are samples, since weights move at certificates only. From
# 0.02 to 0.1 the part hardly matters (sonar h 10002, 10373, 10365; pima s 2834, 3404, 3987), and
# each certificate costs some rounds.
_FIRST_ROUNDS = 16
_GROWTH = 0.05
# Kernels whose weight is below this part of the largest sleep until the next certificate: what they
# add to K(d) is far below any tolerance that a fit can meet. Weights to start from are taken as if
# none were smaller, so that kernels without weight can come back.
_ASLEEP = 1e-10
# omega is doubled after so many certificates in a row that found only the weights wanting. At once
# is too soon (sonar h 36581 rounds, ionosphere h 25668), and from 3 on it makes no difference
# (10373 and 11979 for 3, 10373 and 11277 for 5).
_PATIENCE = 3
# The first temperature is at least this: sharp weights of a poor alpha mislead it. Fits that begin
# at eps=0.01 do not end (sonar, wpbc and liver s), and 0.5 is no better (sonar h 12869, liver s
# 1114 against 10373 and 1563).
_MILD = 0.2
# Rounds of one task before it is the turn of the next: taking turns costs a pass over the state,
# about as much as a round, which is then an eighth of the work.
_TURN = 8
# Temperatures below this are rounding: the weights would hang on the last digits of q.
_COLDEST = 1e-12


def ridge_of(problem: Problem) -> Array:
    """What the loss adds to the diagonal of every kernel, shape (T, n): 1/(2C) for the 2-norm.

    MWUMKL, footnote 1: the 1-norm soft margin bounds alpha, the 2-norm adds to the diagonal.
    """
    steepness = problem.loss.lipschitz(problem.C)
    # A sample of weight zero may not move, whatever its diagonal.
    return np.divide(1.0, steepness, out=np.zeros_like(problem.C), where=steepness > 0)


def pair_rules(problem: Problem, task: int) -> BoxConstraints:
    """Return the rules of the dual: who may move in its box, and the rate at which it rises."""
    low, high = problem.loss.domain(problem.y, problem.C)
    return BoxConstraints(
        np.ascontiguousarray(problem.y[task]),
        ridge_of(problem)[task],
        np.array(high[task], dtype=np.float64),
        np.array(low[task], dtype=np.float64),
    )


class Descent:
    r"""Coordinate ascent in the dual, two samples a round, under multiplicative weights.

    The maximum over kernels in the dual is smoothed about earlier weights :math:`d^0`,

    .. math:: M(q) = \tfrac1\beta \log \sum_k d^0_k e^{\beta q_k}, \qquad
              d_k \propto d^0_k e^{\beta q_k(\alpha)}, \qquad \beta = \omega \ln(m) / \epsilon,

    so that with the target :math:`\omega = 1/\max_k q_k` and equal weights the smoothing costs at
    most the part eps of it. Whenever the weights, and no longer alpha, are what keeps the duality
    gap open, :math:`d^0` moves to d: the exponents add up over time, as they do in algorithm 4, and
    the weights approach the best ones while each of these problems stays well conditioned
    (the proximal point method with entropies). If that happens again and again omega is doubled.

    A round moves the pair of samples that violates the optimality conditions most, by a line
    search that knows how the weights will answer.
    `eps` is the temperature to come to while the weights are still rough, `most` the most rounds,
    and the `extra` of `start` may hold what `remembered` returned.
    """

    def __init__(self, problem: Problem, eps: float, most: int | None, start: Point | None) -> None:
        self.problem = problem
        self.counter = InnerWork()
        self._most = most
        self._rules = [pair_rules(problem, t) for t in range(problem.n_tasks)]
        weights = problem.regularizer.start(problem.m)
        # Under fixed weights there is one kernel, their sum.
        self._fixed = weights if problem.regularizer.fixed else None
        bank = problem.bank
        if self._fixed is not None:
            bank = CombinedOperator(WeightedSum(), bank, weights[None], ["sum"])
        self._parts = [rounds_of(bank, rules) for rules in self._rules]
        alpha = np.zeros((problem.n_tasks, problem.n))
        self._prior = np.zeros(problem.m if self._fixed is None else 1)
        self._eps, self._temperature = eps, max(eps, _MILD)
        if start is not None:
            alpha = feasible_alpha(problem, start.alpha)
            self._go_on_from(start)
        for part, row in zip(self._parts, alpha, strict=True):
            part.start(row, np.zeros(len(self._prior)))
        self._beta, self._size = 0.0, 0.0
        self._quick, self._moved = 0, True
        self._choices: list[PairStep | None] = []
        self._weigh()

    def _go_on_from(self, start: Point) -> None:
        self.counter.n_steps = int(start.extra.get("rounds", 0))
        if self._fixed is not None:
            return
        self._temperature = float(start.extra.get("temperature", self._temperature))
        top = float(start.d.max())
        if "log_weights" in start.extra:
            self._prior = np.array(start.extra["log_weights"], dtype=np.float64)
        elif top > 0:
            self._prior = np.log(np.maximum(start.d / top, _ASLEEP))

    def remembered(self) -> dict[str, Array]:
        """Return what another run needs besides alpha to go on as this one would."""
        made = {"rounds": np.array(self.counter.n_steps)}
        if self._fixed is not None:
            return made
        known = {"log_weights": self._prior, "temperature": np.array(self._temperature)}
        return made | known

    def _weigh(self) -> None:
        """Set q and the weights of all kernels, and put those that hardly count to sleep."""
        self._quad = np.sum([part.synchronise() for part in self._parts], axis=0)
        top, m = float(self._quad.max()), len(self._quad)
        # The problem stays the same while only alpha gets better; at first q grows from nothing.
        if self._moved or top > 2.0 * self._size:
            self._beta = log(m) / (self._temperature * top) if m > 1 and top > 0 else 0.0
            self._size, self._moved = top, False
        exponent = self._prior + self._beta * self._quad
        d = np.exp(exponent - exponent.max())
        d[d < _ASLEEP] = 0.0
        self._d = d / d.sum()
        self._followed = np.flatnonzero(self._d)
        for part in self._parts:
            part.restrict(self._followed)
        self._choices = [part.reweigh(self._d[self._followed]) for part in self._parts]

    def go(self, gap: float, inner_gap: float) -> None:
        """Make the rounds of one step; before them move the weights if they are in the way."""
        if inner_gap < 0.5 * gap and len(self._quad) > 1:
            self._prior = self._prior + self._beta * self._quad
            self._prior -= self._prior.max()
            self._quick += 1
            if self._quick >= _PATIENCE or self._temperature > self._eps:
                self._temperature *= 0.5
                self._quick = 0
            self._moved = True
            self._weigh()
        else:
            self._quick = 0
        most = max(_FIRST_ROUNDS, self.problem.n)
        many = int(np.clip(_GROWTH * self.counter.n_steps, _FIRST_ROUNDS, most))
        left = np.inf if self._most is None else self._most - self.counter.n_steps
        tasks = len(self._parts)
        # Every task has a turn between two certificates.
        turns = [many] if tasks == 1 else [_TURN] * max(tasks, many // _TURN)
        quad, d = self._quad[self._followed], self._d[self._followed]
        for turn, count in enumerate(turns):
            task = turn % tasks
            if tasks > 1:
                self._choices[task] = self._parts[task].reweigh(d)
            d = self._rounds(task, int(min(count, left)), quad, d)
            left -= count
            if left <= 0 or self.problem.deadline.passed():
                break
        self._weigh()

    def _rounds(self, task: int, count: int, quad: Array, d: Array) -> Array:
        """Move so many pairs of one task; changes `quad` and returns the last weights."""
        part, rules, choice = self._parts[task], self._rules[task], self._choices[task]
        prior, deadline = self._prior[self._followed], self.problem.deadline
        linear, ridge = rules.linear, rules.ridge
        for _ in range(count):
            if choice is None or not choice.improves or deadline.passed():
                break
            d = np.empty_like(quad)
            i, j, v_i, v_j = choice.i, choice.j, choice.v_i, choice.v_j
            rise, fall = pair_step(
                rules.up[i] - v_i,
                v_j - rules.down[j],
                choice.products,
                choice.block,
                max(abs(v_i), abs(v_j)),
                linear[i] - linear[j] + (ridge[j] * v_j - ridge[i] * v_i),
                ridge[i] + ridge[j],
                self._beta,
                prior,
                quad,
                d,
            )
            choice = part.advance(choice, rise, -fall, d)
            self.counter.n_steps += 1
        self._choices[task] = choice
        return d

    def state(self) -> State:
        problem = self.problem
        alpha = np.array([part.values() for part in self._parts])
        fitted = np.array([part.fitted() for part in self._parts])
        d, quad = self._d.copy(), self._quad.copy()
        if self._fixed is not None:
            # Only the sum of w_k q_k counts under fixed weights, and it is all that is known.
            d, quad = self._fixed, np.full(problem.m, quad[0] / self._fixed.sum())
        value = problem.inner_value(d, alpha, fitted)
        point = Point(d, alpha, fitted, np.zeros(problem.n_tasks), value)
        still = not any(choice is not None and choice.improves for choice in self._choices)
        stuck = self._temperature < _COLDEST or (still and len(self._quad) == 1)
        out = self._most is not None and self.counter.n_steps >= self._most
        return State(point, quad, self.counter, stuck, self, ended="rounds" if out else "")
