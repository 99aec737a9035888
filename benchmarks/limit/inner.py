"""What the solvers do besides asking the bank: SMO, chunks, curvature, Newton, rounds of MWU.

As in bank.py; s is the size of a block, b the bytes of a number in it.

    smo_steps          a step: three rows of the block (3 b s), four vectors read and one written
                       twice (48 s bytes); 13 s operations
    blocks             read and written: 2 b s^2
    products with K(d) b s n for s rows
    mixes of outputs   8 k n for k kernels; three times that where they change
    curvature          Cholesky, s^3 / 3 operations; a triangular solve with k columns, s^2 k, and
                       the product of its result with itself, 2 s k^2
    Newton (SpicyMKL)  Cholesky, n^3 / 3 operations, and the matrix scaled twice, 32 n^2 bytes; A
                       terms of rank one, 2 A n^2 operations; six passes over the n x n model, 48
                       n^2 bytes. Through factors of rank r: 2 r^2 n + 2/3 r^3 operations.
    places (SpicyMKL)  7 passes over the outputs of k kernels: 56 k n bytes
    rounds (MWU)       the state of the kernels followed is read and written and two rows of each
                       kernel are read, as in mwu_step.py: (16 + 2 b) k n bytes, 6 k n operations;
                       six vectors for the next pair, 48 n bytes; an exponential a kernel
    iterations (BEMKL) the operations of bemkl_speed.py but for its passes, which the bank counts
    HiGHS              nothing is counted: what a simplex step takes has no formula
"""

from typing import Any

import numpy as np

from benchmarks.papers.bemkl_speed import count_flops, squares_rank

Amounts = dict[str, Any]


def smo(result: tuple[int, float], K: Any, diag: Any, *rest: Any) -> Amounts:
    steps, size = result[0], float(len(diag))
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
    numbers = float(len(support)) * (stop - start)
    return {"moved": K.itemsize * numbers, "flops": 2.0 * numbers}


def curvature_factor(out: Any, matrix: Any, *rest: Any, **more: Any) -> Amounts:
    """In float32 at the rate of products, the only one known."""
    rate = "gemm32" if matrix.dtype == np.float32 else "cholesky"
    return {"flops": len(matrix) ** 3 / 3.0, "rate": rate}


def curvature_solve(out: Any, factor: Any, right: Any, **more: Any) -> Amounts:
    size, columns = map(float, right.shape)
    rate = "gemm32" if factor.dtype == np.float32 else "gemm"
    return {"flops": size * size * columns + 2.0 * size * columns**2, "rate": rate}


def newton_factor(out: Any, K: Any, D: Any) -> Amounts:
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
    return {"moved": 56.0 * products.size, "flops": 6.0 * products.size}


def round_of_rows(out: Any, rows: Any, *rest: Any) -> Amounts:
    # places, both steps, the state, kernels, weights, sums, and the parts of kernels and columns
    state, part, columns = rest[3], rest[-2], rest[-1]
    cells = float(part[1] - part[0]) * (columns[1] - columns[0])
    return {"moved": cells * 2.0 * (rows.itemsize + state.itemsize), "flops": 6.0 * cells}


def multiplied_rows(out: Any, K: Any, idx: Any, v: Any, target: Any) -> Amounts:
    """The rows once."""
    numbers = float(len(idx)) * len(v)
    return {"moved": K.itemsize * numbers, "flops": 2.0 * numbers}


def best_pair(out: Any, fitted: Any, *rest: Any) -> Amounts:
    return {"moved": 48.0 * len(fitted), "flops": 3.0 * len(fitted)}


def pair_step(out: Any, i: Any, j: Any, products: Any, *rest: Any) -> Amounts:
    return {"moved": 48.0 * len(products), "exps": float(len(products))}


def bayesian(out: Any, ensemble: Any) -> Amounts:
    return {"flops": count_flops(ensemble.bank, squares_rank(ensemble.samples.squares))[1][0]}


def nothing(out: Any, *rest: Any, **more: Any) -> Amounts:
    """No formula: only its time is known."""
    return {}


_SOLVERS, _RUNNING = "kernelweave.solvers.", "kernelweave.solvers.mwu.running"
COUNTS: list[tuple[str, str | None, str, str, Any]] = [
    (_SOLVERS + "box_qp", None, "smo_steps", "SMO steps", smo),
    ("kernelweave.compiled.dense_rows", None, "copy_rectangle", "blocks", gathered),
    ("kernelweave.compiled.dense_rows", None, "add_rows", "products with K(d)", added_rows),
    (_SOLVERS + "bundle", None, "jittered_cholesky", "curvature", curvature_factor),
    (_SOLVERS + "bundle", None, "solve_triangular", "curvature", curvature_solve),
    (_SOLVERS + "kernel_sum", None, "cholesky", "Cholesky factors", newton_factor),
    (_SOLVERS + "kernel_sum", None, "with_low_rank", "Newton's model", woodbury),
    (_SOLVERS + "kernel_sum", "KernelSum", "product", "Newton's model", newton_product),
    (_SOLVERS + "smoothed_dual", "Place", "__init__", "places", place),
    (_RUNNING, None, "add_and_weigh", "rounds", round_of_rows),
    (_RUNNING, None, "add_rows", "rounds", added_rows),
    (_RUNNING, None, "row_products", "rounds", multiplied_rows),
    ("kernelweave.solvers.mwu.rounds", None, "best_pair", "rounds", best_pair),
    (_SOLVERS + "mwu.descent", None, "pair_step", "rounds", pair_step),
    ("kernelweave.bayes.ensemble", "Ensemble", "iterate", "iterations", bayesian),
    ("kernelweave.bayes.factors", None, "_low_rank", "search for low rank", nothing),
    (_SOLVERS + "cuts", "CutLP", "_run", "HiGHS", nothing),
    (_SOLVERS + "bundle", None, "nearest_below", "steps on all cuts", nothing),
]
