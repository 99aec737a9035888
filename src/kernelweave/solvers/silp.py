"""SILP, the wrapper: a single-kernel solver inside, cutting planes over the weights outside."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.certificate import Witness
from kernelweave.solvers.chunks import ChunkEvaluator
from kernelweave.solvers.curvature import curvature_root
from kernelweave.solvers.cutting_planes import (
    CuttingPlanes,
    Root,
    refuse_unsupported,
)
from kernelweave.solvers.inner import Evaluator, Point, without_dust
from kernelweave.solvers.settings import flag, integer, number
from kernelweave.solvers.working_set import aligned_kernels, at_a_kink, spread_over

__all__ = ["SILP", "SILPChunking"]

_INNER_FLOOR = 1e-14
# The single-kernel problem is solved more exactly once it owes more than this part of the gap.
_INNER_SHARE = 0.1
# Chunking never asks for an alpha that owes less than this part of the gap.
_LEAST_SHARE = 1e-4
# After this many steps in a row that did not descend, a rough alpha is to blame.
_MOST_FAILED = 3
_FIRST_KERNELS = 64
# What the compiled steps can number.
_MOST_CHUNK = 65_536


@dataclass
class _Memory:
    planes: CuttingPlanes
    inner_tol: float
    before: float = np.inf  # the gap before alpha was last made more exact, in place of a step


@dataclass(frozen=True)
class SILP(Solver):
    r"""Semi-infinite linear programming (Sonnenburg et al. 2006, Algorithm 1).

    Solves the single-kernel problem at the weights d, which gives a dual point :math:`\alpha` and
    with it a cutting plane, a bound from below on the objective at *all* weights; then asks the
    cutting planes so far for the next weights
    (:class:`~kernelweave.solvers.cutting_planes.CuttingPlanes`).

    For every loss and every convex regularizer, on sums of kernels. On the simplex and under l1
    the cutting planes form a linear program, which HiGHS keeps and starts from its last basis.

    Parameters
    ----------
    stabilise : bool, default=True
        Take level-set steps when cutting planes zigzag. False is the algorithm of the paper, which
        can need hundreds of steps where this one needs ten.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves. It only falls from there, as the gap closes.

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

    def prepare(self, problem: Problem) -> Problem:
        """Refuse problems without cutting planes."""
        refuse_unsupported(self.name, problem)
        return problem

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve at the given weights, or at equal ones."""
        evaluator = self._evaluator(problem, start)
        d = first_weights_of(problem, start)
        known = {} if start is None else start.extra
        tol = float(known.get("inner_tol", self.inner_tol))
        point = evaluator.evaluate(d, tol)
        quad = evaluator.quad(point)
        planes = CuttingPlanes(problem, bool(known.get("stabilised", self.stabilise)))
        planes.start(point, quad, _root(evaluator, point))
        if "witness.quad" in known:
            planes.recall(Witness(known["witness.alpha"], known["witness.quad"]))
        memory = _Memory(planes, tol, float(known.get("before", np.inf)))
        return State(point, quad, evaluator, False, memory, witness=planes.witness)

    def remember(self, state: State) -> dict[str, Array]:
        """Return the best bound, how exact alpha is, and whether steps keep near the centre."""
        memory: _Memory = state.memory
        known = {
            "inner_tol": np.asarray(memory.inner_tol),
            "before": np.asarray(memory.before),
            "stabilised": np.asarray(memory.planes.stabilised),
        }
        witness = state.witness
        if witness is not None:
            known |= {"witness.alpha": witness.alpha, "witness.quad": witness.quad}
        return known

    def _evaluator(self, problem: Problem, start: Point | None) -> Evaluator | ChunkEvaluator:
        return Evaluator(problem, start)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Ask the cutting planes for weights, solve there, and add the new cut."""
        memory: _Memory = state.memory
        planes, evaluator = memory.planes, state.evaluator
        centre = planes.centre
        proposal = planes.propose(gap)
        noise = inner_gap * max(1.0, abs(centre.value))
        # A fall below what a rough alpha leaves open cannot be told from noise.
        lost = proposal.promised <= noise or (planes.failed >= _MOST_FAILED and noise > 0)
        linear = problem.regularizer.polyhedral and planes.stabilised
        if linear and lost and at_a_kink(problem, gap, inner_gap, memory.before):
            # Steps near the centre see one slope of T at a time; the master sees all cuts.
            planes.stop_stabilising()
            memory.inner_tol = self.inner_tol
            proposal = planes.propose(gap)
        if not planes.stabilised:
            lost = proposal.promised <= noise
        memory.inner_tol = self._tightened(memory.inner_tol, gap, inner_gap, lost)
        if memory.inner_tol < _INNER_FLOOR:
            state.stuck = True
            return state
        memory.before = gap if lost else np.inf
        if lost:
            self._sharpen(planes, evaluator, proposal.d, memory.inner_tol, noise, gap)
        else:
            point = evaluator.evaluate(proposal.d, memory.inner_tol)
            quad = evaluator.quad(point)
            planes.add(proposal, point, quad, _root(evaluator, point), gap)
        return State(planes.centre, planes.quad, evaluator, False, memory, witness=planes.witness)

    def _tightened(self, tol: float, gap: float, inner_gap: float, lost: bool) -> float:
        """Tolerance of the next single-kernel solve."""
        return tol / 10 if lost or inner_gap > _INNER_SHARE * gap else tol

    def _sharpen(
        self,
        planes: CuttingPlanes,
        evaluator: Evaluator | ChunkEvaluator,
        d: Array,
        tol: float,
        noise: float,
        gap: float,
    ) -> None:
        """Go to d with a more exact alpha; stay if d turns out to be worse for sure."""
        here = planes.centre
        point = evaluator.evaluate(d, tol)
        # T(d) >= point.value, while T here is at most what the inner gap leaves open.
        if point.value > here.value + noise:
            point = evaluator.evaluate(here.d, tol)
        planes.replace_centre(point, evaluator.quad(point), _root(evaluator, point), gap)


@dataclass(frozen=True)
class SILPChunking(SILP):
    r"""SILP by chunking: alpha and the weights move together (Sonnenburg et al. 2006, Algorithm 2).

    Early weights need no exact alpha. Alpha moves in chunks of `chunk_size` variables, the matrix
    of all kernels' outputs moves along (:class:`~kernelweave.solvers.chunks.ChunkEvaluator`), and
    the cutting planes are asked for new weights as soon as alpha is good enough for the gap that
    is left. Beside the bank it needs O(mn) memory, and up to one n x n matrix where :class:`SILP`
    forms one.

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

    def _evaluator(self, problem: Problem, start: Point | None) -> Evaluator | ChunkEvaluator:
        return ChunkEvaluator(problem, start, int(self.chunk_size))

    def _tightened(self, tol: float, gap: float, inner_gap: float, lost: bool) -> float:
        """Gap that alpha may owe at the next weights: a part of what is owed in all."""
        least = min(tol, _INNER_SHARE * gap)
        return max(least / 10, min(least, _LEAST_SHARE * gap)) if lost else least


def first_weights_of(problem: Problem, start: Point | None) -> Array:
    """Given weights; or equal ones, if there are many on the kernels most aligned with y."""
    if start is not None:
        return without_dust(problem.regularizer.project(start.d))
    d = problem.regularizer.start(problem.m)
    if problem.regularizer.polyhedral and problem.m > _FIRST_KERNELS:
        return spread_over(aligned_kernels(problem, _FIRST_KERNELS), d)
    return d


def _root(evaluator: Evaluator | ChunkEvaluator, point: Point) -> Root:
    def root(kernels: Array) -> Array:
        parts = evaluator.curvature_parts(point)
        return curvature_root(evaluator.problem, point, kernels, *parts)

    return root
