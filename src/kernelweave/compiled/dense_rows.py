"""Blocks and products of chosen rows and columns of one dense matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from kernelweave.compiled.blocks import CACHED_COLUMNS, GATHERED_ROWS
from kernelweave.compiled.passes import add_rows, add_rows_of_four, add_some_rows
from kernelweave.compiled.threads import map_blocks

__all__ = [
    "add_rectangle",
    "add_weighted_rows",
    "copy_rectangle",
    "rectangle",
    "rows_product",
    "square_block",
]

# A scattered read of a large matrix is a cache miss: it takes as long as this many products.
_MISS = 16


@njit(cache=True, nogil=True)
def copy_rectangle(
    K: NDArray,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    scale: float,
    out: NDArray,
    start: int,
    stop: int,
) -> None:
    """out[r, c] = scale K[left[r], right[c]] for r in start..stop; fastest for sorted columns."""
    for r in range(start, stop):
        row = K[left[r]]
        target = out[r]
        for c in range(right.size):
            target[c] = scale * row[right[c]]


@njit(cache=True, nogil=True, fastmath=True)
def add_rectangle(
    K: NDArray,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    weight: float,
    out: NDArray,
    start: int,
    stop: int,
) -> None:
    """out[r, c] += weight K[left[r], right[c]] for r in start..stop."""
    for r in range(start, stop):
        row = K[left[r]]
        target = out[r]
        for c in range(right.size):
            target[c] += weight * row[right[c]]


def rectangle(
    K: NDArray, left: NDArray[np.int64], right: NDArray[np.int64], dtype: DTypeLike = np.float64
) -> NDArray:
    """Return ``K[left][:, right]`` in the given dtype.

    Examples
    --------
    >>> import numpy as np
    >>> rectangle(np.diag([1.0, 2.0, 3.0]), np.array([2]), np.array([0, 2]))
    array([[0., 3.]])
    """
    if not K.flags.c_contiguous:
        return K[np.ix_(left, right)].astype(dtype, copy=False)
    # NumPy asks for huge pages, which Numba's own arrays do not get: fewer page faults.
    out = np.empty((left.size, right.size), dtype=dtype)

    def work(start: int, stop: int) -> None:
        copy_rectangle(K, left, right, 1.0, out, start, stop)

    map_blocks(work, left.size, GATHERED_ROWS, _MISS * out.size)
    return out


def square_block(K: NDArray, idx: NDArray[np.int64], dtype: DTypeLike = np.float64) -> NDArray:
    """Return ``K[idx][:, idx]`` in the given dtype."""
    return rectangle(K, idx, idx, dtype)


def add_weighted_rows(
    matrices: Sequence[NDArray], weights: NDArray, idx: NDArray[np.int64], out: NDArray
) -> None:
    """Add sum_k weights[k] matrices[k][idx] to `out`, four matrices at a time.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.zeros((1, 2))
    >>> add_weighted_rows([np.eye(2), np.ones((2, 2))], np.array([1.0, 2.0]), np.array([1]), out)
    >>> out
    array([[2., 3.]])
    """
    alike = len({K.dtype for K in matrices}) == 1
    whole = len(matrices) - len(matrices) % 4 if alike else 0
    for p in range(0, whole, 4):
        K0, K1, K2, K3 = matrices[p : p + 4]
        add_rows_of_four(K0, K1, K2, K3, weights[p : p + 4], idx, out)
    for p in range(whole, len(matrices)):
        add_some_rows(matrices[p], idx, weights[p], out)


def rows_product(K: NDArray, idx: NDArray[np.int64], delta: NDArray) -> NDArray[np.float64]:
    r"""Return :math:`\sum_r \delta_r K_{idx_r, \cdot}`, accumulated in float64.

    Examples
    --------
    >>> import numpy as np
    >>> rows_product(np.eye(3, dtype=np.float32), np.array([0, 2]), np.array([1.0, 2.0]))
    array([1., 0., 2.])
    """
    n = K.shape[1]
    out = np.zeros(n)
    weights = np.ascontiguousarray(delta, dtype=np.float64)
    map_blocks(
        lambda lo, hi: add_rows(K, idx, weights, out, lo, hi), n, CACHED_COLUMNS, n * idx.size
    )
    return out
