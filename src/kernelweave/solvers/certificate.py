"""The duality gap of a fit, recomputed from the problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.problem import Array, Problem
from kernelweave.solvers.feasible import centre

__all__ = ["Certificate", "certify", "feasible_alpha", "recompute"]


@dataclass(frozen=True)
class Certificate:
    """Proof of how far a fit is from the optimum.

    Attributes
    ----------
    primal : float
        Objective of the fitted function: the optimum is at most this.
    dual : float
        Dual objective of a feasible alpha: the optimum is at least this.
    gap : float
        (primal - dual) / max(1, abs(primal)).
    approximation : float
        The part of `gap` owed to the bank (factors, float32) rather than to the solver.
    bank_primal : float
        The objective on the bank's own kernels, before its errors are counted against it.
    intercept : ndarray of shape (T,)
        The intercepts at which `primal` was taken.
    """

    primal: float
    dual: float
    gap: float
    approximation: float
    bank_primal: float
    intercept: Array


def feasible_alpha(problem: Problem, alpha: Array) -> Array:
    """Return alpha moved to the nearest point of its box with the right sum."""
    lo, hi = problem.loss.domain(problem.y, problem.C)
    rows = [centre(alpha[t], lo[t], hi[t], problem.loss.alpha_sum) for t in range(problem.n_tasks)]
    return np.array(rows)


def certify(
    problem: Problem, d: Array, alpha: Array, intercept: Array, fitted: Array, quad: Array
) -> Certificate:
    r"""Bound the optimum from both sides at one point.

    The primal value is that of f_k = d_k K_k alpha, the dual value that of alpha scaled into the
    norm constraint where there is one. What the bank cannot know exactly is counted against us:
    the quadratic forms of the dual are raised, the losses of the primal taken at the worst end.

    Parameters
    ----------
    problem : Problem
    d : ndarray of shape (m,)
    alpha : ndarray of shape (T, n)
        Dual variables inside their box, with the right sum (see :func:`feasible_alpha`).
    intercept : ndarray of shape (T,)
        A first guess; better ones are searched for.
    fitted : ndarray of shape (T, n)
        K(d) alpha.
    quad : ndarray of shape (m,)
        q_k(alpha), summed over tasks, for all m kernels.
    """
    error = problem.bank.error(alpha, d)
    best = _best_intercepts(problem, fitted, intercept)
    primal = _primal(problem, d, fitted, best, quad, 0.0)
    dual = _dual(problem, alpha, quad)
    upper = _primal(problem, d, fitted, best, quad + error.norm_missing, error.product)
    lower = _dual(problem, alpha, quad + error.quad_missing)
    gap = (upper - lower) / max(1.0, abs(upper))
    exact = (primal - dual) / max(1.0, abs(primal))
    return Certificate(upper, lower, gap, max(0.0, gap - exact), primal, best)


def recompute(
    problem: Problem, d: Array, alpha: Array, intercept: Array
) -> tuple[Certificate, Array]:
    """Certify from nothing but the weights and the dual variables; returns the alpha it used."""
    alpha = feasible_alpha(problem, alpha)
    active = np.flatnonzero(d)
    products = problem.bank.matvec(alpha, active)
    fitted = np.tensordot(d[active], products, axes=1)
    quad = problem.combination.derivative_quad(problem.bank, alpha)
    return certify(problem, d, alpha, intercept, fitted, quad), alpha


def _best_intercepts(problem: Problem, fitted: Array, guess: Array) -> Array:
    loss = problem.loss
    return np.array(
        [
            loss.best_intercept(problem.y[t], fitted[t], problem.C[t], start=guess[t])
            for t in range(problem.n_tasks)
        ]
    )


def _primal(
    problem: Problem, d: Array, fitted: Array, intercept: Array, quad: Array, slack: Array | float
) -> float:
    """Largest objective over decision values within `slack` of those given.

    Each sample's loss is convex in its decision value, so the worst is at one of two ends.
    """
    decision = fitted + intercept[:, None]
    loss = problem.loss.value(problem.y, decision, problem.C)
    if np.any(slack):
        low = problem.loss.value(problem.y, decision - slack, problem.C)
        high = problem.loss.value(problem.y, decision + slack, problem.C)
        loss = np.maximum(low, high)
    norms = d * np.sqrt(quad)
    penalty = problem.regularizer.omega(norms)
    return float(np.sum(loss) + problem.loss.alpha_sum * np.sum(intercept) + penalty)


def _dual(problem: Problem, alpha: Array, quad: Array) -> float:
    scale = problem.regularizer.dual_scale(quad)
    return float(
        -problem.dual_loss(scale * alpha) - problem.regularizer.dual_penalty(scale**2 * quad)
    )
