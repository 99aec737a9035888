"""A kernel matrix by its sparse features, normalised without making them dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.kernels.samples import row_square_norms
from kernelweave.kernels.scaled_factor import Floats, ScaledFactor, Scaling

__all__ = ["SparseFactor", "number_columns"]

Ints = NDArray[np.int64]

# A table of all columns is quicker than sorting, but must not be much larger than the entries.
_TABLE = 16
_MANY_COLUMNS = 2**16


def number_columns(indices: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return the columns that occur, ascending, and the place of each entry among them."""
    if not indices.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    last = int(indices.max())
    if last < _TABLE * indices.size + _MANY_COLUMNS:
        there = np.zeros(last + 1, np.bool_)
        there[indices] = True
        used = np.flatnonzero(there)
        place = np.zeros(last + 1, np.int64)
        place[used] = np.arange(len(used))
        return used, place[indices]
    used, places = np.unique(indices, return_inverse=True)
    return used.astype(np.int64, copy=False), places


@dataclass(frozen=True, eq=False)
class SparseFactor(ScaledFactor):
    r"""A training Gram matrix known by n sparse rows of features: :math:`K_0 = F F^\top`.

    Centred features would be dense; what centring takes off is kept beside them instead.

    Examples
    --------
    >>> from scipy import sparse
    >>> factor = SparseFactor.of(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
    >>> factor.product(np.array([1.0, 1.0]))
    array([1., 4.])
    """

    features: Any  # CSR matrix of shape (n, D), as the kernel gives it.
    scaling: Scaling

    @classmethod
    def of(cls, features: Any) -> SparseFactor:
        """Return K = F F'."""
        return cls(features.astype(np.float64, copy=False), Scaling.none(features.shape[0]))

    def raw_product(self, v: Floats) -> Floats:
        features = self.features
        if features.shape[1] > _MANY_COLUMNS + features.nnz:
            # A vector over all columns might not fit into memory: there may be 4^31 of them.
            used, places = number_columns(features.indices)
            shape = (features.shape[0], len(used))
            features = sparse.csr_array((features.data, places, features.indptr), shape=shape)
        return features @ (features.T @ v)

    def raw_diagonal(self) -> Floats:
        return row_square_norms(self.features)
