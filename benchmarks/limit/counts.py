"""What calls of operators, kernels and solvers move and compute.

Each function is given the result and the arguments of one call and returns amounts for
`Ledger.add` of ledger.py: bytes, of arrays of how many bytes, operations, exponentials. Every
number that a call must touch counts once, at 4 or 8 bytes: rows of matrices where the vector is not
zero, r numbers a sample of factors of rank r. A product with a number is 2 operations.
"""

from typing import Any

import numpy as np

from benchmarks.papers.bemkl_speed import count_flops, squares_rank
from kernelweave.operators import DenseOperator, FactorOperator

Amounts = dict[str, Any]


def _chosen(bank: Any, kernels: Any) -> np.ndarray:
    return np.arange(bank.m) if kernels is None else np.asarray(kernels, dtype=np.int64)


def _rank(bank: Any, kernels: Any) -> float:
    return float(bank.ranks[_chosen(bank, kernels)].sum())


def _bytes(bank: Any) -> float:
    """Bytes of a number of the matrices, on average."""
    return float(np.mean([K.itemsize for K in bank._matrices])) if bank._matrices else 8.0


def _passed(numbers: float, size: float, beside: float = 0.0) -> Amounts:
    return {"moved": size * numbers + beside, "flops": 2.0 * numbers}


def dense_apply(out: Any, bank: Any, v: Any, kernels: Any = None, rows: Any = None) -> Amounts:
    columns = np.count_nonzero(v) if rows is None else np.size(v)
    height = bank.n if rows is None else len(rows)
    return _passed(float(len(_chosen(bank, kernels))) * columns * height, _bytes(bank))


def dense_weighted(out: Any, /, bank: Any, d: Any, *rest: Any, **more: Any) -> Amounts:
    """`out` is the matrix, the rows or the block."""
    return _passed(float(np.count_nonzero(d)) * out.size, _bytes(bank), out.nbytes)


def dense_whole(out: Any, bank: Any, *rest: Any, **more: Any) -> Amounts:
    """All matrices once."""
    return _passed(float(bank.m) * bank.n**2, _bytes(bank))


def square_sums(out: Any, bank: Any) -> Amounts:
    """One half of m products of matrices; factors count where they are moved."""
    if not isinstance(bank, DenseOperator):
        return {}
    return {"moved": _bytes(bank) * bank.m * bank.n**2, "flops": float(bank.m) * bank.n**3}


def dense_written(out: Any, kernels: Any, *rest: Any, **more: Any) -> Amounts:
    """The user's own matrices are not written."""
    given = [kernels.given_matrix(k) is not None for k in range(kernels.m)]
    written = zip(out._matrices, given, strict=True)
    return {"moved": float(sum(K.nbytes for K, own in written if not own))}


def factor_apply(out: Any, bank: Any, v: Any, kernels: Any = None, rows: Any = None) -> Amounts:
    rank = _rank(bank, kernels)
    return {"moved": 8.0 * (rank * bank.n + out.size), "flops": 4.0 * rank * np.size(v)}


def own_products(out: Any, bank: Any, V: Any) -> Amounts:
    """Products of each kernel with a vector of its own; those of parts count by themselves."""
    if isinstance(bank, DenseOperator):
        return dense_whole(out, bank)
    if isinstance(bank, FactorOperator):
        rank = float(bank.ranks.sum())
        return {"moved": 8.0 * rank * bank.n, "flops": 4.0 * rank * V[0].size}
    return {}


def factor_quad(out: Any, bank: Any, v: Any, *rest: Any, **more: Any) -> Amounts:
    """Those of all kernels, whichever are asked for."""
    return {"moved": bank._factors.nbytes, "flops": 2.0 * len(bank._factors) * np.size(v)}


def factor_weighted(out: Any, /, bank: Any, d: Any, *rest: Any, **more: Any) -> Amounts:
    """`out` is the matrix or the block."""
    rank = float(bank.ranks[np.flatnonzero(d)].sum())
    return {"moved": 8.0 * rank * len(out) + out.nbytes, "flops": rank * out.size}


def factor_block(
    out: Any, bank: Any, rows: Any = None, columns: Any = None, kernels: Any = None, *rest: Any
) -> Amounts:
    rank = _rank(bank, kernels)
    flops = 2.0 * rank * out.shape[1] * out.shape[2]
    return {"moved": 8.0 * rank * out.shape[2] + out.nbytes, "flops": flops}


def factor_moved(out: Any, factors: Any, ranks: Any, map_of: Any) -> Amounts:
    each = ranks.astype(float)
    return {"moved": 2.0 * out.nbytes, "flops": 4.0 * factors.shape[1] * float(each @ each)}


def distances(out: Any, U: Any, V: Any) -> Amounts:
    return {"moved": out.nbytes, "flops": 2.0 * out.size * U.shape[1]}


def exponentials(out: Any, array: Any, scale: Any) -> Amounts:
    own = f"own{8 * array.itemsize}"
    return {"moved": 2.0 * array.nbytes, "exps": array.size, "by": own}


def pivoted(rank: int, X: Any, kind: int, *rest: Any) -> Amounts:
    """Form 0 is that of Gaussians."""
    n, columns = X.shape
    return {
        "moved": 4.0 * n * rank**2,
        "of": 8.0 * n * rank,
        "flops": 3.0 * columns * rank * n + float(rank) ** 2 * n,
        "exps": 0.0 if kind else float(rank) * n,
    }


def walks(out: Any, weights: Any, new: Any, known: Any, v: Any) -> Amounts:
    """Each letter is put in or looked up, with 8 bytes of a table for each."""
    return {"moved": 9.0 * weights.length * (new.n + known.n)}


def pairs_of_strings(
    out: Any, weights: Any, left: Any, right: Any, target: Any, lower: bool = False
) -> Amounts:
    """Words of 64 letters of each bit plane; of random DNA a quarter of the letters are equal."""
    pairs = left.n * right.n / (2.0 if lower else 1.0)
    words = -(-weights.length // 64) * left.bits
    each = 3.0 * words + weights.length / 4.0
    return {"moved": 8.0 * pairs * words, "of": 8.0 * right.n * words, "flops": pairs * each}


def smo(out: tuple[int, float], K: Any, diag: Any, *rest: Any) -> Amounts:
    """A step: three rows of the block, four vectors read and one written twice."""
    steps, size = out[0], float(len(diag))
    return {
        "moved": steps * size * (3.0 * K.itemsize + 48.0),
        "of": min(2.0 * steps, size) * size * K.itemsize,
        "flops": 13.0 * steps * size,
    }


def gathered(out: Any, K: Any, left: Any, right: Any, scale: float, target: Any) -> Amounts:
    """Rows of a block."""
    return {"moved": float(len(left)) * len(right) * (K.itemsize + target.itemsize)}


def added_rows(
    out: Any, K: Any, support: Any, values: Any, target: Any, start: int, stop: int
) -> Amounts:
    return _passed(float(len(support)) * (stop - start), K.itemsize)


def multiplied_rows(out: Any, K: Any, idx: Any, v: Any, target: Any) -> Amounts:
    """The rows once."""
    return _passed(float(len(idx)) * len(v), K.itemsize)


def curvature_factor(out: Any, matrix: Any, *rest: Any, **more: Any) -> Amounts:
    """In float32 at the rate of products, the only one known."""
    rate = "gemm32" if matrix.dtype == np.float32 else "cholesky"
    return {"flops": len(matrix) ** 3 / 3.0, "rate": rate}


def curvature_solve(out: Any, factor: Any, right: Any, **more: Any) -> Amounts:
    """And the product of its result with itself."""
    size, columns = map(float, right.shape)
    rate = "gemm32" if factor.dtype == np.float32 else "gemm"
    return {"flops": size * size * columns + 2.0 * size * columns**2, "rate": rate}


def newton_factor(out: Any, K: Any, D: Any) -> Amounts:
    """And the matrix scaled twice."""
    return {"moved": 32.0 * K.size, "flops": len(K) ** 3 / 3.0, "rate": "cholesky"}


def newton_product(out: Any, system: Any, v: Any) -> Amounts:
    if system.matrix is None:
        return {}
    tasks = len(v) / len(system.matrix)
    return {"moved": 8.0 * system.matrix.size, "flops": 2.0 * tasks * system.matrix.size}


def woodbury(out: Any, base: Any, V: Any, s: Any) -> Amounts:
    rank, n = map(float, V.shape)
    return {"moved": 16.0 * V.size, "flops": 2.0 * rank * rank * n + 2.0 / 3.0 * rank**3}


def place(out: Any, here: Any, dual: Any, rho: Any, products: Any) -> Amounts:
    """Seven passes over the outputs of the kernels."""
    return {"moved": 56.0 * products.size, "flops": 6.0 * products.size}


def round_of_rows(out: Any, rows: Any, *rest: Any) -> Amounts:
    """The state of the kernels followed is read and written, as in mwu_step.py."""
    # places, both steps, the state, kernels, weights, sums, and the parts of kernels and columns
    state, part, columns = rest[3], rest[-2], rest[-1]
    cells = float(part[1] - part[0]) * (columns[1] - columns[0])
    return {"moved": cells * 2.0 * (rows.itemsize + state.itemsize), "flops": 6.0 * cells}


def bayesian(out: Any, ensemble: Any) -> Amounts:
    """The operations of bemkl_speed.py but for its passes, which are counted as such."""
    return {"flops": count_flops(ensemble.bank, squares_rank(ensemble.samples.squares))[1][0]}


def nothing(out: Any, *rest: Any, **more: Any) -> Amounts:
    """No formula: only its time is known."""
    return {}


# Kind of work -> the places of watch.py where it is done, and what a call takes.
COUNTS: dict[str, dict[str, Any]] = {
    "passes over matrices": {"DenseOperator.apply": dense_apply},
    "products of each kernel": {
        "sums:sum_products": own_products,
        "ensemble:sum_products": own_products,
    },
    # Each number of a diagonal lies in a cache line of its own.
    "diagonals": {"DenseOperator.diagonal": lambda out, /, *_, **__: {"moved": 64.0 * out.size}},
    "rows of matrices": {
        "DenseOperator.block": lambda out, /, *_, **__: {"moved": 2.0 * out.nbytes}
    },
    "sums of matrices": {"DenseOperator.weighted": dense_weighted},
    "sum of squares": {
        "sums:square_sum": square_sums,
        "sums:_moved": factor_moved,
    },
    "matrices written": {"DenseOperator.of": dense_written},
    "passes over factors": {
        "FactorOperator.apply": factor_apply,
        "FactorOperator.quad": factor_quad,
    },
    "sums of factors": {
        "FactorOperator.weighted": factor_weighted,
        "FactorOperator.block": factor_block,
    },
    "pivoted Cholesky": {"factors:pivoted_cholesky_form": pivoted},
    "distances": {"evaluate:_squared_differences": distances, "evaluate:_product": distances},
    "exponentials": {"exp:scaled": exponentials},
    "walks": {"PositionWeights.products": walks},
    "pairs of strings": {"PositionWeights.add_pairs": pairs_of_strings},
    "SMO steps": {"box_qp:smo_steps": smo},
    "blocks": {"dense_rows:add_rectangle": gathered},
    "products with K(d)": {"dense_rows:add_rows": added_rows},
    "curvature": {
        "bundle:jittered_cholesky": curvature_factor,
        "bundle:solve_triangular": curvature_solve,
    },
    "Cholesky factors": {"kernel_sum:cholesky": newton_factor},
    "Newton's model": {"kernel_sum:with_low_rank": woodbury, "KernelSum.product": newton_product},
    "places": {"Place.__init__": place},
    "rounds": {
        "running:add_and_weigh": round_of_rows,
        "running:add_rows": added_rows,
        "running:row_products": multiplied_rows,
        "rounds:best_pair": lambda out, fitted, *_: _passed(1.5 * len(fitted), 32.0),
        "descent:pair_step": lambda out, i, j, products, *_: {
            "moved": 48.0 * len(products),
            "exps": float(len(products)),
        },
    },
    "iterations": {"Ensemble.iterate": bayesian},
    "search for low rank": {"sums:_low_rank": nothing},
    "HiGHS": {"CutLP._run": nothing},
    "steps on all cuts": {"bundle:nearest_below": nothing},
}
