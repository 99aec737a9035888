"""Where to go next, from all that cutting planes tell: SILP's outer loop over the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelweave.arrays import Index
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.base import require_linear
from kernelweave.solvers.certificate import Witness, dual_value
from kernelweave.solvers.curvature import minimise_model, minimise_penalised_model
from kernelweave.solvers.cut_dual import solve_dual, solve_proximal
from kernelweave.solvers.cut_lp import CutLP, MasterSolution
from kernelweave.solvers.cut_qp import nearest_below
from kernelweave.solvers.cuts import Cuts
from kernelweave.solvers.inner import Point, drop_roundoff
from kernelweave.solvers.working_set import working_kernels

__all__ = ["ENOUGH", "CuttingPlanes", "Proposal", "refuse_unsupported"]

# Part of what a step promises that it has to bring, or that the model has to rise by where it does
# not; the usual parameter of serious steps (Bonnans et al. 2006, Numerical Optimization, 10.3).
ENOUGH = 0.1
# Kernels that may enter in one step over the curvature, beside those in use.
_ENTERING = 64
# From this many samples on the curvature is kept for as long as it brings the gap down fivefold.
_KEEP_FROM = 2000
# Steps over the curvature after which a safe one is due if what is left to gain has not halved.
_PATIENCE = 4
# Proximal steps are tried longer and longer, by factors of ten, until they promise enough.
_MOST_PROXIMAL = 12
# Most kernels over which the curvature is taken where all of them have weight.
_MOST_DENSE = 5000

_EPS = float(np.finfo(np.float64).eps)

# Square root of the Hessian over some kernels, at the weights of the newest point.
Root = Callable[[Index], Array]


@dataclass(frozen=True)
class Proposal:
    """Weights to try next, and how far the model of the cuts lets T fall there."""

    d: Array
    promised: float
    kind: str  # "curved", "closed-form", "safe" or "master"


@dataclass
class _Metric:
    """The Hessian of T without r over some kernels, R'R, and the gap when it was last of use."""

    kernels: Index
    root: Array
    gap: float


def _has_prox(regularizer: Regularizer) -> bool:
    return type(regularizer).prox is not Regularizer.prox


def _prox_is_cheap(problem: Problem) -> bool:
    """Whether steps over the curvature by prox steps pay; the closed form does under lp norms."""
    regularizer = problem.regularizer
    return _has_prox(regularizer) and not regularizer.searching and problem.m <= _MOST_DENSE


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

    The *model* :math:`r(d) + \max_j \mathrm{cut}_j(d)` is below T everywhere. The *master* is its
    minimum over all weights: SILP's linear program on a polyhedron (simplex, l1), and smooth under
    other regularizers (:func:`~kernelweave.solvers.cut_dual.solve_dual`). It bounds the optimum
    from below, and the paper goes to its weights; cutting planes are known to zigzag that way.

    So a step tries first where the curvature of T at the centre points to:

    .. math:: \min_d\; r(d) + \max_j \mathrm{cut}_j(d)
              + \tfrac{1}{2} (d - \hat d)' H (d - \hat d)

    on a polyhedron; where the prox of r is cheap, the same with the centre's cut alone; under the
    lp ball and squared lp, the closed form from the norms of the components at the centre
    (:meth:`Regularizer.weights_from_norms`).

    Where such steps do not halve the gap in time, or teach nothing at all, one goes *half way* to
    the master's weights (Ben-Ameur and Neto 2007, Networks 49:3, "in-out" cutting planes). It needs
    no curvature, and ends with certainty: half way the model is at least half the gap below the
    centre, so that either T falls there, or the new cut, which is at most T at the centre and is
    nearly as high half way, is nearly as high at the master's weights too and cuts them off.

    Parameters
    ----------
    problem : Problem
    stabilise : bool
        Without it every step goes to the master's weights, as in the paper. The closed form is
        then for a master that has no answer.

    Attributes
    ----------
    centre, quad : Point, ndarray of shape (m,)
        The best point so far and its q_k.
    witness : Witness or None
        The dual variables with the best lower bound so far.
    """

    def __init__(self, problem: Problem, stabilise: bool) -> None:
        self._problem = problem
        self._stabilise = stabilise
        self._cuts = Cuts(problem)
        self._linear = problem.regularizer.polyhedral
        self._free_sum = self._linear and not problem.regularizer.bounded  # l1
        price = float(problem.regularizer.gradient(np.zeros(1))[0]) if self._free_sum else None
        self._lp = CutLP(self._cuts, price)
        self._curved = self._linear or _prox_is_cheap(problem)
        self._multipliers = np.empty(0)
        self._in_step = np.empty(0)
        self._lower = -np.inf
        self._failed = 0  # steps since the centre was last moved
        self._blind = False  # the last step taught nothing
        self._goal = np.inf  # what was left to gain when that was last halved
        self._waited = 0  # steps over the curvature since then
        self._metric: _Metric | None = None
        self._new_root: tuple[Root, float] | None = None  # of a centre whose curvature is not known
        self.witness: Witness | None = None
        self.centre: Point
        self.quad: Array

    def start(self, point: Point, quad: Array, root: Root) -> None:
        """Take the first point."""
        self._cuts.add(point.alpha, quad)
        self._move(point, quad, root, np.inf)

    def recall(self, witness: Witness) -> None:
        """Take a bound that is known from before, also as a cut."""
        self._cuts.add(witness.alpha, witness.quad)
        value = dual_value(self._problem, witness.alpha, witness.quad)
        self._lower, self.witness = value, witness

    def add(
        self, proposal: Proposal, point: Point, owed: float, quad: Array, root: Root, gap: float
    ) -> bool:
        """Take the point found at the proposed weights; returns whether anything was learnt.

        That is either weights that are better for sure, T there being at most ``owed`` above the
        point's value, or a cut that rises from the model.
        """
        self._cuts.add(point.alpha, quad)
        fell = self.centre.value - point.value
        rose = proposal.promised - fell
        learnt = fell > owed or rose >= ENOUGH * proposal.promised > 0
        self._blind = not learnt
        self._failed += 1
        if fell > owed:
            failed = fell < ENOUGH * proposal.promised
            self._move(point, quad, root, gap)
            self._failed = int(failed)
        return learnt

    def replace_centre(self, point: Point, quad: Array, root: Root, gap: float) -> None:
        """Take a point with a more exact alpha at the same weights as the centre."""
        self._cuts.add(point.alpha, quad)
        self._move(point, quad, root, gap)

    def _move(self, point: Point, quad: Array, root: Root, gap: float) -> None:
        self.centre, self.quad = point, quad
        self._failed = 0
        self._new_root = root, gap

    def _take_curvature(self) -> None:
        """Take the curvature at a new centre, or keep the last one while it serves well."""
        if self._new_root is None or not (self._curved and self._stabilise):
            return
        root, gap = self._new_root
        self._new_root = None
        kernels = np.arange(self._problem.m)
        if self._linear:
            kernels = working_kernels(self.centre.d, self._gradient(), _ENTERING)
        last = self._metric
        same = last is not None and np.array_equal(last.kernels, kernels)
        if last is not None and same and self._problem.n > _KEEP_FROM and gap < 0.2 * last.gap:
            last.gap = gap
            return
        self._metric = _Metric(kernels, root(kernels), gap)

    def _gradient(self) -> Array:
        return self._problem.regularizer.gradient(self.centre.d) - 0.5 * self.quad

    @property
    def unit(self) -> float:
        """What differences of T are compared with."""
        return self._problem.unit(self.centre.value)

    def propose(self, gap: float) -> Proposal:
        """Return the weights to try next; `gap` is the relative gap at the centre."""
        self._take_curvature()
        master = self._solve_master()
        if master is not None:
            self._learn(master)
        room, known = gap * self.unit, self._room()
        # A rough alpha shows less of T at the centre than the best bound does.
        room = min(room, known) if known > 0 else room
        if not self._stabilise:
            if master is None:
                return self._proposal(self._closed_form(), "closed-form")
            return self._proposal(master.d, "master")
        if room <= 0.5 * self._goal:
            self._goal, self._waited = room, 0
        if self._blind or self._waited >= _PATIENCE:
            self._waited = 0
            return self._safe_step(master)
        self._waited += 1
        proposal = self._own_step(0.01 * room)
        # Less than that is a difference that rounding makes.
        return proposal if proposal.promised > _EPS * self.unit else self._safe_step(master)

    def _room(self) -> float:
        """How far T at the centre is above the best bound."""
        return self.centre.value - self._lower

    def _proposal(self, d: Array, kind: str) -> Proposal:
        d = drop_roundoff(d)
        return Proposal(d, self.centre.value - self._model(d), kind)

    def _model(self, d: Array) -> float:
        """What the cuts tell of T(d): it is at least this."""
        return float(self._problem.regularizer.value(d)) + float(self._cuts.values(d).max())

    def _safe_step(self, master: MasterSolution | None) -> Proposal:
        """Half way to the master's weights, or a proximal step where there is no master."""
        if master is not None or self._linear or not _has_prox(self._problem.regularizer):
            there = self._closed_form() if master is None else master.d
            proposal = self._proposal(0.5 * (self.centre.d + there), "safe")
            if not self._linear or proposal.promised >= 0.25 * self._room():
                return proposal
            return max(proposal, self._exact_half_way(), key=lambda one: one.promised)
        return self._proximal_step()

    def _exact_half_way(self) -> Proposal:
        """Half way to the master's weights beyond the tolerances of HiGHS, over some kernels."""
        d = self.centre.d.copy()
        kernels = working_kernels(d, self._gradient(), _ENTERING)
        self._mind_all_cuts(d, kernels, np.zeros((len(kernels), len(kernels))))
        return self._proposal(0.5 * (self.centre.d + d), "safe")

    def _proximal_step(self) -> Proposal:
        """The shortest proximal step, of those tried, that promises half of what is left."""
        multipliers = np.eye(len(self._cuts))[-1]
        size = max(float(np.linalg.norm(self.quad)), 1e-300)
        # Of no weights at all the first ones of a fit tell the unit.
        problem, weights = self._problem, self.centre.d
        if not weights.any():
            weights = problem.start()
        first, best = float(np.linalg.norm(weights)) / size, None
        for power in range(_MOST_PROXIMAL):
            # Steps beyond all numbers are no use, nor are longer ones.
            with np.errstate(over="ignore", invalid="ignore"):
                found = solve_proximal(
                    self._cuts,
                    problem.regularizer,
                    self.centre.d,
                    first * 10.0**power,
                    multipliers,
                    self.centre.value,
                )
                proposal = self._proposal(found.d, "safe")
            if not np.isfinite([*found.d, *found.multipliers, proposal.promised]).all():
                break
            multipliers = found.multipliers
            self._offer(multipliers)
            if best is None or proposal.promised > best.promised:
                best = proposal
            if best.promised >= 0.5 * self._room():
                break
        if best is None:
            return self._proposal(0.5 * (self.centre.d + self._closed_form()), "safe")
        return best

    def _own_step(self, accuracy: float) -> Proposal:
        """A step over what is known at the centre, shorter after each one that failed."""
        if self._metric is None:
            d, kind = self._closed_form(), "closed-form"
        elif self._linear:
            # The cuts of failed steps shorten it.
            return self._proposal(self._newton_step(self._metric, accuracy), "curved")
        else:
            d = minimise_penalised_model(
                self._metric.root,
                -0.5 * self.quad,
                self.centre.d,
                self._problem.regularizer,
                self._problem.reach(self.centre.d),
            )
            kind = "curved"
        step = 0.5**self._failed * (d - self.centre.d)
        return self._proposal(self.centre.d + step, kind)

    def _solve_master(self) -> MasterSolution | None:
        if self._linear:
            return self._lp.solve(self._sum_limit())
        start = np.append(self._multipliers, np.zeros(len(self._cuts) - len(self._multipliers)))
        if not start.sum() > 0:
            start[-1] = 1.0
        return solve_dual(self._cuts, self._problem.regularizer, start, self.centre.value)

    def _sum_limit(self) -> float:
        """Sum of the weights, or what it may grow to under l1."""
        return self._problem.reach(self.centre.d) if self._free_sum else 1.0

    def _learn(self, master: MasterSolution) -> None:
        """Keep the best lower bound, and drop cuts that have long been of no use."""
        self._offer(master.multipliers)
        used = master.multipliers.copy()
        used[: len(self._in_step)] += self._in_step
        idle = self._cuts.used(used)
        self._lp.drop(idle)
        self._multipliers = np.delete(master.multipliers, idle)
        self._in_step = np.empty(0)

    def _own_cut(self, d: Array) -> float:
        """The centre's bound on J(d)."""
        return -self._problem.dual_loss(self.centre.alpha) - 0.5 * float(self.quad @ d)

    def _newton_step(self, metric: _Metric, accuracy: float) -> Array:
        """Minimise the centre's cut with its curvature, or all cuts if any is higher there."""
        kernels = metric.kernels
        hessian = metric.root.T @ metric.root
        most = self._sum_limit() if self._free_sum else None
        gradient, here = self._gradient()[kernels], self.centre.d[kernels]
        d = np.zeros_like(self.centre.d)
        d[kernels] = minimise_model(hessian, gradient, here, accuracy, most)
        if self._cuts.values(d).max() > self._own_cut(d) + accuracy:
            self._mind_all_cuts(d, kernels, hessian)
        return d

    def _mind_all_cuts(self, d: Array, kernels: Index, hessian: Array) -> None:
        """Replace the step by one on the model of all cuts."""
        slopes = -0.5 * self._cuts.quads[:, kernels]
        if self._free_sum:
            slopes = slopes + self._problem.regularizer.gradient(self.centre.d)[kernels]
        here = self.centre.d[kernels]
        found = nearest_below(
            self._cuts.constants, slopes, here, hessian, self._sum_limit(), not self._free_sum
        )
        if found is None:
            d[kernels] = here + 0.5**self._failed * (d[kernels] - here)
        else:
            d[kernels], self._in_step = found
            self._offer(self._in_step)

    def _offer(self, multipliers: Array) -> None:
        """Take the bound of these multipliers if it beats the one that is known.

        Under l1 a master's own value is no bound: the best weights may lie beyond its limit.
        """
        witness = self._cuts.witness(multipliers)
        value = dual_value(self._problem, witness.alpha, witness.quad)
        if value > self._lower:
            self._lower, self.witness = value, witness

    def _closed_form(self) -> Array:
        """Weights from the norms of the components at the centre: a step that never ascends."""
        norms = self.centre.d * np.sqrt(self.quad)
        return self._problem.regularizer.weights_from_norms(norms)
