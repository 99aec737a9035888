"""K_k alpha of every kernel in use, kept so that new weights cost no pass over the kernels."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.combine import Gram
from kernelweave.operators.base import semi_definite
from kernelweave.problem import Problem

__all__ = ["KernelProducts"]

# Beyond this many bytes for all kernels the products are not kept: twice what banks keep of rows
# unless they are told otherwise.
_MOST_BYTES = 2e9


class KernelProducts:
    """Products K_k alpha of a weighted sum of kernels, at the alpha solved last."""

    def __init__(self, problem: Problem, alpha: Array) -> None:
        self._bank = problem.bank
        self._alpha = alpha.copy()
        self._products = np.zeros((problem.m, *alpha.shape))
        self._fresh = np.full(problem.m, not alpha.any())

    @classmethod
    def for_problem(cls, problem: Problem, alpha: Array) -> KernelProducts | None:
        """Return the store, or None where a matrix is formed or the products are too many."""
        bank = problem.bank
        small = 8.0 * problem.m * alpha.size <= _MOST_BYTES
        wanted = problem.combination.is_sum and not bank.forms_matrix and small
        return cls(problem, alpha) if wanted else None

    def fitted(self, gram: Gram) -> Array:
        """K(d) alpha, with a pass over those kernels of weight not zero that are not known yet."""
        stale = gram.active[~self._fresh[gram.active]]
        if len(stale):
            self._products[stale] = self._bank.apply(self._alpha, stale)
            self._fresh[stale] = True
        return np.tensordot(gram.d[gram.active], self._products[gram.active], axes=1)

    def add(self, gram: Gram, task: int) -> None:
        """Take over what the solve of one task has added to the products."""
        if gram.parts is not None:
            self._products[gram.active, task] += gram.parts

    def settle(self, gram: Gram, alpha: Array, fitted: Array) -> None:
        """Note the alpha of a finished solve; the products of kernels not in use are now stale.

        Those in use are known if every product taken was a change of alpha, as in SMO; Newton's
        method also takes products with search directions.
        """
        if not np.array_equal(alpha, self._alpha):
            self._fresh[:] = False
            self._alpha = alpha.copy()
        # Also where alpha stayed: Newton's method takes a product to find that out.
        products = self._products[gram.active]
        total = np.tensordot(gram.d[gram.active], products, axes=1)
        size = np.abs(fitted).max()
        self._fresh[gram.active] = np.allclose(total, fitted, rtol=1e-9, atol=1e-9 * size)

    def belong_to(self, alpha: Array) -> bool:
        """Whether these are the products of that alpha."""
        return np.array_equal(alpha, self._alpha)

    def quad(self, kernels: Array | None) -> Array:
        """q_k(alpha) for those kernels (None: all), zero for the others."""
        wanted = np.arange(len(self._fresh)) if kernels is None else kernels
        quad = np.zeros(len(self._fresh))
        fresh, stale = wanted[self._fresh[wanted]], wanted[~self._fresh[wanted]]
        quad[fresh] = np.einsum("ktn,tn->k", self._products[fresh], self._alpha)
        if len(stale):
            quad[stale] = self._bank.quad(self._alpha, stale)
        return semi_definite(quad, self._alpha, self._bank, np.arange(len(quad)))
