"""Inner products of centred kernels, for every operator and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES, STACK_ENTRIES
from kernelweave.compiled.threads import map_blocks, rows_of
from kernelweave.linear_systems import SquareSum
from kernelweave.memory import require_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.factors import FactorOperator
from kernelweave.operators.stacked import StackedOperator

# The fewest rows that are asked for at a time: a computed row needs all samples, and one at a time
# would read them for it alone. For 16 Gaussian kernels on 2,500 samples 26 and 32 rows took as
# long, 160, which leave the cache, a fifth longer.
_FEWEST_ROWS = 32
# Rows of factors that are multiplied with one another at a time: a block of the products is 0.5 MB,
# in the second-level cache of a core. For 400 kernels of rank 4 this took 233 ms, 503 with 51 rows
# and 365 with 1,280.
_FACTOR_ROWS = 256
# Kernels whose products with the others a thread computes at a time.
_KERNEL_BLOCK = 64
# A kernel whose centred part is below this part of its trace is constant but for rounding.
_CONSTANT = 1e-6


def centred_squares(operator: KernelOperator) -> Array:
    r"""Squared Frobenius norms :math:`|H K_k H|_F^2` with :math:`H = I - 11^\top / n`, shape (m,).

    Factored kernels cost :math:`n r_k^2`, others one pass over their entries. Memory does not grow
    with the number of samples times that of kernels. Kernels that are constant but for rounding
    have exactly zero.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> y = np.array([1.0, -1.0, 1.0, -1.0])
    >>> centred_squares(DenseOperator([np.outer(y, y), np.ones((4, 4))]))
    array([16.,  0.])
    """
    out = np.empty(operator.m)
    for part, own in _leaves(operator, np.arange(operator.m)):
        if isinstance(part, FactorOperator):
            out[own] = _squares_of_factors(part)
        else:
            out[own] = _squares_of_rows(part)
    return np.where(_varies(operator, out), out, 0.0)


def centred_products(operator: KernelOperator) -> Array:
    r"""Inner products :math:`\langle H K_k H, H K_l H \rangle_F` of all pairs, shape (m, m).

    Those of two factored kernels cost :math:`n r_k r_l`, the others :math:`n^2`. Beside the result
    and sums of rows, (m, n), only some rows of all kernels are held at a time. Kernels that are
    constant but for rounding have exactly zero.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> y = np.array([1.0, -1.0, 1.0, -1.0])
    >>> operator = DenseOperator([np.outer(y, y), np.eye(4), np.ones((4, 4))])
    >>> centred_products(operator)
    array([[16.,  4.,  0.],
           [ 4.,  3.,  0.],
           [ 0.,  0.,  0.]])
    """
    m = operator.m
    require_bytes(
        3 * 8.0 * m * (m + operator.n),
        f"inner products of {m} kernels on {operator.n} samples",
        "Use method='independent', which needs none, or fewer kernels.",
    )
    leaves = list(_leaves(operator, np.arange(m)))
    thin = [(part, own) for part, own in leaves if isinstance(part, FactorOperator)]
    rest = [own for part, own in leaves if not isinstance(part, FactorOperator)]
    out = np.zeros((m, m))
    for i, (left, own) in enumerate(thin):
        for right, others in thin[: i + 1]:
            block = _products_of_factors(left, right)
            out[np.ix_(own, others)] = block
            out[np.ix_(others, own)] = block.T
    if rest:
        factored = np.concatenate([own for _, own in thin]) if thin else np.empty(0, dtype=np.int64)
        _products_of_rows(operator, np.concatenate(rest), factored, out)
    varies = _varies(operator, out.diagonal())
    return np.where(varies[:, None] & varies, out, 0.0)


def _leaves(operator: KernelOperator, own: Array) -> Iterator[tuple[KernelOperator, Array]]:
    """Yield the parts a stacked operator is made of, and which kernels of the whole they hold."""
    if isinstance(operator, StackedOperator):
        for part, members in zip(operator.parts, operator.members, strict=True):
            yield from _leaves(part, own[members])
    else:
        yield operator, own


def _varies(operator: KernelOperator, squares: Array) -> Array:
    """Which kernels are more than a constant and rounding."""
    trace = np.empty(operator.m)
    for part in _blocks(operator.m, rows_of(operator.n, SHARED_CACHE_ENTRIES)):
        trace[part] = operator.diagonal(part).sum(axis=1)
    return squares > (_CONSTANT * trace) ** 2


# By rows. A constant taken off a kernel does not change the centred one, and taking off about its
# mean leaves little to cancel: with A = K - c, |HAH|^2 = |A|^2 - 2/n |A1|^2 + (1'A1)^2 / n^2.


def _blocks(count: int, size: int) -> list[Array]:
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]


def _rows(
    operator: KernelOperator, kernels: Array, fewest: int = 1
) -> Iterator[tuple[Array, Array]]:
    """Yield samples, and their rows of all these kernels less about the mean of each kernel."""
    shift = operator.block(np.array([0]), None, kernels).mean(axis=(1, 2), dtype=np.float64)
    height = max(fewest, rows_of(len(kernels) * operator.n, SHARED_CACHE_ENTRIES))
    for idx in _blocks(operator.n, height):
        yield idx, operator.block(idx, None, kernels) - shift[:, None, None]


def _squares_of_rows(operator: KernelOperator) -> Array:
    out = np.empty(operator.m)
    # So many kernels that there are enough rows: those that are computed share work.
    for part in _blocks(operator.m, rows_of(_FEWEST_ROWS * operator.n, STACK_ENTRIES)):
        squares, of_sums, total = np.zeros((3, len(part)))
        for _, A in _rows(operator, part, _FEWEST_ROWS):
            sums = A.sum(axis=2)
            squares += np.einsum("kij,kij->k", A, A)
            of_sums += np.einsum("ki,ki->k", sums, sums)
            total += sums.sum(axis=1)
        out[part] = squares - 2.0 * of_sums / operator.n + (total / operator.n) ** 2
    return out


def _products_of_rows(operator: KernelOperator, rest: Array, factored: Array, out: Array) -> None:
    """Fill in the products of the kernels `rest` with one another and with the factored ones."""
    order, r = np.concatenate([rest, factored]), len(rest)
    inside, across = SquareSum(r), np.zeros((r, len(factored)))
    sums = np.empty((operator.m, operator.n))
    for idx, A in _rows(operator, order):
        sums[:, idx] = A.sum(axis=2)
        flat = A.reshape(operator.m, -1)
        inside.add(flat[:r].T, flat[:r].T)

        def work(start: int, stop: int, flat: Array = flat) -> None:
            across[:, start:stop] += flat[:r] @ flat[r + start : r + stop].T

        map_blocks(work, len(factored), _KERNEL_BLOCK, r * flat[r:].size)
    inner = np.hstack([inside.total(), across])
    total = sums.sum(axis=1) / operator.n
    inner += np.outer(total[:r], total) - (2.0 / operator.n) * (sums[:r] @ sums.T)
    out[np.ix_(rest, order)] = inner
    out[np.ix_(factored, rest)] = inner[:, r:].T


# By factors: <F'F, G'G> = |F G'|^2, with the rows of F and G centred.


def _centred_factor(operator: FactorOperator, kernels: Array) -> tuple[Array, Array]:
    factor, owner = operator.factor_of(kernels)
    return factor - factor.mean(axis=1, keepdims=True), owner


def _squares_of_factors(operator: FactorOperator) -> Array:
    out = np.empty(operator.m)

    def work(start: int, stop: int) -> None:
        for k in range(start, stop):
            F, _ = _centred_factor(operator, np.array([k]))
            out[k] = np.sum((F @ F.T) ** 2)

    map_blocks(work, operator.m, 16, operator.n * float(operator.ranks @ operator.ranks))
    return out


def _products_of_factors(left: FactorOperator, right: FactorOperator) -> Array:
    out = np.empty((left.m, right.m))
    rows, columns = _rank_blocks(left), _rank_blocks(right)
    pairs = [(i, j) for i in rows for j in columns if left is not right or i[0] >= j[0]]

    def work(first: int, last: int) -> None:
        for i, j in pairs[first:last]:
            F, owner = _centred_factor(left, i)
            G, other = _centred_factor(right, j)
            block = np.eye(len(i))[:, owner] @ (F @ G.T) ** 2 @ np.eye(len(j))[other]
            out[np.ix_(i, j)] = block
            if left is right:
                out[np.ix_(j, i)] = block.T

    map_blocks(work, len(pairs), 1, left.n * float(left.ranks.sum()) * float(right.ranks.sum()))
    return out


def _rank_blocks(operator: FactorOperator) -> list[Array]:
    """Runs of kernels with about `_FACTOR_ROWS` rows of factors each."""
    number = np.cumsum(operator.ranks) // _FACTOR_ROWS
    return np.split(np.arange(operator.m), np.flatnonzero(np.diff(number)) + 1)
