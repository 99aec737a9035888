"""Active sets, SILP and chunking: inner solves and cutting planes, under different settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver, State, flag, integer, number, require_linear
from kernelweave.solvers.bundle import ENOUGH, CuttingPlanes, Proposal
from kernelweave.solvers.certificate import Witness, certify, feasible_alpha
from kernelweave.solvers.inner import Evaluator, Point, drop_roundoff, spread_over, working_kernels
from kernelweave.solvers.kept import PLANES_KEPT, Kept
from kernelweave.solvers.loop import Limits, run

# What alpha may owe at the centre, as a part of the gap, and at a trial, as a part of what the step
# promises. An error of at most this part of a step's promise leaves no doubt about the step where
# it has to bring as much as that (de Oliveira and Sagastizabal 2014, Optim. Methods Softw. 29:6).
_INNER_SHARE = ENOUGH
# What the compiled steps can number.
_MOST_CHUNK = 65_536
# With more kernels than this for each one of the working set, a pass over all of them costs as much
# as the solves between two passes, or more: a step then solves on a working set _RESTRICTED times
# as large to the end, to _RESTRICTED_SHARE of the gap, before it looks at all of them again. On 400
# samples that takes as long as without at 8,000 Gaussians, and 0.6 times as long at 30,000. There a
# factor of 2 takes 1.4 times as long and one of 40 1.6 times, shares of 0.02 and 0.5 1.1 times.
_MANY, _RESTRICTED, _RESTRICTED_SHARE = 32, 8, 0.1
# A limit for such solves that do not come to that accuracy.
_RESTRICTED_STEPS = 100


class BundleSolver(Solver):
    """Steps to where :class:`~kernelweave.solvers.bundle.CuttingPlanes` point, with inner solves.

    What differs between the named solvers are these settings.
    """

    inner_tol: float
    stabilise: bool = True
    working_set: int = 64
    chunk_size: int | None = None
    # Whether, of very many kernels, some are solved with to the end before a pass over all.
    restricts: ClassVar[bool] = False

    kept: ClassVar[Mapping[str, Kept]] = PLANES_KEPT

    def prepare(self, problem: Problem) -> Problem:
        """Refuse problems without cutting planes."""
        require_linear(self.name, problem)
        if not problem.regularizer.convex:
            raise InvalidInputError(
                f"solver {self.name!r} takes convex regularizers ('simplex', 'l1', 'lp_ball', "
                f"'squared_lp', 'elastic_net', 'block_norm', 'entropy'); got "
                f"{problem.regularizer!r}, which is not convex. Use solver='spg' or 'auto'."
            )
        return problem

    def starts_coarse(self) -> bool:
        """Algorithm 1 as it is in the paper starts at equal weights."""
        return self.stabilise

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve at the given weights, or at equal ones."""
        evaluator = Evaluator(problem, start, self.chunk_size)
        known = {} if start is None else start.extra
        if start is not None:
            d = drop_roundoff(problem.regularizer.project(start.d))
        elif self._many(problem):
            d = _aligned_weights(problem, _RESTRICTED * self.working_set)
            # Nothing is known of the gap yet.
            d = self._restricted(evaluator, d, np.flatnonzero(d), gap=1.0)
        else:
            some = self.stabilise and problem.regularizer.polyhedral
            d = _aligned_weights(problem, self.working_set if some else problem.m)
        point = evaluator.evaluate(d, float(known.get("inner_tol", self.inner_tol)))
        planes = CuttingPlanes(evaluator, self.stabilise, self.working_set)
        planes.put_centre(point, evaluator.quad(point))
        if "witness.alpha" in known:
            # Its q_k are asked for anew: another bank may have been less exact.
            alpha = feasible_alpha(problem, known["witness.alpha"])
            planes.recall(Witness(alpha, problem.bank.quad(alpha)))
        return _state(planes)

    def remember(self, state: State) -> dict[str, Array]:
        """Return the best bound, and how exact alpha is."""
        known = {"inner_tol": np.asarray(state.evaluator.tol), "planes": np.asarray(True)}
        if state.witness is not None:
            known["witness.alpha"] = state.witness.alpha
        return known

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Ask the cutting planes for weights, solve there, and add the new cut."""
        planes: CuttingPlanes = state.memory
        stuck = False
        if self._many(problem) and self._step_on_some(planes, gap):
            return _state(planes)
        owed_here = planes.evaluator.owed(planes.centre)
        if inner_gap > _INNER_SHARE * gap and not planes.sharpest:
            allowed = 0.5 * _INNER_SHARE * (gap / inner_gap) * owed_here
            self._sharpen(planes, allowed, owed_here)
        else:
            proposal, before = planes.propose(gap), planes.centre
            # What the step may gain can be less than what the centre's own alpha leaves open: then
            # its weights are taken, with a more exact alpha, unless they are worse for sure.
            blurred = owed_here > proposal.promised > 0 and not planes.sharpest
            stuck = not self._try(planes, proposal, gap, owed_here if blurred else 0.0)
            if blurred and planes.centre is before:
                self._sharpen(planes, _INNER_SHARE * proposal.promised, owed_here)
                stuck = False
        return _state(planes, stuck)

    def _many(self, problem: Problem) -> bool:
        return self.restricts and problem.m > _MANY * self.working_set

    def _restricted(self, evaluator: Evaluator, d: Array, kernels: Index, gap: float) -> Array:
        """Solve with these kernels alone, from d; leaves the evaluator at the alpha found."""
        few = replace(evaluator.problem, bank=evaluator.problem.bank.select(kernels))
        start = Point.start(d[kernels], evaluator.alpha, evaluator.intercept)
        limits = Limits(tol=_RESTRICTED_SHARE * gap, max_iter=_RESTRICTED_STEPS)
        # All of them are its working set: it is not restricted once more.
        solver = replace(cast(ActiveSet, self), working_set=len(kernels))
        result = run(few, solver, limits, start)
        evaluator.alpha, evaluator.intercept = result.alpha, result.intercept.copy()
        evaluator.n_solves += result.history[-1].inner_solves
        evaluator.n_steps += result.history[-1].inner_iterations
        out = np.zeros_like(d)
        out[kernels] = result.d
        return out

    def _step_on_some(self, planes: CuttingPlanes, gap: float) -> bool:
        """Solve with the kernels in use and those asked for most; returns whether that helped."""
        evaluator = planes.evaluator
        kernels = planes.working_kernels(_RESTRICTED * self.working_set)
        d = self._restricted(evaluator, planes.centre.d, kernels, gap)
        allowed = _RESTRICTED_SHARE * gap * planes.unit
        point, owed = evaluator.evaluate_until(d, allowed, self.inner_tol)
        helped = point.value + owed < planes.centre.value
        if helped:
            planes.put_centre(point, evaluator.quad(point))
        return helped

    def _try(self, planes: CuttingPlanes, proposal: Proposal, gap: float, left_open: float) -> bool:
        """Solve at the proposed weights and add the cut; returns whether it is of use to go on.

        `left_open` is how far T at the centre may be above its value.
        """
        evaluator, before, shortened = planes.evaluator, planes.centre, False
        if proposal.kind == "safe":
            at = before.d, before.alpha, before.intercept, before.fitted, planes.quad
            if gap <= certify(evaluator.problem, *at, rounding=True).approximation:
                return False  # Rounding of sums in float64 can make as much.
        while True:
            # T there is at least the value of the point: it need not be known how far it fails.
            failed = before.value + left_open - ENOUGH * proposal.promised
            allowed = _INNER_SHARE * max(0.0, proposal.promised)
            point, owed = evaluator.evaluate_until(proposal.d, allowed, self.inner_tol, failed)
            # Half way may do, and is known without the pass over all kernels that a cut takes.
            if shortened or proposal.kind != "curved" or point.value <= before.value + left_open:
                break
            proposal, shortened = planes.half_way(proposal), True
        # A more exact alpha each time, or such steps would go back and forth.
        doubt = owed - left_open if owed <= 0.5 * left_open else owed
        learnt = planes.add(proposal, point, doubt, evaluator.quad(point))
        # Steps of other kinds have safe ones to fall back on.
        return learnt or proposal.kind not in ("safe", "master")

    def _sharpen(self, planes: CuttingPlanes, allowed: float, owed: float) -> None:
        """Make the centre's alpha, which owes `owed`, exact enough to measure steps against it."""
        evaluator = planes.evaluator
        point, left = evaluator.evaluate_until(planes.centre.d, allowed, self.inner_tol)
        if left < owed:
            planes.put_centre(point, evaluator.quad(point))
        planes.sharpest = not left <= 0.5 * owed


@dataclass(frozen=True)
class ActiveSet(BundleSolver):
    r"""Sequential quadratic programming on T(d), for weights on the simplex or under L1.

    T has the gradient :math:`-\frac12 q_k(\alpha)`, and its Hessian tells how alpha answers to a
    change of the kernel (:func:`~kernelweave.solvers.bundle.curvature_root`). Each step
    minimises this model over a working set of kernels (those in use, and those that violate
    optimality most), and then looks at all m kernels again. Where T has no gradient, cutting planes
    lead on (:class:`~kernelweave.solvers.bundle.CuttingPlanes`). With very many kernels a pass over
    all of them is expensive: there a step solves the problem restricted to a larger working set to
    a tenth of the gap first.

    Parameters
    ----------
    working_set : int, default=64
        Most kernels that may enter in one step, beside those in use.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves. Each later one is solved until what it owes is
        a tenth of what its step promises.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=ActiveSet()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    working_set: int = field(default=64, metadata=integer(1))
    inner_tol: float = field(default=1e-3, metadata=number(above=0, most=1))

    name = "active-set"
    restricts = True

    def prepare(self, problem: Problem) -> Problem:
        """Refuse regularizers whose weights do not live in a polyhedron."""
        regularizer = problem.regularizer
        if not (regularizer.polyhedral and regularizer.sparse):
            raise InvalidInputError(
                f"solver 'active-set' takes the regularizers 'simplex' and 'l1'; got "
                f"{problem.regularizer!r}. Use solver='spg' or 'auto'."
            )
        return super().prepare(problem)


@dataclass(frozen=True)
class SILP(BundleSolver):
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


def _aligned_weights(problem: Problem, most: int) -> Array:
    """Equal weights: if there are more kernels, on those most aligned with the targets.

    These have the largest q_k at the alpha that the loss asks for at f = 0.
    """
    if problem.m <= most:
        return problem.start()
    alpha = -problem.loss.gradient(problem.y, np.zeros_like(problem.y), problem.C)
    quad = problem.bank.quad(feasible_alpha(problem, alpha))
    return spread_over(working_kernels(np.zeros(problem.m), -quad, most), problem.start())


def _state(planes: CuttingPlanes, stuck: bool = False) -> State:
    witness = planes.witness
    return State(planes.centre, planes.quad, planes.evaluator, stuck, planes, witness=witness)
