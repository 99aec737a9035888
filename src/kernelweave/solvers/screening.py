"""Dropping kernels that are provably zero at the optimum (gap-safe screening)."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from kernelweave.arrays import Array
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Problem
from kernelweave.solvers.base import State
from kernelweave.solvers.certificate import Certificate, dual_value

__all__ = ["Screening"]

# The bounds on eigenvalues take a pass of their own: with fewer kernels too little can be saved.
_FEWEST = 20
_EPS = float(np.finfo(np.float64).eps)
# Computed once for a bank, however many fits share it: along a path, or one for each class.
_EIGENVALUE_BOUNDS: WeakKeyDictionary[KernelOperator, Array] = WeakKeyDictionary()


class Screening:
    r"""Finds kernels whose weight is zero at every optimum, from the duality gap.

    If the gradient of the loss is L-Lipschitz, the dual is 1/L-strongly concave, so that a feasible
    alpha with (absolute) duality gap g is within :math:`r = \sqrt{2 L g}` of the optimal one, and

    .. math:: \big| \sqrt{q_k(\alpha)} - \sqrt{q_k(\alpha^*)} \big| \le r \sqrt{\lambda_k},

    where :math:`\lambda_k` bounds the largest eigenvalue of :math:`K_k` on vectors of sum zero
    (both alphas have the same sum). A sparse regularizer turns these intervals into a verdict
    (:meth:`Regularizer.screened <kernelweave.regularizers.Regularizer.screened>`). The reduced
    problem has the same optimum, so its gap is one of the whole problem; the last certificate of a
    fit is taken over all m kernels all the same.

    Attributes
    ----------
    kept : ndarray of int
        The kernels that may still matter.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._lipschitz = float(np.max(problem.loss.lipschitz(problem.C)))
        self._spread: Array | None = None
        self._radius = np.inf
        self.kept = np.arange(problem.m)

    @classmethod
    def for_problem(cls, problem: Problem) -> Screening | None:
        """Return a screening, or None where nothing can be proven or saved."""
        provable = problem.convex and problem.loss.smooth and problem.regularizer.sparse
        # A loss that does not know its Lipschitz constant says it is infinite.
        provable = provable and bool(np.all(np.isfinite(problem.loss.lipschitz(problem.C))))
        return cls(problem) if provable and problem.m >= _FEWEST else None

    def look(self, certificate: Certificate, state: State) -> None:
        """Drop what the certificate of this state proves to be zero."""
        problem = self._problem
        alpha, d = state.point.alpha, state.point.d
        missing = problem.bank.error(alpha, d).quad_missing
        missing = missing + problem.bank.rounding(alpha, d).quad_missing
        # Not certificate.dual, which may be that of a witness: the ball is around this alpha.
        dual = dual_value(problem, alpha, state.quad + missing)
        # The difference of two sums of n terms can be no closer than this to their own.
        rounding = problem.n * _EPS * (abs(certificate.primal) + abs(dual))
        gap = max(0.0, certificate.primal - dual) + rounding
        radius = np.sqrt(2.0 * self._lipschitz * gap)
        if not radius <= 0.7 * self._radius:
            return  # Half the gap is the least that may tell something new.
        self._radius = radius
        if self._spread is None:
            self._spread = _root_of_spread(problem.bank)
        # The dual value is that of alpha scaled into the norm constraint.
        scale = problem.regularizer.dual_scale(state.quad + missing)
        high = scale * np.sqrt(state.quad + missing) + radius * self._spread
        low = scale * np.sqrt(np.maximum(state.quad - missing, 0.0)) - radius * self._spread
        zero = problem.regularizer.screened(np.maximum(low, 0.0), high)
        kept = self.kept[~zero[self.kept]]
        if len(kept) < len(self.kept):
            self.kept = kept
            state.evaluator.keep_only(kept)


def _root_of_spread(bank: KernelOperator) -> Array:
    known = _EIGENVALUE_BOUNDS.get(bank)
    if known is None:
        known = _EIGENVALUE_BOUNDS[bank] = np.sqrt(bank.eigenvalue_bound())
    return known
