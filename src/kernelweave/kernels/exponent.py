"""The exponents of kernels exp(-D_k), sorted into parts that are computed in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES, rows_of
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples

__all__ = [
    "EvaluatedPart",
    "Part",
    "Term",
    "row_chunks",
    "sum_of_products",
    "taken",
    "terms_of",
    "through",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class Term:
    """One summand of the exponent of kernel `k`: a kernel seen through column blocks.

    Attributes
    ----------
    k : int
        The kernel whose exponent it belongs to.
    path : tuple of Block
        Column blocks between the samples and `leaf`, outermost first.
    leaf : Kernel
        The kernel at the end, with an exponent of its own.
    """

    k: int
    path: tuple[Any, ...]
    leaf: Kernel

    def exponent(self, left: Samples, right: Samples, dtype: DTypeLike) -> Array:
        """Return the summand for two sets of rows, shape (q, s)."""
        return self.leaf.exponent(_pair_through(self.path, Pair(left, right, dtype)))


def terms_of(kernels: Sequence[Kernel]) -> list[Term]:
    """Write the exponents of bound kernels as sums.

    Examples
    --------
    >>> from kernelweave.kernels import RBF
    >>> X = Samples([[0.0, 1.0], [1.0, 0.0]])
    >>> terms = terms_of([RBF(gamma=1), (RBF(gamma=1).on(0) * RBF(gamma=2).on(1)).bind(X)])
    >>> [(term.k, term.leaf.name) for term in terms]
    [(0, 'rbf(gamma=1)'), (1, 'rbf(gamma=1)'), (1, 'rbf(gamma=2)')]
    """
    return [Term(k, *term) for k, kernel in enumerate(kernels) for term in kernel.exponent_terms()]


def through(path: tuple[Any, ...], samples: Samples) -> Samples:
    """Return samples seen through column blocks.

    Examples
    --------
    >>> from kernelweave.kernels import Block
    >>> through((Block([1], 2, None, ""),), Samples([[0.0, 5.0]])).array()
    array([[5.]])
    """
    for block in path:
        samples = samples.derive(block)
    return samples


def _pair_through(path: tuple[Any, ...], pair: Pair) -> Pair:
    for block in path:
        pair = pair.on(block)
    return pair


def row_chunks(q: int, s: int) -> Iterator[slice]:
    """Cut q rows of s entries into blocks of bounded size.

    Examples
    --------
    >>> list(row_chunks(3, 2**19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = rows_of(s, SHARED_CACHE_ENTRIES)
    for start in range(0, q, step):
        yield slice(start, min(start + step, q))


def sum_of_products(M: Array, D: Array) -> float:
    """Sum of the entries of M times those of D, in float64.

    (np.vdot would hand given matrices to BLAS, some of which fail at odd addresses, where a message
    or a file in memory may have them.)

    Examples
    --------
    >>> sum_of_products(np.ones((2, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]))
    10.0
    """
    return float(np.einsum("ij,ij->", M, D, dtype=np.float64))


class Part(ABC):
    """A part of the exponents: what it knows is added up over all parts.

    A set of samples comes as a `side`, which is what the part keeps of these rows.
    """

    @abstractmethod
    def side(self, samples: Samples, dtype: DTypeLike) -> Any:
        """Return what the part needs of these samples."""

    @abstractmethod
    def take(self, side: Any, rows: Array | slice) -> Any:
        """Return the side of some of the rows."""

    @abstractmethod
    def weighted(self, d: Array, left: Any, right: Any, out: Array | None) -> Array | None:
        """Add sum_k d_k D_k to `out`, shape (q, s), or return it new where `out` is None.

        A part in which all weights are zero returns `out` as it is.
        """

    @abstractmethod
    def contract(self, M: Array, left: Any, right: Any, out: Array) -> None:
        """Add sum_ij M_ij D_k[i, j] for every k to `out`, shape (m,), float64."""

    @abstractmethod
    def nbytes(self, side: Any) -> int:
        """Bytes of a side."""


class EvaluatedPart(Part):
    """Terms that are evaluated one at a time: given distance matrices and other metrics.

    Parameters
    ----------
    terms : iterable of Term
        The terms.

    Examples
    --------
    >>> from kernelweave.kernels import Distance
    >>> X = Samples([[0.0], [2.0]])
    >>> part = EvaluatedPart([Term(0, (), Distance("cityblock", scale=1.0).bind(X))])
    >>> part.weighted(np.array([10.0]), *2 * [part.side(X, np.float64)], None)
    array([[ 0., 20.],
           [20.,  0.]])
    """

    def __init__(self, terms: Iterable[Term]) -> None:
        # Terms on the same column block share distances.
        self._groups: dict[tuple[Any, ...], list[Term]] = {}
        for term in terms:
            self._groups.setdefault(term.path, []).append(term)

    def side(self, samples: Samples, dtype: DTypeLike) -> tuple[Samples, np.dtype[Any]]:
        return samples, np.dtype(dtype)

    def take(self, side: Any, rows: Array | slice) -> Any:
        return taken(side[0], rows), side[1]

    def nbytes(self, side: Any) -> int:
        """See :class:`Part`; the samples belong to the user."""
        return 0

    def _blocks(
        self, left: Any, right: Any, used: Array | None
    ) -> Iterator[tuple[slice, int, Array]]:
        """Yield rows, kernel and exponents, a block at a time."""
        (rows_of, dtype), (columns_of, _) = left, right
        for rows in row_chunks(rows_of.n, columns_of.n):
            part = taken(rows_of, rows)
            for path, terms in self._groups.items():
                wanted = [term for term in terms if used is None or used[term.k]]
                if wanted:
                    pair = _pair_through(path, Pair(part, columns_of, dtype))
                    for term in wanted:
                        yield rows, term.k, term.leaf.exponent(pair)

    def weighted(self, d: Array, left: Any, right: Any, out: Array | None) -> Array | None:
        for rows, k, D in self._blocks(left, right, d != 0):
            if out is None:
                out = np.zeros((left[0].n, right[0].n), D.dtype)
            out[rows] += D * D.dtype.type(d[k])
        return out

    def contract(self, M: Array, left: Any, right: Any, out: Array) -> None:
        for rows, k, D in self._blocks(left, right, None):
            out[k] += sum_of_products(M[rows], D)


def taken(samples: Samples, rows: Array | slice) -> Samples:
    """Return some of the samples; all of them are returned as they are.

    Examples
    --------
    >>> taken(Samples([[1.0], [2.0], [3.0]]), slice(1, 3)).array()
    array([[2.],
           [3.]])
    """
    if not isinstance(rows, slice):
        return samples.take(rows)
    index = np.arange(samples.n)[rows]
    return samples if len(index) == samples.n else samples.take(index)
