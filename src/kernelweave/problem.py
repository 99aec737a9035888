"""The problem every solver is given: kernels, targets, loss, regularizer, combination."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.combine.base import Combination, WeightedSum
from kernelweave.combine.combined import CombinedOperator
from kernelweave.deadline import NEVER, Deadline
from kernelweave.losses.base import Loss
from kernelweave.operators.base import KernelOperator, kernel_runs
from kernelweave.regularizers.base import Regularizer

_EPS, _TINY = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
# Objectives below this part of the best constant predictor's are lost in the rounding of its terms,
# of which there may be many thousands.
_RESOLVED = 1e-12


@dataclass(frozen=True)
class Problem:
    r"""Generalized MKL in its weights form (SPG-GMKL eq. 2 and 3).

    .. math:: \min_{d}\; r(d) + \max_{\alpha}\; -\sum_{t,i} \ell^*_{ti}(-\alpha_{ti})
              - \tfrac12 \sum_t \alpha_t' K(d)\, \alpha_t

    with one row of `alpha` per task t: one for two-class and regression problems, one per class
    when several one-versus-rest problems share their kernel weights.

    Parameters
    ----------
    bank : KernelOperator
        The m kernels on the n samples, or the distances the combination makes a kernel of.
    y : ndarray of shape (T, n)
        Targets (-1 and +1 for classification).
    C : ndarray of shape (T, n)
        Loss weight of every sample: C times its sample and class weight.
    loss : Loss
    regularizer : Regularizer
    combination : Combination
    deadline : Deadline, default=NEVER
        When the fit has to end. It travels with the problem, also into those on some of the
        samples or kernels, to everything that takes long inside one step of a solver.
    """

    bank: KernelOperator
    y: Array
    C: Array
    loss: Loss
    regularizer: Regularizer
    combination: Combination
    deadline: Deadline = NEVER

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.bank.n

    @property
    def m(self) -> int:
        """Number of kernels."""
        return self.bank.m

    @property
    def n_tasks(self) -> int:
        """Number of one-versus-rest problems that share the weights."""
        return len(self.y)

    @property
    def convex(self) -> bool:
        """Whether the problem has a dual, so that a fit can end with a duality gap."""
        return self.combination.linear and self.regularizer.convex

    @cached_property
    def kernel_size(self) -> float:
        """Largest mean diagonal of the kernels: 1 if they are normalised, or made of distances."""
        if self.combination.base != "kernels":
            return 1.0
        # All of them take the n-th part of a pass over the values of the kernels.
        runs = kernel_runs(self.m, self.n)
        return float(max(self.bank.diagonal(run).mean(axis=1).max() for run in runs))

    @cached_property
    def constant_value(self) -> float:
        """Objective of the best constant predictor, with the cheapest weights, which are free.

        A one-class problem has no other constant than zero; it is measured by what a single sample
        would cost, ``K_ii / 2``.
        """
        loss = self.loss
        if loss.task == "one_class":
            return 0.5 * loss.alpha_sum**2 * self.kernel_size
        flat = np.zeros(self.n)
        best = [loss.best_intercept(y, flat, C) for y, C in zip(self.y, self.C, strict=True)]
        level = np.broadcast_to(np.array(best)[:, None], self.y.shape)
        return float(np.sum(loss.value(self.y, level, self.C)))

    @cached_property
    def floor(self) -> float:
        """Objectives below this cannot be told from zero, see :func:`lost_in_rounding`."""
        return lost_in_rounding(self.loss, self.y, self.C, self.constant_value)

    @cached_property
    def weight_unit(self) -> float:
        """What sums of weights are compared with: one where the regularizer bounds them.

        Where it does not, they have the unit of its price over that of the kernels: the weights for
        a function as large as the targets, shared equally by all kernels, or for a smaller one
        whose penalty is at most half of what the best constant costs.
        """
        if self.regularizer.bounded or not self.convex:
            return 1.0
        spread = self.y - self.y.mean(axis=1, keepdims=True)
        size = np.sqrt(np.sum(spread**2) / (self.kernel_size or 1.0)) / self.m
        norms, penalty = np.full(self.m, size), 0.5 * self.constant_value
        for _ in range(60):
            if not penalty > 0 or self.regularizer.omega(norms) <= penalty:
                break
            norms *= 0.5
        return float(self.regularizer.weights_from_norms(norms).sum()) or 1.0

    def start(self) -> Array:
        """Equal weights to start from."""
        return self.weight_unit * self.regularizer.start(self.m)

    def reach(self, d: Array) -> float:
        """Sum that weights without a bound may grow to in one step from d: a trust region."""
        return 2.0 * float(d.sum()) + self.weight_unit

    def unit(self, *values: float) -> float:
        """What a difference of objectives is compared with: their size, or `floor` if that is more.

        Nothing is ever compared with one: an objective has the units of C times the loss.
        """
        return max(self.floor, *(abs(value) for value in values))

    def relative_gap(self, upper: float, lower: float) -> float:
        """Difference of two bounds on the optimum relative to their size; zero if both are."""
        size = self.unit(upper, lower)
        return (upper - lower) / size if size > self.floor else 0.0

    @cached_property
    def decision_unit(self) -> float:
        """What differences of decision values are compared with.

        One for classification, whose margins are one; the spread of the targets for regression; for
        one class the size of the kernels, which is that of K alpha.
        """
        if self.loss.task == "classification":
            return 1.0
        if self.loss.task == "one_class":
            return self.loss.alpha_sum * self.kernel_size or 1.0
        size = float(np.abs(self.y).max())
        spread = float(np.std(self.y / size, axis=1).max()) * size if size > 0 else 0.0
        return spread or size or 1.0

    def as_sum(self) -> Problem:
        r"""Return the same problem as one of a weighted sum, where the combination is linear.

        :math:`K(d) = \sum_k d_k G_k` with :math:`G_k = K(e_k)`: the weights stay what they are,
        and the bank answers for the :math:`G_k`
        (:class:`~kernelweave.combine.CombinedOperator`). Other problems stay as they are.
        """
        if self.combination.is_sum or not self.combination.linear:
            return self
        bank = CombinedOperator.of_linear(self.combination, self.bank)
        return replace(self, bank=bank, combination=WeightedSum())

    def bound(self) -> Problem:
        """Return the problem for solvers: a linear combination is a sum, and the regularizer knows.

        It is told about the kernels and their combination.
        """
        problem = self.as_sum()
        regularizer = problem.regularizer.bind(problem.bank, problem.combination)
        return problem.with_regularizer(regularizer)

    def with_regularizer(self, regularizer: Regularizer) -> Problem:
        """Return the same problem under another regularizer."""
        return replace(self, regularizer=regularizer)

    def with_bank(self, bank: KernelOperator) -> Problem:
        """Return the same problem on another bank of the same kernels."""
        return replace(self, bank=bank)

    def dual_loss(self, alpha: Array) -> float:
        """Sum of loss*(-alpha) over tasks and samples."""
        return float(np.sum(self.loss.conjugate(self.y, alpha, self.C)))

    def inner_value(self, d: Array, alpha: Array, fitted: Array) -> float:
        r"""T(d) as far as this alpha shows it.

        :math:`r(d) - \sum \ell^*(-\alpha) - \frac12 \sum_t \alpha_t' K(d) \alpha_t`, a lower bound
        on the best objective with weights d (SPG-GMKL eq. 3); `fitted` is K(d) alpha.
        """
        quadratic = float(np.sum(alpha * fitted))
        return float(self.regularizer.value(d)) - self.dual_loss(alpha) - 0.5 * quadratic


def lost_in_rounding(loss: Loss, y: Array, C: Array, constant_value: float) -> float:
    """Objective below which nothing can be told from zero in float64.

    It is 1e-12 of that of the best constant predictor, or what predictions of the targets cost that
    are off by some units in the last place: the targets may be all but constant, far from zero.
    """
    least = _RESOLVED * constant_value
    if loss.task == "regression":
        off = loss.value(y, y * (1.0 + 4.0 * _EPS), C) - loss.value(y, y, C)
        least = max(least, float(np.sum(off)))
    return max(least, float(_TINY))
