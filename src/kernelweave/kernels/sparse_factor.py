"""A kernel matrix by its sparse features, normalised without making them dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.kernels.samples import row_square_norms
from kernelweave.kernels.scaled_factor import ScaledFactor

__all__ = ["SparseFactor", "number_columns"]

Floats = NDArray[np.float64]

_MANY_COLUMNS = 2**16
# A table of all columns is quicker than sorting, but must not be much larger than the entries.
_TABLE = 16


@dataclass(frozen=True, eq=False)
class SparseFactor(ScaledFactor):
    r"""A training Gram matrix known by n sparse rows of features.

    .. math:: K = S F F^\top S - L^\top U - U^\top L

    with the features F as the kernel gives them and a diagonal S. The other terms are what
    centring takes off, for centred features would be dense
    (:class:`~kernelweave.kernels.scaled_factor.ScaledFactor`).

    Parameters
    ----------
    features : CSR matrix of shape (n, D)
        The features F.
    scale : ndarray of shape (n,) or float
        The diagonal of S; a number stands for n equal ones.
    left, right : ndarray of shape (r, n)
        L and U.

    Examples
    --------
    >>> from scipy import sparse
    >>> factor = SparseFactor.of(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
    >>> factor.scaled(0.5).product(np.array([1.0, 1.0]))
    array([0.25, 1.  ])
    """

    features: Any
    scale: Floats | float
    left: Floats
    right: Floats

    @classmethod
    def of(cls, features: Any) -> SparseFactor:
        """Return K = F F'."""
        none = np.empty((0, features.shape[0]))
        return cls(features.astype(np.float64, copy=False), 1.0, none, none)

    def raw_product(self, v: Floats) -> Floats:
        """F F'v."""
        features = self.features
        if features.shape[1] > _MANY_COLUMNS + features.nnz:
            # A vector over all columns might not fit into memory: there may be 4^31 of them.
            used, places = number_columns(features.indices)
            shape = (features.shape[0], len(used))
            features = sparse.csr_array((features.data, places, features.indptr), shape=shape)
        return features @ (features.T @ v)

    def raw_diagonal(self) -> Floats:
        """Squared norms of the rows of F."""
        return row_square_norms(self.features)


def number_columns(indices: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns that occur, ascending, and the place of each entry among them."""
    if not indices.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    last = int(indices.max())
    if last < _TABLE * indices.size + 2**16:
        there = np.zeros(last + 1, np.bool_)
        there[indices] = True
        used = np.flatnonzero(there)
        place = np.zeros(last + 1, np.int64)
        place[used] = np.arange(len(used))
        return used, place[indices]
    used, places = np.unique(indices, return_inverse=True)
    return used.astype(np.int64, copy=False), places
