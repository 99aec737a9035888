"""One kernel matrix in memory, as the single-kernel solvers see a combined kernel."""

import numpy as np

from kernelweave.compiled.dense_rows import rectangle, rows_product


class DenseGram:
    """A symmetric Gram matrix in memory, float32 or float64; sums are in float64."""

    round_size = None

    def __init__(self, K):
        matrix = np.asarray(K)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        self._K, self.n = np.ascontiguousarray(matrix), len(matrix)

    def diagonal(self):
        return np.diagonal(self._K).astype(np.float64)

    def block(self, idx):
        return rectangle(self._K, idx, idx)

    def product(self, idx, delta):
        return rows_product(self._K, idx, delta)

    def dense(self):
        return self._K

    def square_limit(self, most, copies):
        return most  # Where there is room for the matrix, there is for parts of it.
