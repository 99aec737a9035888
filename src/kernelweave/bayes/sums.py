"""What BEMKL asks of kernels: products of each with a vector of its own, and sums of squares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch

import numpy as np
from scipy.linalg.lapack import dpstrf

from kernelweave.arrays import Array, Index
from kernelweave.bayes.matrices import FullMatrix, Matrix, ThinMatrix
from kernelweave.cluster.by_points import PointShards
from kernelweave.compiled.blocks import STACK_ENTRIES, SUM_PARTS
from kernelweave.compiled.dense_rows import add_row_products
from kernelweave.compiled.low_rank import factor_sums
from kernelweave.compiled.threads import map_blocks, map_columns, one_blas_thread
from kernelweave.linear_systems import SquareSum
from kernelweave.operators.base import KernelOperator, kernel_runs
from kernelweave.operators.dense import DenseOperator
from kernelweave.operators.factors import FactorOperator
from kernelweave.operators.stacked import StackedOperator

# With R rows a thin sum of squares takes n R^2 multiplications in an iteration, a full one n^3 / 3.
_THIN_SHARE = 0.5
# What may be left out of the sum of squares, beside precisions of size one.
_LEFT_OUT = 1e-10


def sum_of_squares(bank: KernelOperator) -> Matrix:
    """S = sum_k K_k K_k, formed once for all iterations and all classes.

    It is thin if the ranks of the kernels, or its own, allow that.
    """
    thin = square_factor(bank)
    if thin is not None and len(thin) <= _THIN_SHARE * bank.n:
        return ThinMatrix.of_rows(thin)
    full = square_sum(bank)
    thin = _low_rank(full)
    return FullMatrix(full) if thin is None else ThinMatrix.of_rows(thin)


def _low_rank(full: Array) -> Array | None:
    """H with H'H = full up to rounding, if it has few rows: Cholesky with pivots, stopped early.

    It takes a sixth of the time of an iteration with the full matrix, and gives kernels of rank 40
    on 1000 samples a fit in a fifth of the time.
    """
    n = len(full)
    tol = max(_LEFT_OUT, n * np.finfo(float).eps * full.diagonal().max())
    upper, pivots, rank, _ = dpstrf(full, tol=tol, lower=0)
    if rank > _THIN_SHARE * n:
        return None
    thin = np.empty((rank, n))
    thin[:, pivots - 1] = np.triu(upper)[:rank]
    return thin


@singledispatch
def sum_products(operator: KernelOperator, V: Array) -> Array:
    """sum_k K_k V[k] for a vector, or T of them, of each kernel's own: (m, T, n) to (T, n)."""
    out = np.zeros((V.shape[1], operator.shape[0]))
    if not operator.keeps_rows:
        for k in range(operator.m):
            out += operator.apply(V[k], np.array([k]))[0]
        return out
    turned = V.transpose(0, 2, 1)
    for idx in kernel_runs(operator.shape[0], operator.m * operator.shape[1]):
        rows = operator.block(idx)
        with one_blas_thread():
            out[:, idx] = np.matmul(rows, turned).sum(axis=0).T
    return out


@sum_products.register
def _(operator: DenseOperator, V: Array) -> Array:
    V = np.ascontiguousarray(V, dtype=np.float64)
    size = -(-operator.m // SUM_PARTS)
    starts = range(0, operator.m, size)
    sums = np.zeros((len(starts), *V.shape[1:]))

    def work(place: int, first: int, last: int) -> None:
        for k in range(starts[place], min(starts[place] + size, operator.m)):
            add_row_products(*operator.matrix(k), V[k], sums[place], first, last)

    map_columns(work, len(starts), operator.n, V.size * operator.n, narrow=1)
    return sums.sum(axis=0)


@sum_products.register
def _(operator: FactorOperator, V: Array) -> Array:
    V = np.ascontiguousarray(V, dtype=np.float64)
    factors, offsets = _factors(operator)
    size = -(-operator.m // SUM_PARTS)
    sums = np.zeros((-(-operator.m // size), *V.shape[1:]))

    def work(start: int, stop: int) -> None:
        factor_sums(factors, offsets, V, sums[start // size], start, stop)

    map_blocks(work, operator.m, size, 2.0 * factors.size * V.shape[1])
    return sums.sum(axis=0)


@sum_products.register
def _(operator: StackedOperator, V: Array) -> Array:
    return sum(added for _, added in operator.of_parts(lambda own: partial(sum_products, V=V[own])))


@sum_products.register
def _(operator: PointShards, V: Array) -> Array:
    out = np.zeros(V.shape[1:])
    copies = 1.0 + 8.0 * V.shape[0] * V.shape[1] / operator.row_bytes

    def call_of(w: int, some: slice) -> Callable[[KernelOperator], Array]:
        return partial(sum_products, V=np.ascontiguousarray(V[:, :, some]))

    everyone = np.arange(operator.n)
    asked = operator.ask(operator.members, call_of, everyone, operator.held(None), copies=copies)
    for _, w, answer in asked:
        out[:, operator.own(w)] += answer
    return out


@singledispatch
def square_sum(operator: KernelOperator) -> Array:
    """sum_k K_k' K_k as a matrix of the samples on the right, float64."""
    height, width = operator.shape
    squares = SquareSum(width)
    for idx in kernel_runs(height, operator.m * width):
        for part in kernel_runs(operator.m, len(idx) * width):
            # K'K is the sum over the rows r of K of r r'.
            rows = operator.block(idx, None, part).reshape(-1, width)
            rows = rows.astype(np.float64, copy=False)
            squares.add(rows, rows)
    return squares.total()


@square_sum.register
def _(operator: FactorOperator) -> Array:
    """F_k'(F_k F_k')F_k, some kernels at a time."""
    squares = SquareSum(operator.n)
    factors, offsets = _factors(operator)
    first = 0
    while first < operator.m:
        ends = (offsets[first + 1 :] - offsets[first]) * operator.n
        last = first + max(1, int(np.searchsorted(ends, STACK_ENTRIES, side="right")))
        own = slice(offsets[first], offsets[last])
        moved = _moved(factors[own], operator.ranks[first:last], lambda gram: gram)
        squares.add(factors[own], moved)
        first = last
    return squares.total()


@square_sum.register
def _(operator: StackedOperator) -> Array:
    return sum(added for _, added in operator.of_parts(lambda own: square_sum))


@square_sum.register
def _(operator: PointShards) -> Array:
    packed = operator.kernels.pack(np.arange(operator.n))
    return np.sum(operator.team.ask_all("ask", operator.members, square_sum, packed), axis=0)


def square_factor(operator: KernelOperator) -> Array | None:
    """H of shape (R, n), R < n, with H'H = sum_k K_k K_k; None if it is not known as such.

    It is known if the ranks of all kernels add up to less than n. With FF' = U diag(s) U' the
    square of K = F'F is F'FF'F = H'H for H = sqrt(s) U'F. Factors may be near singular, where this
    stays exact and a Cholesky factor of FF' does not.
    """
    if isinstance(operator, StackedOperator):
        found: list[Array] = []
        for part in operator.parts:
            factor = square_factor(part)
            if factor is None or sum(map(len, found)) + len(factor) >= operator.n:
                return None
            found.append(factor)
        return np.vstack(found)
    if operator.ranks is None or operator.ranks.sum() >= operator.n:
        return None

    def root(gram: Array) -> Array:
        s, U = np.linalg.eigh(gram)
        return (U * np.sqrt(np.maximum(s, 0.0))).T

    return _moved(_factors(operator)[0], operator.ranks, root)


def _factors(operator: KernelOperator) -> tuple[Array, Index]:
    """The factors of all kernels one below the other, and where each begins and the last ends."""
    factors, owner = operator.factor_of(np.arange(operator.m))
    return factors, np.searchsorted(owner, np.arange(operator.m + 1))


def _moved(factors: Array, ranks: Index, map_of: Callable[[Array], Array]) -> Array:
    """Factors of kernels of these ranks, each multiplied by a matrix that comes from its FF'."""
    out = np.empty_like(factors)
    offsets = np.concatenate([[0], np.cumsum(ranks)])

    def work(start: int, stop: int) -> None:
        for k in range(start, stop):
            own = slice(offsets[k], offsets[k + 1])
            np.matmul(map_of(factors[own] @ factors[own].T), factors[own], out=out[own])

    map_blocks(
        work, len(ranks), 1, 2.0 * factors.shape[1] * float(np.sum(ranks.astype(float) ** 2))
    )
    return out
