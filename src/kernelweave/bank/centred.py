"""Inner products of centred kernels, for every bank and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelweave.bank.factored import FactoredBank
from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import Array, KernelBank
from kernelweave.bank.squares import SquareSum
from kernelweave.bank.stacked import StackedBank
from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES, rows_of
from kernelweave.compiled.threads import map_blocks

__all__ = ["centred_products", "centred_squares"]

# The fewest rows of a bank that computes some kernels as readily as all of them.
_FEWEST_ROWS = 32
# Rows of factors that are multiplied with one another at a time.
_FACTOR_ROWS = 256
# Kernels multiplied at a time.
_KERNEL_BLOCK = 64
# A kernel whose centred part is below this part of its trace is constant but for rounding.
_CONSTANT = 1e-6


def centred_squares(bank: KernelBank) -> Array:
    r"""Squared Frobenius norms :math:`|H K_k H|_F^2` with :math:`H = I - 11^\top / n`, shape (m,).

    Factored kernels cost :math:`n r_k^2`, others one pass over their entries. Memory does not grow
    with the number of samples times that of kernels. Kernels that are constant but for rounding
    have exactly zero.

    Examples
    --------
    >>> from kernelweave.bank import DenseBank
    >>> y = np.array([1.0, -1.0, 1.0, -1.0])
    >>> centred_squares(DenseBank().from_matrices([np.outer(y, y), np.ones((4, 4))]))
    array([16.,  0.])
    """
    out = np.empty(bank.m)
    for part, own in _leaves(bank, np.arange(bank.m)):
        if isinstance(part, FactoredBank):
            out[own] = _squares_of_factors(part)
        else:
            out[own] = _squares_of_rows(part)
    return np.where(_varies(bank, out), out, 0.0)


def centred_products(bank: KernelBank) -> Array:
    r"""Inner products :math:`\langle H K_k H, H K_l H \rangle_F` of all pairs, shape (m, m).

    Those of two factored kernels cost :math:`n r_k r_l`, the others :math:`n^2`. Beside the result
    and sums of rows, (m, n), only some rows of all kernels are held at a time. Kernels that are
    constant but for rounding have exactly zero.

    Examples
    --------
    >>> from kernelweave.bank import DenseBank
    >>> y = np.array([1.0, -1.0, 1.0, -1.0])
    >>> bank = DenseBank().from_matrices([np.outer(y, y), np.eye(4), np.ones((4, 4))])
    >>> centred_products(bank)
    array([[16.,  4.,  0.],
           [ 4.,  3.,  0.],
           [ 0.,  0.,  0.]])
    """
    m = bank.m
    require_bytes(
        3 * 8.0 * m * (m + bank.n),
        f"inner products of {m} kernels on {bank.n} samples",
        "Use method='independent', which needs none, or fewer kernels.",
    )
    leaves = list(_leaves(bank, np.arange(m)))
    thin = [(part, own) for part, own in leaves if isinstance(part, FactoredBank)]
    rest = [own for part, own in leaves if not isinstance(part, FactoredBank)]
    out = np.zeros((m, m))
    for i, (left, own) in enumerate(thin):
        for right, others in thin[: i + 1]:
            block = _products_of_factors(left, right)
            out[np.ix_(own, others)] = block
            out[np.ix_(others, own)] = block.T
    if rest:
        factored = np.concatenate([own for _, own in thin]) if thin else np.empty(0, dtype=np.int64)
        _products_of_rows(bank, np.concatenate(rest), factored, out)
    varies = _varies(bank, out.diagonal())
    return np.where(varies[:, None] & varies, out, 0.0)


def _leaves(bank: KernelBank, own: Array) -> Iterator[tuple[KernelBank, Array]]:
    """Yield the banks a stacked bank is made of, with the kernels of the whole that they hold."""
    if isinstance(bank, StackedBank):
        for part, members in zip(bank.parts, bank.members, strict=True):
            yield from _leaves(part, own[members])
    else:
        yield bank, own


def _varies(bank: KernelBank, squares: Array) -> Array:
    """Which kernels are more than a constant and rounding."""
    trace = np.empty(bank.m)
    for part in _blocks(bank.m, rows_of(bank.n, SHARED_CACHE_ENTRIES)):
        trace[part] = bank.diag(part).sum(axis=1)
    return squares > (_CONSTANT * trace) ** 2


# By rows. A constant taken off a kernel does not change the centred one, and taking off about its
# mean leaves little to cancel: with A = K - c, |HAH|^2 = |A|^2 - 2/n |A1|^2 + (1'A1)^2 / n^2.


def _blocks(count: int, size: int) -> list[Array]:
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]


def _shifts(bank: KernelBank, kernels: Array) -> Array:
    """About the mean of each kernel, from one of its rows."""
    return bank.rows(np.array([0]), kernels).mean(axis=(1, 2), dtype=np.float64)


def _squares_of_rows(bank: KernelBank) -> Array:
    squares, of_sums, total = np.zeros(bank.m), np.zeros(bank.m), np.zeros(bank.m)
    fewest = 1 if bank.keeps_rows else _FEWEST_ROWS
    height = max(fewest, rows_of(bank.m * bank.n, SHARED_CACHE_ENTRIES))
    parts = _blocks(bank.m, rows_of(bank.n * min(height, bank.n), SHARED_CACHE_ENTRIES))
    shift = np.concatenate([_shifts(bank, part) for part in parts])
    # Rows outside, kernels inside: a lazy bank computes rows of all its kernels at once.
    for idx in _blocks(bank.n, height):
        for part in parts:
            A = bank.rows(idx, part) - shift[part, None, None]
            sums = A.sum(axis=2)
            squares[part] += np.einsum("kij,kij->k", A, A)
            of_sums[part] += np.einsum("ki,ki->k", sums, sums)
            total[part] += sums.sum(axis=1)
    return squares - 2.0 * of_sums / bank.n + (total / bank.n) ** 2


def _products_of_rows(bank: KernelBank, rest: Array, factored: Array, out: Array) -> None:
    """Fill in the products of the kernels `rest` with one another and with the factored ones."""
    order = np.concatenate([rest, factored])
    r = len(rest)
    inside = SquareSum(r)
    across = np.zeros((r, len(factored)))
    sums = np.empty((bank.m, bank.n))
    shift = _shifts(bank, order)
    for idx in _blocks(bank.n, rows_of(bank.m * bank.n, SHARED_CACHE_ENTRIES)):
        A = bank.rows(idx, order) - shift[:, None, None]
        sums[:, idx] = A.sum(axis=2)
        flat = A.reshape(bank.m, -1)
        inside.add(flat[:r].T, flat[:r].T)

        def work(start: int, stop: int, flat: Array = flat) -> None:
            across[:, start:stop] += flat[:r] @ flat[r + start : r + stop].T

        map_blocks(work, len(factored), _KERNEL_BLOCK, r * flat[r:].size)
    inner = np.hstack([inside.total(), across])
    total = sums.sum(axis=1) / bank.n
    inner += np.outer(total[:r], total) - (2.0 / bank.n) * (sums[:r] @ sums.T)
    out[np.ix_(rest, order)] = inner
    out[np.ix_(factored, rest)] = inner[:, r:].T


# By factors: <F'F, G'G> = |F G'|^2, with the rows of F and G centred.


def _centred_factor(bank: FactoredBank, kernels: Array) -> tuple[Array, Array]:
    factor, owner = bank.factor_of(kernels)
    return factor - factor.mean(axis=1, keepdims=True), owner


def _squares_of_factors(bank: FactoredBank) -> Array:
    out = np.empty(bank.m)

    def work(start: int, stop: int) -> None:
        for k in range(start, stop):
            F, _ = _centred_factor(bank, np.array([k]))
            out[k] = np.sum((F @ F.T) ** 2)

    map_blocks(work, bank.m, 16, bank.n * float(bank.ranks @ bank.ranks))
    return out


def _products_of_factors(left: FactoredBank, right: FactoredBank) -> Array:
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


def _rank_blocks(bank: FactoredBank) -> list[Array]:
    """Runs of kernels with about `_FACTOR_ROWS` rows of factors each."""
    number = np.cumsum(bank.ranks) // _FACTOR_ROWS
    return np.split(np.arange(bank.m), np.flatnonzero(np.diff(number)) + 1)
