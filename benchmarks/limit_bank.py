"""What calls of banks and kernels move and compute.

Each function is given the result and the arguments of one call and returns amounts for
:meth:`Ledger.add <limit_ledger.Ledger.add>`: bytes, of arrays of how many bytes, operations,
exponentials. b is the bytes of a number in a matrix (4 or 8), T the tasks, s the samples where v is
not zero, r the ranks of the kernels asked for, added up.

    DenseBank.matvec         k kernels: b k s n bytes, the rows where v is not zero; 2 operations
                             for each number
    DenseBank.quad           b k times the part of these rows right of the diagonal (of the columns
                             in s if these are few)
    DenseBank.products_at    b k q n for q samples
    DenseBank.combine        b k n^2, and the result; rows and blocks alike
    DenseBank.sum_products   b m n^2
    DenseBank.square_sum     m n^3 operations: one half of m products of matrices
    DenseBank.diag           64 k n: each number lies in a cache line of its own
    DenseBank.eigenvalue_bound  b m n^2
    DenseBank.rows           2 b k q n: read and written
    FactoredBank.matvec      8 r n bytes, 4 T r n operations; sum_products alike
    FactoredBank._project    8 r n bytes, 2 T r n operations (quadratic forms)
    FactoredBank.combine     r n^2 operations: one half of a product; q^2 for n^2 in a block
    FactoredBank._moved      4 r_k^2 n operations for each kernel
    distances                2 c operations for each pair of samples in c columns, 8 bytes written
    exponentials             as many as the compiled loop has done, read and written once
    pivoted Cholesky         r n exponentials (of Gaussians), 3 c r n + r^2 n operations
    matrices written         b m n^2
    walks (linadd)           each of the L letters of the sequences put in and looked up, and 8
                             bytes of a table for each of them
    pairs of sequences       8 bytes for each 64 letters of each bit plane, for each pair; three
                             operations for each of these words, and a weight added where the
                             letters are equal (of random DNA, at L / 4 positions)
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["COUNTS"]

Amounts = dict[str, Any]


def _chosen(bank: Any, kernels: Any) -> np.ndarray:
    return np.arange(bank.m) if kernels is None else np.asarray(kernels, dtype=np.int64)


def _bytes(bank: Any) -> float:
    """Bytes of a number of the matrices, on average."""
    return float(np.mean([K.itemsize for K in bank._matrices])) if bank._matrices else 8.0


def _passed(numbers: float, size: float, beside: float = 0.0) -> Amounts:
    return {"moved": size * numbers + beside, "flops": 2.0 * numbers}


def dense_matvec(out: Any, bank: Any, v: Any, kernels: Any = None) -> Amounts:
    """See the module."""
    numbers = float(len(_chosen(bank, kernels))) * np.count_nonzero(v) * bank.n
    return _passed(numbers, _bytes(bank))


def dense_quad(out: Any, bank: Any, v: Any, kernels: Any = None) -> Amounts:
    """See the module."""
    numbers = 0.0
    for row in np.atleast_2d(v):
        support = np.flatnonzero(row)
        few = 4 * len(support) <= bank.n
        numbers += len(support) ** 2 / 2 if few else float(np.sum(bank.n - support))
    return _passed(numbers * len(_chosen(bank, kernels)), _bytes(bank))


def dense_products_at(out: Any, bank: Any, v: Any, idx: Any, kernels: Any = None) -> Amounts:
    """See the module."""
    numbers = float(len(_chosen(bank, kernels))) * len(idx) * np.size(v)
    return _passed(numbers, _bytes(bank))


def dense_combine(out: Any, bank: Any, d: Any, *rest: Any) -> Amounts:
    """See the module; `out` is the matrix, the rows or the block."""
    return _passed(float(np.count_nonzero(d)) * out.size, _bytes(bank), out.nbytes)


def dense_whole(out: Any, bank: Any, *rest: Any) -> Amounts:
    """See the module: all matrices once."""
    return _passed(float(bank.m) * bank.n**2, _bytes(bank))


def dense_square_sum(out: Any, bank: Any) -> Amounts:
    """See the module."""
    return {"moved": bank.nbytes, "flops": float(bank.m) * bank.n**3}


def dense_diag(out: Any, bank: Any, kernels: Any = None) -> Amounts:
    """See the module."""
    return {"moved": 64.0 * out.size}


def dense_rows(out: Any, bank: Any, *rest: Any, **more: Any) -> Amounts:
    """See the module."""
    return {"moved": 2.0 * out.nbytes}


def dense_fill(out: Any, bank: Any, computed: Any, source: Any) -> Amounts:
    """See the module."""
    return {"moved": float(np.dtype(bank.dtype).itemsize) * len(computed) * bank.n**2}


def _rank(bank: Any, kernels: Any) -> float:
    return float(bank.ranks[_chosen(bank, kernels)].sum())


def factored_matvec(out: Any, bank: Any, v: Any, kernels: Any = None) -> Amounts:
    """See the module."""
    rank = _rank(bank, kernels)
    return {"moved": 8.0 * (rank * bank.n + out.size), "flops": 4.0 * rank * np.size(v)}


def factored_sums(out: Any, bank: Any, V: Any) -> Amounts:
    """See the module."""
    rank = float(len(bank._factors))
    return {"moved": 8.0 * rank * bank.n, "flops": 4.0 * rank * V[0].size}


def factored_project(out: Any, bank: Any, tasks: Any) -> Amounts:
    """See the module."""
    return {"moved": bank._factors.nbytes, "flops": 2.0 * len(bank._factors) * tasks.size}


def factored_combine(out: Any, bank: Any, d: Any, *rest: Any) -> Amounts:
    """See the module; `out` is the matrix or the block."""
    rank = float(bank.ranks[np.flatnonzero(d)].sum())
    return {"moved": 8.0 * rank * len(out) + out.nbytes, "flops": rank * out.size}


def factored_rows(
    out: Any, bank: Any, idx: Any, kernels: Any = None, columns: Any = None
) -> Amounts:
    """See the module."""
    flops = 2.0 * _rank(bank, kernels) * len(idx) * out.shape[2]
    return {"moved": 8.0 * _rank(bank, kernels) * out.shape[2] + out.nbytes, "flops": flops}


def factored_moved(out: Any, bank: Any, first: int, last: int, map_of: Any) -> Amounts:
    """See the module."""
    ranks = bank.ranks[first:last].astype(float)
    return {"moved": 2.0 * out.nbytes, "flops": 4.0 * bank.n * float(ranks @ ranks)}


def distances(out: Any, U: Any, V: Any) -> Amounts:
    """See the module."""
    return {"moved": out.nbytes, "flops": 2.0 * out.size * U.shape[1]}


def exponentials(out: Any, array: Any, scale: Any) -> Amounts:
    """See the module."""
    return {
        "moved": 2.0 * array.nbytes,
        "exps": array.size,
        "by": f"own{8 * array.itemsize}",
    }


def pivoted(rank: int, X: Any, kind: int, p0: float, p1: float, p2: float, *rest: Any) -> Amounts:
    """See the module; form 0 is that of Gaussians."""
    n, columns = X.shape
    return {
        "moved": 4.0 * n * rank**2,
        "of": 8.0 * n * rank,
        "flops": 3.0 * columns * rank * n + float(rank) ** 2 * n,
        "exps": 0.0 if kind else float(rank) * n,
    }


def walks(out: Any, weights: Any, new: Any, known: Any, v: Any) -> Amounts:
    """See the module."""
    return {"moved": 9.0 * weights.length * (new.n + known.n)}


def pairs_of_strings(
    out: Any, weights: Any, left: Any, right: Any, target: Any, lower: bool = False
) -> Amounts:
    """See the module."""
    pairs = left.n * right.n / (2.0 if lower else 1.0)
    words = -(-weights.length // 64) * weights.bits
    each = 3.0 * words + weights.length / 4.0
    return {"moved": 8.0 * pairs * words, "of": 8.0 * right.n * words, "flops": pairs * each}


# (module, class or none, function, kind of work, what it takes)
_DENSE, _FACTORED = (
    ("kernelweave.bank.dense", "DenseBank"),
    ("kernelweave.bank.factored", "FactoredBank"),
)
COUNTS: list[tuple[str, str | None, str, str, Any]] = [
    (*_DENSE, "matvec", "passes over matrices", dense_matvec),
    (*_DENSE, "quad", "passes over matrices", dense_quad),
    (*_DENSE, "products_at", "passes over matrices", dense_products_at),
    (*_DENSE, "sum_products", "passes over matrices", dense_whole),
    (*_DENSE, "eigenvalue_bound", "passes over matrices", dense_whole),
    (*_DENSE, "diag", "diagonals", dense_diag),
    (*_DENSE, "rows", "rows of matrices", dense_rows),
    (*_DENSE, "combine", "sums of matrices", dense_combine),
    (*_DENSE, "combine_rows", "sums of matrices", dense_combine),
    (*_DENSE, "combine_block", "sums of matrices", dense_combine),
    (*_DENSE, "square_sum", "sum of squares", dense_square_sum),
    (*_DENSE, "_fill", "matrices written", dense_fill),
    (*_FACTORED, "matvec", "passes over factors", factored_matvec),
    (*_FACTORED, "sum_products", "passes over factors", factored_sums),
    (*_FACTORED, "_project", "passes over factors", factored_project),
    (*_FACTORED, "combine", "sums of factors", factored_combine),
    (*_FACTORED, "combine_block", "sums of factors", factored_combine),
    (*_FACTORED, "rows", "sums of factors", factored_rows),
    (*_FACTORED, "_moved", "sum of squares", factored_moved),
    ("kernelweave.bank.factored", None, "pivoted_cholesky_form", "pivoted Cholesky", pivoted),
    ("kernelweave.kernels.pair", None, "_direct_sqdist", "distances", distances),
    ("kernelweave.kernels.pair", None, "_product", "distances", distances),
    ("kernelweave.compiled.exp", None, "scaled", "exponentials", exponentials),
    (
        "kernelweave.kernels.strings.position_weights",
        "PositionWeights",
        "products",
        "walks",
        walks,
    ),
    (
        "kernelweave.kernels.strings.position_weights",
        "PositionWeights",
        "add_pairs",
        "pairs of strings",
        pairs_of_strings,
    ),
]
