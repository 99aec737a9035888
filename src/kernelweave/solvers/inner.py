"""Single-kernel problems with the weights held fixed, warm-started, for every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.bank.protocol import semi_definite
from kernelweave.combine.weighted_sum import SumGram
from kernelweave.compiled.dense_rows import square_block
from kernelweave.problem import Array, Problem
from kernelweave.solvers.box_solver import GramSource, solve_box_qp
from kernelweave.solvers.feasible import centre
from kernelweave.solvers.newton import solve_smooth

__all__ = ["Evaluator", "Point", "solve_task", "without_dust"]

_SMALL_N = 300


@dataclass
class Point:
    """Weights and the dual solution that belongs to them.

    Attributes
    ----------
    d : ndarray of shape (m,)
    alpha, fitted : ndarray of shape (T, n)
        Dual variables (feasible) and K(d) alpha.
    intercept : ndarray of shape (T,)
    value : float
        T(d) as far as alpha shows it (:meth:`Problem.inner_value`).
    n_steps : int
        Steps the single-kernel solver took to get here.
    """

    d: Array
    alpha: Array
    fitted: Array
    intercept: Array
    value: float
    n_steps: int


def without_dust(d: Array) -> Array:
    """Remove the rounding that a step to the border of the allowed set leaves behind.

    Examples
    --------
    >>> without_dust(np.array([0.5, 1e-17, -1e-18]))
    array([0.5, 0. , 0. ])
    """
    return np.where(d > 1e-12 * d.max(), d, 0.0)


def solve_task(
    problem: Problem, task: int, gram: GramSource, tol: float, alpha: Array, fitted: Array, b: float
) -> tuple[Array, Array, float, int]:
    """Solve one single-kernel problem from a warm start: (alpha, K alpha, intercept, steps).

    Piecewise-linear losses go to the SMO solver, smooth ones to Newton's method. The alpha
    returned is feasible: inside its box and with the right sum.
    """
    y, C, loss = problem.y[task], problem.C[task], problem.loss
    if not loss.smooth:
        qp = loss.box_qp(y, C)
        box = solve_box_qp(qp, gram, tol=tol, a=qp.split(alpha), fitted=fitted)
        return box.alpha, box.fitted, box.intercept, box.n_steps
    newton = solve_smooth(loss, y, C, gram, tol=tol, alpha=alpha, fitted=fitted, intercept=b)
    return newton.alpha, newton.fitted, newton.intercept, newton.n_steps


class Evaluator:
    """Evaluates T(d) again and again at nearby weights.

    Keeps the last alpha as the warm start of the next solve. When n is too large for a combined
    matrix it also keeps K_k alpha for every kernel that has been active since alpha last changed,
    so that new weights cost no pass over the kernels.
    """

    def __init__(self, problem: Problem, start: Point | None = None) -> None:
        self.problem = problem
        shape = (problem.n_tasks, problem.n)
        self._alpha = np.zeros(shape) if start is None else start.alpha.copy()
        self._intercept = np.zeros(problem.n_tasks) if start is None else start.intercept.copy()
        self._matrix: Array | None = None
        self._matrix_at: Array | None = None
        self._products: Array | None = None
        self._fresh = np.zeros(problem.m, dtype=bool)
        if start is None and problem.loss.alpha_sum:
            lo, hi = problem.loss.domain(problem.y, problem.C)
            total = problem.loss.alpha_sum
            self._alpha = np.array([centre(a, lo[t], hi[t], total) for t, a in enumerate(lo)])

    def evaluate(self, d: Array, tol: float) -> Point:
        """Solve the single-kernel problems at weights d."""
        problem = self.problem
        # A rough alpha needs no more than float32; the last certificate is taken from the bank.
        rough = tol >= 1e-4 and problem.n > _SMALL_N and not problem.loss.smooth
        gram = self._gram(d, np.float32 if rough else np.float64)
        fitted = self._fitted(gram)
        alpha = np.empty_like(self._alpha)
        n_steps = 0
        for t in range(problem.n_tasks):
            gram.parts = None
            alpha[t], fitted[t], self._intercept[t], steps = solve_task(
                problem, t, gram, tol, self._alpha[t], fitted[t], self._intercept[t]
            )
            n_steps += steps
            if gram.parts is not None and self._products is not None:
                self._products[gram.active, t] += gram.parts
        if self._products is not None and not np.array_equal(alpha, self._alpha):
            self._fresh[:] = False
            self._fresh[gram.active] = _follows(gram, self._products[gram.active], fitted)
        self._alpha = alpha
        value = problem.inner_value(d, alpha, fitted)
        return Point(d, alpha.copy(), fitted, self._intercept.copy(), value, n_steps)

    def _gram(self, d: Array, dtype: Any) -> SumGram:
        bank = self.problem.bank
        if bank.n > bank.matrix_limit:
            return self.problem.combination.gram(bank, d)
        if self._matrix is None or self._matrix.dtype != dtype:
            self._matrix = np.empty((bank.n, bank.n), dtype)
        self._matrix_at = d
        return self.problem.combination.gram(bank, d, self._matrix)

    def block(self, d: Array, idx: Array, dtype: Any) -> Array:
        """K(d)[idx][:, idx], from the matrix formed last if that is K(d)."""
        if self._matrix is not None and self._matrix_at is d:
            return square_block(self._matrix, idx, dtype)
        return self.problem.bank.combine_block(d, idx).astype(dtype)

    def _fitted(self, gram: SumGram) -> Array:
        matrix = gram.dense()
        if matrix is not None:
            used = [np.flatnonzero(row) for row in self._alpha]
            rows = zip(used, self._alpha, strict=True)
            return np.array([gram.product(idx, row[idx]) for idx, row in rows])
        if self._products is None:
            self._products = np.zeros((self.problem.m, *self._alpha.shape))
            self._fresh[:] = not self._alpha.any()
        stale = gram.active[~self._fresh[gram.active]]
        if len(stale):
            self._products[stale] = self.problem.bank.matvec(self._alpha, stale)
            self._fresh[stale] = True
        return np.tensordot(gram.d[gram.active], self._products[gram.active], axes=1)

    def quad(self, point: Point) -> Array:
        """q_k(alpha) for all kernels, at the point evaluated last."""
        bank = self.problem.bank
        if self._products is None or not np.array_equal(point.alpha, self._alpha):
            return self.problem.combination.derivative_quad(bank, point.alpha)
        quad = np.empty(self.problem.m)
        fresh, stale = np.flatnonzero(self._fresh), np.flatnonzero(~self._fresh)
        quad[fresh] = np.einsum("ktn,tn->k", self._products[fresh], point.alpha)
        if len(stale):
            quad[stale] = bank.quad(point.alpha, stale)
        return semi_definite(quad, point.alpha, bank, np.arange(self.problem.m))


def _follows(gram: SumGram, products: Array, fitted: Array) -> bool:
    """Whether the products seen during a solve add up to K(d) alpha.

    They do when every product was a change of alpha, as in SMO; Newton's method also takes
    products with search directions, and then the kernels' products must be taken anew.
    """
    total = np.tensordot(gram.d[gram.active], products, axes=1)
    return bool(np.allclose(total, fitted, rtol=1e-9, atol=1e-9 * np.abs(fitted).max()))
