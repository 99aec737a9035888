"""What calls of banks and kernels move and compute.

Each function is given the result and the arguments of one call and returns amounts for
`Ledger.add` of ledger.py: bytes, of arrays of how many bytes, operations,
exponentials. b is the bytes of a number in a matrix (4 or 8), T the tasks, s the samples where v is
not zero, r the ranks of the kernels asked for, added up.

    DenseOperator.apply      k kernels: b k s n bytes, the rows where v is not zero; 2 operations
                             for each number; b k q n at q samples
    DenseOperator.quad       b k times the part of these rows right of the diagonal (of the columns
                             in s if these are few)
    DenseOperator.weighted   b k n^2, and the result; rows and blocks alike
    DenseOperator.sum_products   b m n^2
    DenseOperator.square_sum     m n^3 operations: one half of m products of matrices
    DenseOperator.diagonal       64 k n: each number lies in a cache line of its own
    DenseOperator.block      2 b k q n: read and written
    FactorOperator.apply     8 r n bytes, 4 T r n operations; sum_products alike
    FactorOperator.quad      8 r n bytes, 2 T r n operations, r of all kernels
    FactorOperator.weighted  r n^2 operations: one half of a product; q^2 for n^2 in a block
    FactorOperator._moved    4 r_k^2 n operations for each kernel
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

from typing import Any

import numpy as np

Amounts = dict[str, Any]


def _chosen(bank: Any, kernels: Any) -> np.ndarray:
    return np.arange(bank.m) if kernels is None else np.asarray(kernels, dtype=np.int64)


def _bytes(bank: Any) -> float:
    """Bytes of a number of the matrices, on average."""
    return float(np.mean([K.itemsize for K in bank._matrices])) if bank._matrices else 8.0


def _passed(numbers: float, size: float, beside: float = 0.0) -> Amounts:
    return {"moved": size * numbers + beside, "flops": 2.0 * numbers}


def dense_apply(out: Any, bank: Any, v: Any, kernels: Any = None, rows: Any = None) -> Amounts:
    columns = np.count_nonzero(v) if rows is None else np.size(v)
    height = bank.n if rows is None else len(rows)
    return _passed(float(len(_chosen(bank, kernels))) * columns * height, _bytes(bank))


def dense_quad(out: Any, bank: Any, v: Any, kernels: Any = None) -> Amounts:
    numbers = 0.0
    for row in np.atleast_2d(v):
        support = np.flatnonzero(row)
        few = 4 * len(support) <= bank.n
        numbers += len(support) ** 2 / 2 if few else float(np.sum(bank.n - support))
    return _passed(numbers * len(_chosen(bank, kernels)), _bytes(bank))


def dense_weighted(result: Any, bank: Any, d: Any, *rest: Any, **more: Any) -> Amounts:
    """`result` is the matrix, the rows or the block."""
    return _passed(float(np.count_nonzero(d)) * result.size, _bytes(bank), result.nbytes)


def dense_whole(out: Any, bank: Any, *rest: Any, **more: Any) -> Amounts:
    """All matrices once."""
    return _passed(float(bank.m) * bank.n**2, _bytes(bank))


def dense_square_sum(out: Any, bank: Any) -> Amounts:
    return {"moved": _bytes(bank) * bank.m * bank.n**2, "flops": float(bank.m) * bank.n**3}


def dense_diag(out: Any, bank: Any, kernels: Any = None) -> Amounts:
    return {"moved": 64.0 * out.size}


def dense_rows(out: Any, bank: Any, *rest: Any, **more: Any) -> Amounts:
    return {"moved": 2.0 * out.nbytes}


def dense_written(out: Any, kernels: Any, *rest: Any) -> Amounts:
    """The user's own matrices are not written."""
    given = [kernels.given_matrix(k) is not None for k in range(kernels.m)]
    written = zip(out._matrices, given, strict=True)
    return {"moved": float(sum(K.nbytes for K, own in written if not own))}


def _rank(bank: Any, kernels: Any) -> float:
    return float(bank.ranks[_chosen(bank, kernels)].sum())


def factor_apply(out: Any, bank: Any, v: Any, kernels: Any = None, rows: Any = None) -> Amounts:
    rank = _rank(bank, kernels)
    return {"moved": 8.0 * (rank * bank.n + out.size), "flops": 4.0 * rank * np.size(v)}


def factor_sums(out: Any, bank: Any, V: Any) -> Amounts:
    rank = float(len(bank._factors))
    return {"moved": 8.0 * rank * bank.n, "flops": 4.0 * rank * V[0].size}


def factor_quad(out: Any, bank: Any, v: Any, *rest: Any, **more: Any) -> Amounts:
    """Those of all kernels, whichever are asked for."""
    return {"moved": bank._factors.nbytes, "flops": 2.0 * len(bank._factors) * np.size(v)}


def factor_weighted(result: Any, bank: Any, d: Any, *rest: Any, **more: Any) -> Amounts:
    """`result` is the matrix or the block."""
    rank = float(bank.ranks[np.flatnonzero(d)].sum())
    return {"moved": 8.0 * rank * len(result) + result.nbytes, "flops": rank * result.size}


def factor_block(
    out: Any, bank: Any, rows: Any = None, columns: Any = None, kernels: Any = None, *rest: Any
) -> Amounts:
    rank = _rank(bank, kernels)
    flops = 2.0 * rank * out.shape[1] * out.shape[2]
    return {"moved": 8.0 * rank * out.shape[2] + out.nbytes, "flops": flops}


def factor_moved(out: Any, bank: Any, first: int, last: int, map_of: Any) -> Amounts:
    ranks = bank.ranks[first:last].astype(float)
    return {"moved": 2.0 * out.nbytes, "flops": 4.0 * bank.n * float(ranks @ ranks)}


def distances(out: Any, U: Any, V: Any) -> Amounts:
    return {"moved": out.nbytes, "flops": 2.0 * out.size * U.shape[1]}


def exponentials(out: Any, array: Any, scale: Any) -> Amounts:
    own = f"own{8 * array.itemsize}"
    return {"moved": 2.0 * array.nbytes, "exps": array.size, "by": own}


def pivoted(rank: int, X: Any, kind: int, p0: float, p1: float, p2: float, *rest: Any) -> Amounts:
    """Form 0 is that of Gaussians."""
    n, columns = X.shape
    return {
        "moved": 4.0 * n * rank**2,
        "of": 8.0 * n * rank,
        "flops": 3.0 * columns * rank * n + float(rank) ** 2 * n,
        "exps": 0.0 if kind else float(rank) * n,
    }


def walks(out: Any, weights: Any, new: Any, known: Any, v: Any) -> Amounts:
    return {"moved": 9.0 * weights.length * (new.n + known.n)}


def pairs_of_strings(
    out: Any, weights: Any, left: Any, right: Any, target: Any, lower: bool = False
) -> Amounts:
    pairs = left.n * right.n / (2.0 if lower else 1.0)
    words = -(-weights.length // 64) * left.bits
    each = 3.0 * words + weights.length / 4.0
    return {"moved": 8.0 * pairs * words, "of": 8.0 * right.n * words, "flops": pairs * each}


# (module, class or none, function, kind of work, what it takes)
_DENSE = "kernelweave.operators.dense", "DenseOperator"
_FACTOR = "kernelweave.operators.factors", "FactorOperator"
_POSITIONS = "kernelweave.kernels.strings.positions", "PositionWeights"
COUNTS: list[tuple[str, str | None, str, str, Any]] = [
    (*_DENSE, "apply", "passes over matrices", dense_apply),
    (*_DENSE, "quad", "passes over matrices", dense_quad),
    (*_DENSE, "sum_products", "passes over matrices", dense_whole),
    (*_DENSE, "diagonal", "diagonals", dense_diag),
    (*_DENSE, "block", "rows of matrices", dense_rows),
    (*_DENSE, "weighted", "sums of matrices", dense_weighted),
    (*_DENSE, "square_sum", "sum of squares", dense_square_sum),
    (*_DENSE, "of", "matrices written", dense_written),
    (*_FACTOR, "apply", "passes over factors", factor_apply),
    (*_FACTOR, "sum_products", "passes over factors", factor_sums),
    (*_FACTOR, "quad", "passes over factors", factor_quad),
    (*_FACTOR, "weighted", "sums of factors", factor_weighted),
    (*_FACTOR, "block", "sums of factors", factor_block),
    (*_FACTOR, "_moved", "sum of squares", factor_moved),
    ("kernelweave.operators.factors", None, "pivoted_cholesky_form", "pivoted Cholesky", pivoted),
    ("kernelweave.kernels.evaluate", None, "_direct_sqdist", "distances", distances),
    ("kernelweave.kernels.evaluate", None, "_product", "distances", distances),
    ("kernelweave.compiled.exp", None, "scaled", "exponentials", exponentials),
    (*_POSITIONS, "products", "walks", walks),
    (*_POSITIONS, "add_pairs", "pairs of strings", pairs_of_strings),
]
