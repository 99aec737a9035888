"""Where to go next from all that is known of T(d): its cutting planes and its curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from kernelweave.arrays import Array, Index
from kernelweave.compiled.dense_rows import fits_float32
from kernelweave.linear_systems import jittered_cholesky
from kernelweave.problem import Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.certificate import Witness, dual_value
from kernelweave.solvers.cuts import (
    CutLP,
    Cuts,
    MasterSolution,
    minimise_model,
    nearest_below,
    solve_dual,
    solve_proximal,
)
from kernelweave.solvers.inner import Evaluator, Point, drop_roundoff, working_kernels
from kernelweave.solvers.newton import MOST_FACTORISED

_EPS = float(np.finfo(np.float64).eps)


# --- Curvature

# From this many on in float32: below, a factor takes less than 50 ms. In float64 throughout, a fit
# of ten widths on 5,000 samples takes 1.2 to 1.9 times as long.
_SINGLE_FROM = 1000
# From this many samples on the curvature is kept for as long as it brings the gap down fivefold: up
# to there it costs less than the pass over all kernels that follows a step.
_KEEP_FROM, _KEPT = 2000, 0.2
# Accelerated steps gain as 1 / steps^2: these suffice for the part of the first one at which they
# end. What is left is less than the model is wrong by.
_MOST_PROX_STEPS, _SMALL_STEP = 500, 1e-4


def curvature_root(evaluator: Evaluator, point: Point, kernels: Index) -> Array:
    r"""R with R'R = H, the Hessian of T without r over `kernels`, summed over tasks.

    T is smooth wherever the set of free support vectors F is, with

    .. math:: H_{kl} = (K_k\alpha)_F'\, M\, (K_l\alpha)_F,

    M being the inverse of :math:`K(d)_{FF} + \mathrm{diag}(1/\ell'')` on the vectors of sum zero.
    """
    problem, roots = evaluator.problem, []
    for t in range(problem.n_tasks):
        free, stiffness = _free_samples(problem, point, t)
        if not len(free):
            continue
        # The model need not be exact, and float32 halves its cost.
        dtype = np.float32 if len(free) > _SINGLE_FROM else np.float64
        changes = problem.bank.apply(point.alpha[t], kernels, free)
        matrix = evaluator.block(point.d, free, dtype)
        if dtype == np.float32 and not fits_float32(matrix.diagonal()):
            dtype = np.float64
            matrix = evaluator.block(point.d, free, dtype)
        matrix[np.diag_indices_from(matrix)] += stiffness.astype(dtype)
        # In proportion to each entry: those of samples that hardly move are larger by far.
        own = matrix.diagonal()
        unit = np.maximum(own, max(1e-6 * float(own.mean()), 0.0) or 1.0)
        factor = jittered_cholesky(matrix, unit, 1e-5 if dtype == np.float32 else 1e-6, most=1e9)
        right = np.column_stack([changes.T, np.ones(len(free))]).astype(factor.dtype)
        white = solve_triangular(factor, right, lower=True, check_finite=False)
        white, ones = white[:, :-1].astype(np.float64), white[:, -1].astype(np.float64)
        # Changes of alpha sum to zero: take out the direction that the intercept absorbs.
        ones = ones / np.linalg.norm(ones)
        roots.append(white - np.outer(ones, ones @ white))
    return np.concatenate(roots) if roots else np.zeros((1, len(kernels)))


def _free_samples(problem: Problem, point: Point, task: int) -> tuple[Index, Array]:
    """Samples whose alpha can move, and how stiffly: the second derivative of loss*."""
    loss, y, C = problem.loss, problem.y[task], problem.C[task]
    alpha = point.alpha[task]
    if loss.smooth:
        curvature = loss.curvature(y, point.fitted[task] + point.intercept[task], C)
        free = np.flatnonzero(curvature > 1e-10 * C.max())
        stiffness = 1.0 / curvature[free]
    else:
        lo, hi = loss.domain(y, C)
        room = 1e-9 * np.maximum(C, 1e-300)
        free = np.flatnonzero((alpha > lo + room) & (alpha < hi - room) & (alpha != 0))
        stiffness = np.zeros(len(free))
    most = problem.bank.square_limit(MOST_FACTORISED, copies=4)
    if len(free) > most:
        # Some of them still give a descent direction.
        pick = np.linspace(0, len(free) - 1, most).astype(np.int64)
        free, stiffness = free[pick], stiffness[pick]
    return free, stiffness


def minimise_penalised_model(
    root: Array,
    gradient: Array,
    d: Array,
    regularizer: Regularizer,
    most: float,
) -> Array:
    r"""Minimise a model of T with r as it is, by accelerated prox steps from d.

    .. math:: r(x) + g \cdot (x - d) + \tfrac12 |R (x - d)|^2

    `gradient` is that of T without r. Momentum starts anew whenever it points uphill. Where R is
    zero, that is where all alpha are at their bounds, nothing but r bends: one prox step is taken,
    as long as a sum of weights of `most`.
    """
    top = float(np.linalg.norm(root @ root.T if len(root) < len(d) else root.T @ root, 2))
    if not top > 0:
        long = most / max(float(np.linalg.norm(gradient)), 1e-300)
        return regularizer.prox(d - long * gradient, long)
    step = 1.0 / top
    x, ahead, age = d, d, 1.0
    first = 0.0
    for _ in range(_MOST_PROX_STEPS):
        slope = gradient + root.T @ (root @ (ahead - d))
        new = regularizer.prox(ahead - step * slope, step)
        move = new - x
        if float((ahead - new) @ move) > 0:
            age = 1.0
        older = age
        age = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * older**2))
        x, ahead = new, new + ((older - 1.0) / age) * move
        size = float(np.linalg.norm(move))
        first = first or size
        if size <= _SMALL_STEP * first:
            break
    return x


# --- Cutting planes

# Part of what a step promises that it has to bring, or that the model has to rise by where it does
# not; the usual parameter of serious steps (Bonnans et al. 2006, Numerical Optimization, 10.3).
ENOUGH = 0.1
# Steps over the curvature after which a safe one is due if what is left to gain has not halved, and
# none of them has brought a tenth of it: the guarantee of the safe ones then costs at most a fifth
# of all steps. To wait for 1 step takes 1.17 times the single-kernel solves, for 20 steps 1.002
# (digits, diabetes and a drawn problem, C from 0.1 to 1,000, three regularizers).
_PATIENCE = 4
# Proximal steps are tried longer and longer, by factors of ten, until they promise enough; beyond
# twelve decades one term of the program is lost in the rounding of the other.
_MOST_PROXIMAL = 12
# Most kernels over which the curvature is taken where all of them have weight: a matrix of 200 MB.
MOST_DENSE = 5000


@dataclass(frozen=True)
class Proposal:
    """Weights to try next, and how far the model of the cuts lets T fall there."""

    d: Array
    promised: float
    kind: str  # "curved", "closed-form", "safe" or "master"


class CuttingPlanes:
    r"""All cuts so far, the best weights so far (the *centre*), and the next weights to try.

    The *model* :math:`r(d) + \max_j \mathrm{cut}_j(d)` is below T everywhere. The *master* is its
    minimum over all weights: SILP's linear program on a polyhedron (simplex, l1), and smooth under
    other regularizers (:func:`~kernelweave.solvers.cuts.solve_dual`). It bounds the optimum
    from below, and the paper goes to its weights; cutting planes are known to zigzag that way.

    So a step tries first where the curvature of T at the centre points to:

    .. math:: \min_d\; r(d) + \max_j \mathrm{cut}_j(d)
              + \tfrac12 (d - \hat d)' H (d - \hat d)

    on a polyhedron; where the prox of r is cheap, the same with the centre's cut alone; under the
    lp ball and squared lp, the closed form from the norms of the components at the centre
    (:meth:`Regularizer.weights_from_norms`). Steps that no other cut changes are halved after each
    one that failed.

    Where such steps do not close the gap in time, or teach nothing at all, one goes *half way* to
    the master's weights (Ben-Ameur and Neto 2007, Networks 49:3, "in-out" cutting planes). It needs
    no curvature, and ends with certainty: half way the model is at least half the gap below the
    centre, so that either T falls there, or the new cut, which is at most T at the centre and is
    nearly as high half way, is nearly as high at the master's weights too and cuts them off.

    Without `stabilise` every step goes to the master's weights, as in the paper; the closed form is
    then for a master that has no answer. At most `working_set` kernels may enter in one step over
    the curvature, beside those in use.
    """

    def __init__(self, evaluator: Evaluator, stabilise: bool, working_set: int) -> None:
        self.evaluator, problem = evaluator, evaluator.problem
        self._problem = problem
        regularizer = problem.regularizer
        self._stabilise, self._working_set = stabilise, working_set
        self._cuts = Cuts(problem)
        self._linear = regularizer.polyhedral
        # Under l1 weights have a price, and any sum.
        free_sum = self._linear and not regularizer.bounded
        self._price = float(regularizer.gradient(np.zeros(1))[0]) if free_sum else None
        self._lp = CutLP(self._cuts, self._price)
        # Under lp norms, whose prox is a search, the closed form does as well as the curvature.
        self._has_prox = type(regularizer).prox is not Regularizer.prox
        cheap = self._has_prox and not regularizer.searching and problem.m <= MOST_DENSE
        self._curved = self._linear or cheap
        # The curvature taken last, its kernels, the point it is used at, and the gap there.
        self._root, self._of_kernels = np.empty((0, 0)), np.empty(0, dtype=np.int64)
        self._used_at: tuple[Point | None, float] = None, np.inf
        self._multipliers = np.empty(0)
        self._in_step = np.empty(0)
        self._lower = -np.inf
        self._witness: Witness | None = None
        self._failed = 0  # weights tried in vain since the centre moved
        self._blind = False  # the last step taught nothing
        self._goal = np.inf  # what was left to gain when that was last halved
        self._waited = 0  # steps over the curvature since then, or since one that brought much
        self.centre: Point  # the best point so far
        self.quad: Array  # its q_k
        self._constant: float  # of its cut
        self.sharpest: bool  # its alpha cannot be made more exact

    def recall(self, witness: Witness) -> None:
        """Take a bound that is known from before, also as a cut."""
        self._cuts.add(witness.alpha, witness.quad)
        self._offer(np.eye(len(self._cuts))[-1])

    def put_centre(self, point: Point, quad: Array) -> None:
        """Take the first point, or one with a more exact alpha at the weights of the centre."""
        self._move(point, quad, self._cuts.add(point.alpha, quad))

    def add(self, proposal: Proposal, point: Point, owed: float, quad: Array) -> bool:
        """Take the point found at the proposed weights; returns whether anything was learnt.

        That is either better weights, with a value that is lower by more than `owed`, or a cut that
        rises from the model.
        """
        constant = self._cuts.add(point.alpha, quad)
        fell, promised = self.centre.value - point.value, proposal.promised
        learnt = fell > owed or promised - fell >= ENOUGH * promised > 0
        self._blind = not learnt
        self._failed += 1
        if fell >= ENOUGH * self._goal:
            self._waited = 0
        if fell > owed:
            self._move(point, quad, constant)
        return learnt

    def _move(self, point: Point, quad: Array, constant: float) -> None:
        self.centre, self.quad, self._constant = point, quad, constant
        self._failed, self.sharpest = 0, False

    @property
    def witness(self) -> Witness | None:
        """The dual variables with the best lower bound so far, if that is not the centre's own."""
        own = dual_value(self._problem, self.centre.alpha, self.quad, -self._constant)
        return self._witness if self._lower > own else None

    @property
    def unit(self) -> float:
        """What differences of T are compared with."""
        return self._problem.unit(self.centre.value)

    def propose(self, gap: float) -> Proposal:
        """Return the weights to try next; `gap` is the relative gap at the centre."""
        # While steps over the curvature fall, there is no need of a master.
        master = self._solve_master() if self._failed or not self._stabilise else None
        if not self._stabilise:
            if master is None:
                return self._proposal(self._closed_form(), "closed-form")
            return self._proposal(master.d, "master")
        room, known = gap * self.unit, self._room()
        # A rough alpha shows less of T at the centre than the best bound does.
        room = min(room, known) if known > 0 else room
        if room <= 0.5 * self._goal:
            self._goal, self._waited = room, 0
        if self._blind or self._waited >= _PATIENCE:
            self._waited = 0
            return self._safe_step(master)
        self._waited += 1
        proposal = self._own_step(gap, 0.01 * room)
        if master is None and self._waited > 1 and proposal.promised < ENOUGH * room:
            # The last step did not halve what is left: a mean of several alphas may prove what the
            # centre's own does not.
            master = self._solve_master()
        # Less than that is a difference that rounding makes.
        return proposal if proposal.promised > _EPS * self.unit else self._safe_step(master)

    def half_way(self, proposal: Proposal) -> Proposal:
        """Return weights half way from the centre, in place of a proposal that failed."""
        self._failed += 1
        return self._proposal(0.5 * (self.centre.d + proposal.d), proposal.kind)

    def working_kernels(self, most: int) -> Index:
        """Kernels in use, and so many of those that the slope at the centre asks for most."""
        return working_kernels(self.centre.d, self._gradient(), most)

    def _room(self) -> float:
        """How far T at the centre is above the best bound."""
        return self.centre.value - self._lower

    def _proposal(self, d: Array, kind: str) -> Proposal:
        """Return the proposal of these weights: T there is at least what the cuts tell."""
        d = drop_roundoff(d)
        model = float(self._problem.regularizer.value(d)) + float(self._cuts.values(d).max())
        return Proposal(d, self.centre.value - model, kind)

    # The master

    def _solve_master(self) -> MasterSolution | None:
        """Minimise the model, keep the bound, and drop cuts that have long been of no use."""
        if self._linear:
            master = self._lp.solve(self._sum_limit())
        else:
            start = np.append(self._multipliers, np.zeros(len(self._cuts) - len(self._multipliers)))
            if not start.sum() > 0:
                start[-1] = 1.0
            master = solve_dual(self._cuts, self._problem.regularizer, start, self.centre.value)
        if master is not None:
            self._offer(master.multipliers)
            used = master.multipliers.copy()
            used[: len(self._in_step)] += self._in_step
            idle = self._cuts.used(used)
            self._lp.drop(idle)
            self._multipliers = np.delete(master.multipliers, idle)
            self._in_step = np.empty(0)
        return master

    def _sum_limit(self) -> float:
        """Sum of the weights, or what it may grow to under l1."""
        return 1.0 if self._price is None else self._problem.reach(self.centre.d)

    def _offer(self, multipliers: Array) -> None:
        """Take the bound of these multipliers if it beats the one that is known.

        Under l1 a master's own value is no bound: the best weights may lie beyond its limit.
        """
        witness = self._cuts.witness(multipliers)
        value = dual_value(self._problem, witness.alpha, witness.quad)
        if value > self._lower:
            self._lower, self._witness = value, witness

    # Steps over what is known at the centre

    def curvature(self, kernels: Index, gap: float) -> Array:
        """R with R'R = H over `kernels`, nearly; `gap` is that of the centre."""
        point, before = self._used_at
        if point is not self.centre:
            self._used_at = self.centre, gap
            kept = self._problem.n > _KEEP_FROM and gap < _KEPT * before
            if not (kept and np.array_equal(kernels, self._of_kernels)):
                self._root = curvature_root(self.evaluator, self.centre, kernels)
                self._of_kernels = kernels
        return self._root

    def _own_step(self, gap: float, accuracy: float) -> Proposal:
        """A step over the curvature or by the closed form."""
        here, kind = self.centre.d, "curved"
        if not self._curved:
            d, kind = self._closed_form(), "closed-form"
        elif self._linear:
            d, kernels = np.zeros_like(here), self.working_kernels(self._working_set)
            root = self.curvature(kernels, gap)
            hessian, gradient = root.T @ root, self._gradient()[kernels]
            most = None if self._price is None else self._sum_limit()
            d[kernels] = minimise_model(hessian, gradient, here[kernels], accuracy, most)
            own = self._constant - 0.5 * float(self.quad @ d)
            if self._cuts.values(d).max() > own + accuracy:
                found = self._mind_all_cuts(kernels, hessian)
                if found is not None:
                    return self._proposal(found, kind)
        else:
            root = self.curvature(np.arange(self._problem.m), gap)
            regularizer, most = self._problem.regularizer, self._problem.reach(here)
            d = minimise_penalised_model(root, -0.5 * self.quad, here, regularizer, most)
        return self._proposal(here + 0.5**self._failed * (d - here), kind)

    def _closed_form(self) -> Array:
        """Weights from the norms of the components at the centre: a step that never ascends."""
        norms = self.centre.d * np.sqrt(self.quad)
        return self._problem.regularizer.weights_from_norms(norms)

    def _gradient(self) -> Array:
        return self._problem.regularizer.gradient(self.centre.d) - 0.5 * self.quad

    def _mind_all_cuts(self, kernels: Index, hessian: Array) -> Array | None:
        """Minimise the model with this curvature over some kernels; None if that has no answer."""
        slopes = (self._price or 0.0) - 0.5 * self._cuts.quads[:, kernels]
        at = self.centre.d[kernels], hessian, self._sum_limit(), self._price is None
        found = nearest_below(self._cuts.constants, slopes, *at)
        if found is None:
            return None
        d = np.zeros_like(self.centre.d)
        d[kernels], self._in_step = found
        self._offer(self._in_step)
        return d

    # Safe steps

    def _safe_step(self, master: MasterSolution | None) -> Proposal:
        """Half way to the master's weights, or a proximal step where there is no master."""
        master = self._solve_master() if master is None else master
        if master is None and not self._linear and (proximal := self._proximal_step()):
            return proximal
        there = self._closed_form() if master is None else master.d
        proposal = self._proposal(0.5 * (self.centre.d + there), "safe")
        if not self._linear or proposal.promised >= 0.25 * self._room():
            return proposal
        # Half way beyond the tolerances of HiGHS, over some kernels.
        kernels = self.working_kernels(self._working_set)
        d = self._mind_all_cuts(kernels, np.zeros((len(kernels), len(kernels))))
        if d is None:
            return proposal
        other = self._proposal(0.5 * (self.centre.d + d), "safe")
        return max(proposal, other, key=lambda one: one.promised)

    def _proximal_step(self) -> Proposal | None:
        """The shortest proximal step, of those tried, that promises half of what is left."""
        if not self._has_prox:
            return None
        multipliers = np.eye(len(self._cuts))[-1]
        # Of no weights at all the first ones of a fit tell the unit.
        regularizer, here = self._problem.regularizer, self.centre.d
        weights = here if here.any() else self._problem.start()
        first = float(np.linalg.norm(weights)) / max(float(np.linalg.norm(self.quad)), 1e-300)
        best = None
        for power in range(_MOST_PROXIMAL):
            # Steps beyond all numbers are no use, nor are longer ones.
            with np.errstate(over="ignore", invalid="ignore"):
                step = first * 10.0**power
                at = here, step, multipliers, self.centre.value
                found = solve_proximal(self._cuts, regularizer, *at)
                proposal = self._proposal(found.d, "safe")
            if not np.isfinite([*found.d, *found.multipliers, proposal.promised]).all():
                break
            multipliers = found.multipliers
            self._offer(multipliers)
            if best is None or proposal.promised > best.promised:
                best = proposal
            if best.promised >= 0.5 * self._room():
                break
        return best
