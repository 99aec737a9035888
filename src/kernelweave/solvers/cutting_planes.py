"""Where to go next, from all that cutting planes tell: SILP's outer loop over the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.l1 import L1
from kernelweave.regularizers.lp_ball import LpBall
from kernelweave.regularizers.squared_lp import SquaredLp
from kernelweave.solvers.base import require_linear
from kernelweave.solvers.certificate import Witness, dual_value
from kernelweave.solvers.curvature import minimise_model, minimise_penalised_model
from kernelweave.solvers.cut_dual import solve_dual
from kernelweave.solvers.cut_lp import CutLP, MasterSolution, nearest_below
from kernelweave.solvers.cuts import Cuts
from kernelweave.solvers.inner import Point, without_dust
from kernelweave.solvers.working_set import working_kernels

__all__ = ["CuttingPlanes", "Proposal", "refuse_unsupported"]

# Part of the promised decrease that a step has to bring.
_ENOUGH = 0.1
_SUFFICIENT = 1e-4
# After a step that did not descend, distances from the best weights count this much more.
_STIFFER = 4.0
# Steps are nil long before; without an end it would be infinite, and infinity times zero is NaN.
_STIFFEST = 1e100
_DAMPING = 1e-3
_MOST_TRIALS = 10
# Kernels that may enter in one level step, beside those in use.
_ENTERING = 64
# From this many samples on the curvature is kept for as long as it brings the gap down fivefold.
_KEEP_FROM = 2000
# Most kernels over which the curvature is taken where all of them have weight.
_MOST_DENSE = 5000

# Square root of the Hessian over some kernels, at the weights of the newest point.
Root = Callable[[Array], Array]


@dataclass(frozen=True)
class Proposal:
    """Weights to try next, and how far the model of the cuts promises T to fall."""

    d: Array
    promised: float
    kind: str  # "lp", "level", "dual" or "closed-form"


@dataclass
class _Metric:
    """The Hessian of T without r over some kernels, R'R, and the gap when it was last of use."""

    kernels: Array
    root: Array
    gap: float


def _prox_is_cheap(problem: Problem) -> bool:
    """Whether a level-set step by prox steps pays; under lp norms the closed form does as well."""
    regularizer = problem.regularizer
    has_prox = type(regularizer).prox is not Regularizer.prox
    closed = isinstance(regularizer, LpBall | SquaredLp)
    return has_prox and not closed and problem.m <= _MOST_DENSE


def refuse_unsupported(name: str, problem: Problem) -> None:
    """Raise if the problem is not one for cutting planes."""
    require_linear(name, problem)
    if not problem.regularizer.convex:
        raise InvalidInputError(
            f"solver {name!r} takes convex regularizers ('simplex', 'l1', 'lp_ball', "
            f"'squared_lp', 'elastic_net', 'block_norm', 'entropy'); got "
            f"{problem.regularizer!r}, which is not convex. Use solver='spg' or 'auto'."
        )


class CuttingPlanes:
    r"""All cuts so far, the best weights so far (the *centre*), and the next weights to try.

    With weights on a polyhedron (simplex, l1) the master is SILP's linear program. Its optimum is
    a vertex with at most as many kernels as there are cuts, so its weights are tried once there
    are enough cuts, and for as long as they bring what they promise. Cutting planes are known to
    zigzag; when these do, a level-set step takes their place: the weights nearest to the centre
    among those with a low model value,

    .. math:: \min_d\; r(d) + \max_j \mathrm{cut}_j(d)
              + \tfrac{\sigma}{2} (d - \hat d)' H (d - \hat d),

    with distances measured by the curvature of T at the centre: where one cut is active this is
    a Newton step, and where it was too bold the new cut and a larger :math:`\sigma` shorten it.
    The linear program still gives the lower bound.

    Under other regularizers the master is smooth
    (:func:`~kernelweave.solvers.cut_dual.solve_dual`). Where the prox of r is cheap, steps are
    level-set ones on the centre's cut and the master only bounds; under the lp ball and squared lp
    its weights are tried until they zigzag, and then the closed form takes their place: d from the
    norms of the components at the centre (:meth:`Regularizer.weights_from_norms`), which never
    ascends.

    Parameters
    ----------
    problem : Problem
    stabilise : bool
        Whether level-set and closed-form steps take the place of the master's weights. Without
        them these are the paper's plain cutting planes, and the closed form is for a master that
        has no answer.

    Attributes
    ----------
    centre, quad : Point, ndarray of shape (m,)
        The best point so far and its q_k.
    witness : Witness or None
        The dual variables with the best lower bound so far.
    failed : int
        Steps in a row that did not descend.
    """

    def __init__(self, problem: Problem, stabilise: bool) -> None:
        self._problem = problem
        self._stabilise = stabilise
        self._cuts = Cuts(problem)
        price = None
        if isinstance(problem.regularizer, L1):
            price = float(problem.regularizer.gradient(np.zeros(1))[0])
        self._lp = CutLP(self._cuts, price)
        self._linear = problem.regularizer.polyhedral
        self._curved = self._linear or _prox_is_cheap(problem)
        self._multipliers = np.empty(0)
        self._lower = -np.inf
        self._zigzag = False
        self.failed = 0
        self._stiffness = 1.0
        self._metric: _Metric | None = None
        self.witness: Witness | None = None
        self.centre: Point
        self.quad: Array

    @property
    def stabilised(self) -> bool:
        """Whether steps keep near the centre."""
        return self._stabilise

    def stop_stabilising(self) -> None:
        """Take the master's weights as they are from now on."""
        self._stabilise = False

    def start(self, point: Point, quad: Array, root: Root) -> None:
        """Take the first point."""
        self._cuts.add(point.alpha, quad)
        self._move(point, quad, root, np.inf)

    def recall(self, witness: Witness) -> None:
        """Take a bound that is known from before, also as a cut."""
        self._cuts.add(witness.alpha, witness.quad)
        value = dual_value(self._problem, witness.alpha, witness.quad)
        self._lower, self.witness = value, witness

    def add(self, proposal: Proposal, point: Point, quad: Array, root: Root, gap: float) -> bool:
        """Take the point found at the proposed weights; returns whether it is the new centre."""
        self._cuts.add(point.alpha, quad)
        fell = self.centre.value - point.value
        if proposal.kind in ("lp", "dual") and fell < _ENOUGH * proposal.promised:
            self._zigzag = True
        # What a closed-form step promises is no more than its slope, which can be far too much.
        least = 0.0 if proposal.kind == "closed-form" else _SUFFICIENT * proposal.promised
        if fell <= least:
            self.failed += 1
            if proposal.kind == "level":
                self._stiffness = min(self._stiffness * _STIFFER, _STIFFEST)
            return False
        if proposal.kind == "level" and fell > 0.5 * proposal.promised:
            self._stiffness = max(1.0, self._stiffness / _STIFFER)
        self._move(point, quad, root, gap)
        return True

    def replace_centre(self, point: Point, quad: Array, root: Root, gap: float) -> None:
        """Take a point with a more exact alpha as the centre, whatever its value."""
        self._cuts.add(point.alpha, quad)
        # Steps that got nowhere for want of a better alpha say nothing about distances.
        self._stiffness = 1.0
        self._move(point, quad, root, gap)

    def _move(self, point: Point, quad: Array, root: Root, gap: float) -> None:
        self.centre, self.quad = point, quad
        self.failed = 0
        if not (self._curved and self._stabilise):
            return
        kernels = np.arange(self._problem.m)
        if self._linear:
            kernels = working_kernels(point.d, self._gradient(), _ENTERING)
        last = self._metric
        same = last is not None and np.array_equal(last.kernels, kernels)
        if last is not None and same and self._problem.n > _KEEP_FROM and gap < 0.2 * last.gap:
            last.gap = gap
            return
        self._metric = _Metric(kernels, root(kernels), gap)

    def _gradient(self) -> Array:
        return self._problem.regularizer.gradient(self.centre.d) - 0.5 * self.quad

    def propose(self, gap: float) -> Proposal:
        """Return the weights to try next; `gap` is the relative gap at the centre."""
        accuracy = 0.01 * gap * max(1.0, abs(self.centre.value))
        master = self._solve_master(accuracy)
        if master is not None:
            self._learn(master)
        if self._linear:
            return self._next_linear(master, accuracy)
        if self._stabilise and self._curved:
            return self._level_step(accuracy)
        if master is None or (self._stabilise and self._zigzag):
            return self._closed_form()
        return Proposal(master.d, self.centre.value - master.value, "dual")

    def _solve_master(self, accuracy: float) -> MasterSolution | None:
        if self._linear:
            return self._lp.solve(self._sum_limit())
        start = np.append(self._multipliers, np.zeros(len(self._cuts) - len(self._multipliers)))
        if not start.sum() > 0:
            start[-1] = 1.0
        return solve_dual(self._cuts, self._problem.regularizer, start, accuracy)

    def _sum_limit(self) -> float:
        """Sum of the weights, or what it may grow to under l1."""
        if not isinstance(self._problem.regularizer, L1):
            return 1.0
        return 2.0 * float(self.centre.d.sum()) + 1.0

    def _learn(self, master: MasterSolution) -> None:
        """Keep the best lower bound, and drop cuts that have long been of no use."""
        self._offer(master.multipliers)
        idle = self._cuts.used(master.multipliers)
        self._lp.drop(idle)
        self._multipliers = np.delete(master.multipliers, idle)

    def _next_linear(self, master: MasterSolution | None, accuracy: float) -> Proposal:
        enough = len(self._cuts) >= np.count_nonzero(self.centre.d)
        tried = not self._stabilise or (enough and not self._zigzag)
        if master is not None and tried:
            return Proposal(without_dust(master.d), self.centre.value - master.value, "lp")
        return self._level_step(accuracy)

    def _level_step(self, accuracy: float) -> Proposal:
        """The nearest weights that the model calls good enough, nearer still if cuts object."""
        metric = self._metric
        if metric is None:
            return self._closed_form()
        for _ in range(_MOST_TRIALS):
            if self._linear:
                d = self._newton_step(metric, accuracy)
            else:
                d = minimise_penalised_model(
                    metric.root,
                    -0.5 * self.quad,
                    self.centre.d,
                    self._problem.regularizer,
                    _DAMPING * (self._stiffness - 1.0),
                )
            d = without_dust(d)
            fixed = self.centre.value - float(self._problem.regularizer.value(d))
            promised = fixed - float(self._cuts.values(d).max())
            if promised >= _ENOUGH * (fixed - self._own_cut(d)):
                break
            self._stiffness = min(self._stiffness * _STIFFER, _STIFFEST)
        return Proposal(d, promised, "level")

    def _own_cut(self, d: Array) -> float:
        """The centre's bound on J(d)."""
        return -self._problem.dual_loss(self.centre.alpha) - 0.5 * float(self.quad @ d)

    def _newton_step(self, metric: _Metric, accuracy: float) -> Array:
        """The level-set step on a polyhedron."""
        kernels = metric.kernels
        hessian = self._stiffness * (metric.root.T @ metric.root)
        free_sum = isinstance(self._problem.regularizer, L1)
        gradient, here = self._gradient()[kernels], self.centre.d[kernels]
        d = np.zeros_like(self.centre.d)
        d[kernels] = minimise_model(hessian, gradient, here, accuracy, free_sum)
        if self._cuts.values(d).max() > self._own_cut(d) + accuracy:
            self._mind_all_cuts(d, kernels, hessian, free_sum)
        return d

    def _mind_all_cuts(self, d: Array, kernels: Array, hessian: Array, free_sum: bool) -> None:
        """Replace the step by one on the model of all cuts, if HiGHS finds it."""
        problem, centre = self._problem, self.centre
        slopes = -0.5 * self._cuts.quads[:, kernels]
        if free_sum:
            slopes = slopes + problem.regularizer.gradient(centre.d)[kernels]
        ridge = 1e-8 * max(float(hessian.trace()) / len(hessian), 1e-300)
        metric = hessian + ridge * np.eye(len(hessian))
        found = nearest_below(
            self._cuts.constants,
            slopes,
            centre.d[kernels],
            metric,
            self._sum_limit(),
            not free_sum,
        )
        if found is None:
            return
        weights, multipliers = found
        total = float(weights.sum())
        if total > 0:
            d[kernels] = weights if free_sum else weights / total
            self._offer(multipliers)

    def _offer(self, multipliers: Array) -> None:
        """Take the bound of these multipliers if it beats the one that is known.

        Under l1 a master's own value is no bound: the best weights may lie beyond its limit.
        """
        witness = self._cuts.witness(multipliers)
        value = dual_value(self._problem, witness.alpha, witness.quad)
        if value > self._lower:
            self._lower, self.witness = value, witness

    def _closed_form(self) -> Proposal:
        """Weights from the norms of the components at the centre: a step that never ascends."""
        norms = self.centre.d * np.sqrt(self.quad)
        d = self._problem.regularizer.weights_from_norms(norms)
        slope = float(self._gradient() @ (d - self.centre.d))
        # Taken again from the same centre it would fail again, for want of a better alpha.
        promised = 0.0 if self.failed > 1 else max(-slope, 0.0)
        return Proposal(d, promised, "closed-form")
