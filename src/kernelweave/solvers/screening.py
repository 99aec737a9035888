"""Which kernels to look at: those that may matter at the optimum, and those to begin with."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Problem
from kernelweave.solvers.base import State
from kernelweave.solvers.certificate import Certificate, dual_value

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
    fit is taken over all m kernels all the same. Those that may still matter are `kept`.
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
            bank = problem.bank
            if bank not in _EIGENVALUE_BOUNDS:
                _EIGENVALUE_BOUNDS[bank] = bank.eigenvalue_bound()
            self._spread = np.sqrt(_EIGENVALUE_BOUNDS[bank])
        # The dual value is that of alpha scaled into the norm constraint.
        scale = problem.regularizer.dual_scale(state.quad + missing)
        high = scale * np.sqrt(state.quad + missing) + radius * self._spread
        low = scale * np.sqrt(np.maximum(state.quad - missing, 0.0)) - radius * self._spread
        zero = problem.regularizer.screened(np.maximum(low, 0.0), high)
        kept = self.kept[~zero[self.kept]]
        if len(kept) < len(self.kept):
            self.kept = kept
            state.evaluator.keep_only(kept)


def spread_over(kernels: Index, d: Array) -> Array:
    """Equal weights on some kernels, with the sum of d."""
    out = np.zeros_like(d)
    out[kernels] = d.sum() / len(kernels)
    return out


def working_kernels(d: Array, gradient: Array, most: int) -> Index:
    """Kernels in use, and at most so many of the others: those whose gradient is lowest.

    In order; of equal ones the first.
    """
    outside = np.flatnonzero(d == 0)
    best = outside[np.argsort(gradient[outside], kind="stable")[:most]]
    return np.sort(np.concatenate([np.flatnonzero(d), best]))
