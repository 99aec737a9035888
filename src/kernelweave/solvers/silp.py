"""SILP, the wrapper: a single-kernel solver inside, cutting planes over the weights outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import Solver, State, flag, integer, number
from kernelweave.solvers.bundle import ENOUGH, CuttingPlanes, Proposal, refuse_unsupported
from kernelweave.solvers.certificate import Witness, certify, feasible_alpha
from kernelweave.solvers.inner import INNER_FLOOR, Evaluator, Point
from kernelweave.solvers.kept import PLANES_KEPT, Kept
from kernelweave.solvers.screening import weights_to_start_from

__all__ = ["SILP", "SILPChunking"]

# What alpha may owe at the centre, as a part of the gap, and at a trial, as a part of what the step
# promises. An error of at most this part of a step's promise leaves no doubt about the step where
# it has to bring as much as that (de Oliveira and Sagastizabal 2014, Optim. Methods Softw. 29:6).
_INNER_SHARE = ENOUGH
# An alpha that owes less than this part of what it may was made too exact.
_TOO_EXACT = 0.01
# Kernels to begin with, where all of them are more: as many as may enter in one step.
_FIRST_KERNELS = 64
# What the compiled steps can number.
_MOST_CHUNK = 65_536


@dataclass
class _Memory:
    planes: CuttingPlanes
    inner_tol: float
    sharpest: bool = False  # the centre's alpha cannot be made more exact


@dataclass(frozen=True)
class SILP(Solver):
    r"""Semi-infinite linear programming (Sonnenburg et al. 2006, Algorithm 1).

    Solves the single-kernel problem at the weights d, which gives a dual point :math:`\alpha` and
    with it a cutting plane, a bound from below on the objective at *all* weights; then asks the
    cutting planes so far for the next weights
    (:class:`~kernelweave.solvers.bundle.CuttingPlanes`).

    For every loss and every convex regularizer, on sums of kernels. On the simplex and under l1
    the cutting planes form a linear program, which HiGHS keeps and starts from its last basis.

    Parameters
    ----------
    stabilise : bool, default=True
        Go where the curvature at the best weights points to, or half way to the weights of the
        linear program. False is the algorithm of the paper, which can need hundreds of steps where
        this one needs ten.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves. Each later one is solved until what it owes is
        a tenth of what its step promises.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=SILP()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    stabilise: bool = field(default=True, metadata=flag())
    inner_tol: float = field(default=1e-3, metadata=number(above=0, most=1))

    name = "silp"
    kept: ClassVar[Mapping[str, Kept]] = PLANES_KEPT

    def prepare(self, problem: Problem) -> Problem:
        """Refuse problems without cutting planes."""
        refuse_unsupported(self.name, problem)
        return problem

    def starts_coarse(self) -> bool:
        """Algorithm 1 as it is in the paper starts at equal weights."""
        return self.stabilise

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve at the given weights, or at equal ones."""
        evaluator = self._evaluator(problem, start)
        some = self.stabilise and problem.regularizer.polyhedral
        d = weights_to_start_from(problem, start, _FIRST_KERNELS if some else problem.m)
        known = {} if start is None else start.extra
        tol = float(known.get("inner_tol", self.inner_tol))
        point = evaluator.evaluate(d, tol)
        planes = CuttingPlanes(evaluator, self.stabilise)
        planes.put_centre(point, evaluator.quad(point))
        if "witness.alpha" in known:
            # Its q_k are asked for anew: another bank may have been less exact.
            alpha = feasible_alpha(problem, known["witness.alpha"])
            planes.recall(Witness(alpha, problem.bank.quad(alpha)))
        return _state(_Memory(planes, tol), evaluator, stuck=False)

    def remember(self, state: State) -> dict[str, Array]:
        """Return the best bound, and how exact alpha is."""
        memory: _Memory = state.memory
        known = {"inner_tol": np.asarray(memory.inner_tol), "planes": np.asarray(True)}
        witness = state.witness
        if witness is not None:
            known["witness.alpha"] = witness.alpha
        return known

    def _evaluator(self, problem: Problem, start: Point | None) -> Evaluator:
        return Evaluator(problem, start)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Ask the cutting planes for weights, solve there, and add the new cut."""
        memory: _Memory = state.memory
        planes, evaluator = memory.planes, state.evaluator
        owed_here, stuck = evaluator.owed(planes.centre), False
        if inner_gap > _INNER_SHARE * gap and not memory.sharpest:
            allowed = 0.5 * _INNER_SHARE * (gap / inner_gap) * owed_here
            self._sharpen(memory, evaluator, allowed, owed_here)
        else:
            proposal, before = planes.propose(gap), planes.centre
            # What the step may gain can be less than what the centre's own alpha leaves open: then
            # its weights are taken, with a more exact alpha, unless they are worse for sure.
            blurred = owed_here > proposal.promised > 0 and not memory.sharpest
            stuck = not self._try(memory, evaluator, proposal, gap, owed_here if blurred else 0.0)
            if blurred and planes.centre is before:
                self._sharpen(memory, evaluator, _INNER_SHARE * proposal.promised, owed_here)
                stuck = False
        return _state(memory, evaluator, stuck)

    def _try(
        self,
        memory: _Memory,
        evaluator: Evaluator,
        proposal: Proposal,
        gap: float,
        left_open: float,
    ) -> bool:
        """Solve at the proposed weights and add the cut; returns whether it is of use to go on.

        `left_open` is how far T at the centre may be above its value.
        """
        planes = memory.planes
        before = planes.centre
        if proposal.kind == "safe" and gap <= _resolution(evaluator.problem, before, planes.quad):
            return False
        # T there is at least the value of the point: no use to know better by how much it fails.
        failed = before.value + left_open - ENOUGH * proposal.promised
        allowed = _INNER_SHARE * max(0.0, proposal.promised)
        point, owed = self._solve(memory, evaluator, proposal.d, allowed, failed)
        # A more exact alpha each time, or such steps would go back and forth.
        doubt = owed - left_open if owed <= 0.5 * left_open else owed
        learnt = planes.add(proposal, point, doubt, evaluator.quad(point))
        memory.sharpest &= planes.centre is before
        # Steps of other kinds have safe ones to fall back on.
        return learnt or proposal.kind not in ("safe", "master")

    def _solve(
        self,
        memory: _Memory,
        evaluator: Evaluator,
        d: Array,
        allowed: float,
        enough: float = np.inf,
    ) -> tuple[Point, float]:
        """Solve at d as exactly as it takes, and remember how exactly that was."""
        first = self._first_tol(memory, allowed)
        point, owed, tol = evaluator.evaluate_until(d, first, allowed, enough)
        memory.inner_tol = min(10 * tol, self.inner_tol) if owed <= _TOO_EXACT * allowed else tol
        return point, owed

    def _first_tol(self, memory: _Memory, allowed: float) -> float:
        """Tolerance with which the next solve starts."""
        return memory.inner_tol

    def _sharpen(self, memory: _Memory, evaluator: Evaluator, allowed: float, owed: float) -> None:
        """Make the centre's alpha, which owes `owed`, exact enough to measure steps against it."""
        planes = memory.planes
        point, left = self._solve(memory, evaluator, planes.centre.d, allowed)
        memory.sharpest = not left <= 0.5 * owed
        if left < owed:
            planes.put_centre(point, evaluator.quad(point))


@dataclass(frozen=True)
class SILPChunking(SILP):
    r"""SILP by chunking: alpha and the weights move together (Sonnenburg et al. 2006, Algorithm 2).

    Early weights need no exact alpha. Alpha moves in chunks of `chunk_size` variables, the outputs
    :math:`g_{ki} = (K_k \alpha)_i` of the kernels in use move along, and the cutting planes are
    asked for new weights as soon as alpha is good enough for the gap that is left. A change of the
    weights then costs one product :math:`d \cdot g`: nothing is started anew. Beside the bank that
    takes O(mn) memory; where :class:`SILP` forms the matrix of the combined kernel, so does this.

    For the hinge, epsilon-insensitive and one-class losses, with the regularizers of
    :class:`SILP`, over any bank.

    Parameters
    ----------
    stabilise : bool, default=True
        See :class:`SILP`.
    inner_tol : float, default=0.1
        Relative duality gap that alpha may owe at the first weights. From then on it is a tenth of
        the gap that is left.
    chunk_size : int, default=2048
        Variables in a chunk, Q in the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=SILPChunking()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    inner_tol: float = field(default=0.1, metadata=number(above=0, most=1))
    chunk_size: int = field(default=2048, metadata=integer(2, _MOST_CHUNK))

    name = "silp-chunking"

    def prepare(self, problem: Problem) -> Problem:
        """Refuse problems without cutting planes, and losses that are not piecewise linear."""
        if problem.loss.smooth:
            raise InvalidInputError(
                f"solver 'silp-chunking' takes piecewise-linear losses ('hinge', "
                f"'epsilon_insensitive', 'one_class'); got {problem.loss!r}. Use solver='silp'."
            )
        return super().prepare(problem)

    def _evaluator(self, problem: Problem, start: Point | None) -> Evaluator:
        return Evaluator(problem, start, int(self.chunk_size))

    def _first_tol(self, memory: _Memory, allowed: float) -> float:
        """Relative gap that alpha may owe at the next weights."""
        return min(max(allowed / memory.planes.unit, INNER_FLOOR), self.inner_tol)


def _state(memory: _Memory, evaluator: Evaluator, stuck: bool) -> State:
    planes = memory.planes
    return State(planes.centre, planes.quad, evaluator, stuck, memory, witness=planes.witness)


def _resolution(problem: Problem, point: Point, quad: Array) -> float:
    """Relative gap that the rounding of sums in float64 can make at this point."""
    at = point.d, point.alpha, point.intercept, point.fitted, quad
    return certify(problem, *at, rounding=True).approximation
