"""The problem every solver is given: kernels, targets, loss, regularizer, combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.bank.protocol import MatrixBank
from kernelweave.combine.base import Combination
from kernelweave.combine.linear import LinearBank
from kernelweave.combine.weighted_sum import WeightedSum
from kernelweave.deadline import NEVER, Deadline
from kernelweave.losses.base import Loss
from kernelweave.regularizers.base import Regularizer

__all__ = ["Problem"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    r"""Generalized MKL in its weights form (SPG-GMKL eq. 2 and 3).

    .. math:: \min_{d}\; r(d) + \max_{\alpha}\; -\sum_{t,i} \ell^*_{ti}(-\alpha_{ti})
              - \tfrac12 \sum_t \alpha_t' K(d)\, \alpha_t

    with one row of `alpha` per task t: one for two-class and regression problems, one per class
    when several one-versus-rest problems share their kernel weights.

    Parameters
    ----------
    bank : KernelBank or MatrixBank
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

    bank: Any
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

    def as_sum(self) -> Problem:
        r"""Return the same problem as one of a weighted sum, where the combination is linear.

        :math:`K(d) = \sum_k d_k G_k` with :math:`G_k = K(e_k)`: the weights stay what they are,
        and the bank answers for the :math:`G_k`
        (:class:`~kernelweave.combine.linear.LinearBank`). Other problems stay as they are.
        """
        if self.combination.is_sum or not self.combination.linear:
            return self
        bank = LinearBank.of(self.combination, self.bank)
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

    def with_bank(self, bank: MatrixBank) -> Problem:
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
