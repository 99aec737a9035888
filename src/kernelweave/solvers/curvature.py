"""The curvature of T(d): how the optimal alpha answers to a change of the kernel weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from kernelweave.arrays import Array, Index
from kernelweave.compiled.matrix_checks import fits_float32
from kernelweave.linear_systems import jittered_cholesky
from kernelweave.losses.base import BoxQP
from kernelweave.problem import Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.box_solver import DenseGram, solve_box_qp
from kernelweave.solvers.inner import Point

__all__ = ["curvature_root", "minimise_model", "minimise_penalised_model"]

# Most samples that enter the curvature, whose factor is the work of a second: beyond, some of them
# still give a descent direction.
_MOST_CURVED = 3000
# From this many on in float32: below, a factor takes less than 50 ms.
_SINGLE_FROM = 1000
# Added to a Hessian that may be singular, far below what the model is wrong by.
_RIDGE = 1e-10
# Accelerated steps gain as 1 / steps^2: these suffice for the part of the first one at which they
# end. What is left is less than the model is wrong by.
_MOST_PROX_STEPS, _SMALL_STEP = 500, 1e-4


def curvature_root(
    problem: Problem,
    point: Point,
    kernels: Index,
    products: Callable[[int, Index, Index], Array],
    block: Callable[[Array, Index, type], Array],
) -> Array:
    r"""R with R'R = H, the Hessian of T over `kernels`, summed over tasks.

    T is smooth wherever the set of free support vectors F is, with

    .. math:: H_{kl} = (K_k\alpha)_F'\, M\, (K_l\alpha)_F,

    M being the inverse of :math:`K(d)_{FF} + \mathrm{diag}(1/\ell'')` on the vectors of sum zero.
    ``products(task, samples, kernels)`` is (K_k alpha_task)[samples], one row a kernel, and
    ``block(d, samples, dtype)`` is K(d) on these samples.
    """
    roots = []
    for t in range(problem.n_tasks):
        free, stiffness = _free_samples(problem, point, t)
        if not len(free):
            continue
        # The model need not be exact, and float32 halves its cost.
        dtype = np.float32 if len(free) > _SINGLE_FROM else np.float64
        changes = products(t, free, kernels)
        matrix = block(point.d, free, dtype)
        if dtype == np.float32 and not fits_float32(matrix.diagonal()):
            dtype = np.float64
            matrix = block(point.d, free, dtype)
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
    most = problem.bank.square_limit(_MOST_CURVED, copies=4)
    if len(free) > most:
        pick = np.linspace(0, len(free) - 1, most).astype(np.int64)
        free, stiffness = free[pick], stiffness[pick]
    return free, stiffness


def minimise_model(
    hessian: Array, gradient: Array, d: Array, accuracy: float, most: float | None = None
) -> Array:
    """Minimise g'(x - d) + 1/2 (x - d)'H(x - d) over weights x >= 0.

    They keep the sum of d, or have any sum up to `most`. `accuracy` is how far above the minimum
    the model may end.

    Examples
    --------
    >>> minimise_model(np.eye(2), np.array([-0.2, 0.0]), np.array([0.5, 0.5]), 1e-9)
    array([0.6, 0.4])
    """
    H = hessian.copy()
    H[np.diag_indices_from(H)] += _RIDGE * max(H.trace() / len(H), 1e-300)
    linear = gradient - H @ d
    total = float(d.sum())
    at = d
    if most is not None:
        # One more variable takes up what is left of the sum.
        total = most
        H = np.pad(H, ((0, 1), (0, 1)))
        linear = np.append(linear, 0.0)
        at = np.append(d, total - d.sum())
    size = len(linear)
    qp = BoxQP(np.ones(size), linear, np.full(size, total), np.arange(size, dtype=np.int64), total)
    steps = 100 * size + 10_000
    return solve_box_qp(qp, DenseGram(H), tol=accuracy / total, a=at, max_iter=steps).a[: len(d)]


def minimise_penalised_model(
    root: Array,
    gradient: Array,
    d: Array,
    regularizer: Regularizer,
    most: float,
) -> Array:
    r"""Minimise a model of T with r as it is, by accelerated prox steps from d.

    .. math:: r(x) + g \cdot (x - d) + \tfrac12 |R (x - d)|^2

    `gradient` is that of T without r. Momentum starts anew whenever it
    points uphill. Ends when a step is a ten-thousandth of the first one. Where R is zero, that is
    where all alpha are at their bounds, nothing but r bends: one prox step is taken, as long as a
    sum of weights of `most`.
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
