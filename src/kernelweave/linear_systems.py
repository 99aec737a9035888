"""Linear systems: one Cholesky factor that minds rounding, one with pivots, and one iteration;
and sums of symmetric products.

Kernel matrices are positive semi-definite, but for rounding, and often singular. All that takes
them apart goes through this module. (The covariances of BEMKL are definite by far, and inverted in
blocks on threads: :mod:`kernelweave.bayes.matrices`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, lu_solve, pinvh
from scipy.linalg.lapack import dgetrf, dpotrf, spotrf

from kernelweave.arrays import Array
from kernelweave.compiled.dense_rows import mirror_rows
from kernelweave.compiled.low_rank import eliminate
from kernelweave.compiled.threads import map_blocks

Solve = Callable[[Array], Array]

# From one trial to the next the jitter grows by this factor.
_GROWTH = 100.0
# What is added to a diagonal that is not positive, relative to its largest entry.
_RIDGE = 1e-13
# Columns that a thread takes at a time: enough for BLAS, and so few that the half of a square that
# blocks leave out is nearly a half. They never follow the number of threads: same bits on any
# machine.
_COLUMN_BLOCK = 64


def jittered_cholesky(
    matrix: Array,
    unit: Array | float | None = None,
    first: float = 0.0,
    most: float = 1e-4,
) -> Array:
    r"""Lower Cholesky factor of a matrix with as little as needed added to its diagonal.

    L with zeros above its diagonal and :math:`L L^\top = A + t\,\mathrm{diag}(\mathrm{unit})`, A
    being symmetric and positive semi-definite but for rounding; it is not changed. The `unit` is
    the largest entry of the diagonal unless given. The t is `first`, then a hundred times as much,
    up to `most` (after zero, the resolution of the numbers); if none helps, a `LinAlgError`.
    """
    if not len(matrix):
        return matrix.copy()
    potrf = spotrf if matrix.dtype == np.float32 else dpotrf
    if unit is None:
        top = float(matrix.diagonal().max())
        unit = top if top > 0 else 1.0
    share = first
    while share <= most:
        # Of a symmetric matrix the transpose is as good, and in the order that LAPACK works in.
        raised = matrix.copy()
        if share:
            raised.flat[:: len(raised) + 1] += share * np.asarray(unit, dtype=raised.dtype)
        factor, info = potrf(raised.T, lower=1, clean=1, overwrite_a=1)
        # (NaN can pass LAPACK by.)
        if info == 0 and np.isfinite(factor[-1, -1]):
            return np.asarray(factor)
        share = _GROWTH * share if share else float(np.finfo(matrix.dtype).eps)
    raise LinAlgError(
        f"the matrix is not positive definite, nor with {most:g} of its diagonal added to that."
    )


def cholesky(K: Array, D: Array) -> Solve:
    """Solve with K + diag(D), scaled to a diagonal of ones; K is overwritten. Takes columns too.

    D is infinite for samples that cannot move, for which the answer is zero.
    """
    # Differences of huge numbers may end just below zero.
    total = np.maximum(D + K.diagonal(), 0.0)
    size = np.where(np.isfinite(total), total, 0.0)
    ridge = _RIDGE * float(size.max(initial=0.0))
    # Zero for samples that cannot move, and for those that nothing holds: K is zero there.
    scale = np.zeros_like(total)
    np.divide(1.0, np.sqrt(total + ridge), out=scale, where=total + ridge > 0)
    K *= scale[:, None]
    K *= scale
    K.flat[:: len(K) + 1] = 1.0
    try:
        factor = jittered_cholesky(K, ridge * scale**2, first=1.0, most=1e14), True
    except LinAlgError:
        return diagonal(total)
    return lambda v: (scale * cho_solve(factor, (scale * v.T).T, check_finite=False).T).T


def diagonal(total: Array) -> Solve:
    """Solve with a diagonal matrix. Takes columns too."""
    inverse = 1.0 / np.maximum(total, np.finfo(np.float64).tiny)
    return lambda v: (inverse * v.T).T


def with_low_rank(solve: Solve, V: Array, s: Array) -> Solve:
    """Solve with A + V'diag(s) V by Woodbury's formula; `solve`, that with A, takes columns too."""
    keep = s != 0
    V, s = V[keep], s[keep]
    if not len(s):
        return solve
    # (diag(1/s) + V A^-1 V') with its rows scaled, so that no size of s overflows.
    V = np.sqrt(np.abs(s))[:, None] * V
    Z = solve(V.T.copy())
    small = V @ Z
    small[np.diag_indices(len(s))] += np.sign(s)
    *factor, singular = dgetrf(small)
    # Of a matrix without an inverse, the rows of V in which it has one.
    pseudo = pinvh(small, check_finite=False) if singular else None

    def whole(v: Array) -> Array:
        u = solve(v)
        w = V @ u
        w = lu_solve(factor, w, check_finite=False) if pseudo is None else pseudo @ w
        return u - Z @ w

    return whole


def pivoted_cholesky(
    row: Callable[[int], Array],
    residual: Array,
    target: float,
    most: int,
    negative: float = np.inf,
) -> Array:
    """Incomplete Cholesky factor of a matrix that only offers rows: K ~ F'F, one row a pivot.

    Each pivot is the row that the factor explains worst. What is left, K - F'F, is positive
    semi-definite and its diagonal is known, so that one can stop at any error of the trace
    (Harbrecht, Peters, Schneider 2012). `residual` is the diagonal of K, and becomes that of what
    is left; `target` is the trace of what may be left, `most` the largest rank.

    `negative` is the part of its own entry by which rounding may make the residual negative.
    Beyond, K is not positive semi-definite, and `LinAlgError` is raised.
    """
    n, most = len(residual), min(most, len(residual))
    slack = negative * residual if negative < np.inf else None
    factor = np.empty((min(most, 32), n))
    rank = 0
    while rank < most and residual.sum() > target:
        pivot = int(residual.argmax())
        if residual[pivot] <= 0:
            break
        if rank == len(factor):
            factor = np.vstack([factor, np.empty((min(rank, most - rank), n))])
        factor[rank] = row(pivot)
        left = None if slack is None else residual + slack
        eliminate(factor, rank, pivot, float(np.sqrt(residual[pivot])), residual)
        if left is not None and not np.all(factor[rank] ** 2 <= left):  # (NaN is refused, too)
            raise LinAlgError("the matrix is not positive semi-definite.")
        rank += 1
    return factor[:rank]


def conjugate_gradients(
    product: Solve, precondition: Solve, residual: Array
) -> Iterator[tuple[float, Array, Array]]:
    """Steps of the preconditioned method of conjugate gradients for A x = residual, from x = 0.

    Each step is (length, direction, what is left of the residual after it); the caller adds the
    steps up and decides when they are enough. They end by themselves where nothing is left. A
    length that is not positive says that A or the preconditioner is not positive definite.
    """
    left = residual
    z = precondition(left)
    direction, size = z, float(left @ z)
    while 0.0 < abs(size) < np.inf:
        image = product(direction)
        bend = float(direction @ image)
        if not abs(bend) > 0.0:
            return
        length = size / bend
        left = left - length * image
        yield length, direction, left
        z = precondition(left)
        before, size = size, float(left @ z)
        direction = z + (size / before) * direction


class SquareSum:
    """A sum of symmetric products A'B of matrices of n columns, float64."""

    def __init__(self, n: int) -> None:
        self._lower = np.zeros((n, n))

    def add(self, A: Array, B: Array) -> None:
        """Add A'B, which is symmetric, in blocks of columns up to the diagonal."""
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        n = A.shape[1]
        blocks = -(-n // _COLUMN_BLOCK)

        def work(first: int, last: int) -> None:
            for item in range(first, last):
                # The longest blocks come first, so that no thread is left with one at the end.
                start = (blocks - 1 - item) * _COLUMN_BLOCK
                stop = min(start + _COLUMN_BLOCK, n)
                self._lower[start:stop, :stop] += A[:, start:stop].T @ B[:, :stop]

        map_blocks(work, blocks, 1, A.size * n / 2)

    def total(self) -> Array:
        out = self._lower
        map_blocks(lambda a, b: mirror_rows(out, a, b), len(out), _COLUMN_BLOCK, float(out.size))
        return out
