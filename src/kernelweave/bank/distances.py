"""Distances instead of kernels: the base matrices of a product of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from kernelweave.bank.memory import cache_bytes
from kernelweave.bank.protocol import Array, MatrixBank
from kernelweave.compiled.finite import fits_float32
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.distance import Distance
from kernelweave.kernels.distance_set import DistanceSet, DistanceTile, sort_terms
from kernelweave.kernels.exponent import Part, Term, row_chunks, taken, through
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.squared_part import squared_columns
from kernelweave.validation import LARGEST

__all__ = ["DistanceBank", "StoredPart"]

_Positions = tuple[Array | slice, np.dtype[Any]]

# A product over this many columns takes longer than reading a stored matrix.
_WIDE = 64
# Rows of a stored matrix that are computed at a time.
_BLOCK_ROWS = 64
# Part of `cache_mb` for kept matrices; the rest is for K(d) and what solvers make of it.
_KEPT = 2 / 3


class StoredPart(Part):
    """Terms whose n x n matrices are kept, because computing them again takes longer.

    Parameters
    ----------
    matrices : list of ndarray of shape (n, n)
        The matrices.
    factors : CSR matrix of shape (m, len(matrices))
        D_k contains these multiples of them.

    Examples
    --------
    >>> part = StoredPart([np.ones((2, 2))], sparse.csr_matrix([[3.0]]))
    >>> everything = part.side(Samples([[1.0], [2.0]]), np.float64)
    >>> part.weighted(np.array([10.0]), part.take(everything, np.array([0])), everything, None)
    array([[30., 30.]])
    """

    def __init__(self, matrices: list[Array], factors: Any) -> None:
        self.matrices = matrices
        self.factors = factors

    def side(self, samples: Samples, dtype: DTypeLike) -> _Positions:
        """All training samples; there are no others here."""
        return slice(0, samples.n), np.dtype(dtype)

    def take(self, side: _Positions, rows: Array | slice) -> _Positions:
        return rows, side[1]

    def nbytes(self, side: Any) -> int:
        return sum(matrix.nbytes for matrix in self.matrices)

    def _block(self, i: int, left: Array | slice, right: Array | slice, rows: slice) -> Array:
        matrix = self.matrices[i]
        if isinstance(left, slice):
            chosen: Array | slice = slice(left.start + rows.start, left.start + rows.stop)
        else:
            chosen = left[rows]
        if isinstance(right, slice) or isinstance(chosen, slice):
            return matrix[chosen, right]
        return matrix[np.ix_(chosen, right)]

    def weighted(
        self, d: Array, left: _Positions, right: _Positions, out: Array | None
    ) -> Array | None:
        weights = self.factors.T @ np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(weights).tolist()
        if not active:
            return out
        (rows_of, kind), (columns_of, _) = left, right
        if out is None:
            out = np.zeros((_count(rows_of), _count(columns_of)), kind)
        for rows in row_chunks(*out.shape):
            for i in active:
                block = self._block(i, rows_of, columns_of, rows)
                out[rows] += np.multiply(block, weights[i], dtype=kind, casting="same_kind")
        return out

    def contract(self, M: Array, left: _Positions, right: _Positions, out: Array) -> None:
        sums = np.zeros(len(self.matrices))
        for rows in row_chunks(*M.shape):
            for i in range(len(self.matrices)):
                sums[i] += np.vdot(M[rows], self._block(i, left[0], right[0], rows))
        out += self.factors @ sums


def _count(rows: Array | slice) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


class DistanceBank(MatrixBank):
    r"""m distances on the same n samples, for :math:`K(d) = \exp(-\sum_k d_k D_k)`.

    Squared distances on columns are computed from the columns by one matrix product for all
    kernels. Given matrices are read where they are. Other metrics, and squared distances on many
    columns, are kept as matrices as long as they fit in two thirds of `cache_mb`, and computed anew
    beyond that.

    Parameters
    ----------
    cache_mb : float, default=1000
        Megabytes for kept matrices, K(d) or rows of it, and the matrices of solvers.
    dtype : {"float32", "float64"}, default="float32"
        Type of kept matrices. A tile of a longer type is computed from the samples.

    Examples
    --------
    >>> from kernelweave.kernels import DistanceSet
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0]])
    >>> bank = DistanceBank().build(DistanceSet.build("features", X))
    >>> tile = bank.tile(np.array([0, 1]))
    >>> tile.weighted([1.0, 0.5]).round(3)
    array([[0.  , 1.5 , 8.25],
           [1.5 , 0.  , 3.75]])
    """

    matrix_limit = 5000

    # Set by `build`.
    distances: DistanceSet
    _stored: StoredPart | None
    _rest: Sequence[Term]
    _computed: list[Part]
    _sides: dict[str, list[Any]]

    def __init__(self, cache_mb: float = 1000, dtype: str = "float32") -> None:
        self.cache_mb = cache_mb
        self.dtype = self.tile_dtype = dtype

    def build(self, distances: DistanceSet) -> DistanceBank:
        """Return a new bank over the training samples of `distances`.

        In float64 if float32 cannot hold them; `InvalidInputError` if not even that can.
        """
        if not fits_float32(_sizes(distances)) and self.dtype != "float64":
            return DistanceBank(self.cache_mb, "float64").build(distances)
        kind = np.dtype(self.dtype)
        budget = cache_bytes(self.cache_mb)
        size, spent = kind.itemsize * float(distances.n) ** 2, 0.0
        matrices: list[Array] = []
        factors: list[tuple[int, int, float]] = []
        kept: set[int] = set()
        for members in _worth_keeping(distances).values():
            matrix, scale = _given_matrix(members[0][0], distances.samples)
            if matrix is None:
                spent += size
                if spent > _KEPT * budget:
                    spent -= size
                    break
                matrix = _computed_matrix(members[0][0], distances.samples, kind)
            factors += [(term.k, len(matrices), scale * factor) for term, factor in members]
            matrices.append(matrix)
            kept.update(id(term) for term, _ in members)
        work = budget - spent
        if not matrices:
            return self._assemble(distances, None, distances.terms, work)
        rows, cols, values = zip(*factors, strict=True)
        table = sparse.csr_matrix((values, (rows, cols)), shape=(distances.m, len(matrices)))
        rest = [term for term in distances.terms if id(term) not in kept]
        return self._assemble(distances, StoredPart(matrices, table), rest, work)

    def _assemble(
        self,
        distances: DistanceSet,
        stored: StoredPart | None,
        rest: Sequence[Term],
        work_bytes: float,
    ) -> DistanceBank:
        bank = DistanceBank(self.cache_mb, self.dtype)
        bank.work_bytes = work_bytes
        bank.distances = distances
        bank.n, bank.m, bank.names = distances.n, distances.m, distances.names
        bank._stored = stored
        bank._rest = rest
        bank._computed = [] if stored is None else sort_terms(rest, distances.samples, bank.m)
        bank._sides = {}
        # Before threads ask for tiles, so that no transformer runs twice.
        bank._parts(np.dtype(self.dtype))
        return bank

    def in_double(self) -> DistanceBank:
        """Return the same bank for sums over tiles in float64, computed from the samples."""
        if self.tile_dtype == "float64":
            return self
        twin = copy(self)
        twin.tile_dtype = "float64"
        return twin

    def refined(self) -> DistanceBank | None:
        """Return the same distances in float64."""
        if self.dtype == "float64":
            return None
        bank = DistanceBank(self.cache_mb, "float64").build(self.distances)
        bank.matrix_limit = self.matrix_limit
        return bank

    @property
    def nbytes(self) -> int:
        """Bytes of kept matrices and columns."""
        own = 0 if self._stored is None else self._stored.nbytes(None)
        for sides in self._sides.values():
            own += sum(p.nbytes(side) for p, side in zip(self._computed, sides, strict=True))
        return own + self.distances.nbytes

    def _parts(self, dtype: np.dtype[Any]) -> list[tuple[Part, Any]]:
        """What tiles of this type are added up from, with the sides of all samples."""
        stored = self._stored
        if stored is None or dtype.itemsize > np.dtype(self.dtype).itemsize:
            sides = self.distances.sides(dtype)
            return list(zip(self.distances.parts, sides, strict=True))
        if dtype.char not in self._sides:
            samples = self.distances.samples
            self._sides[dtype.char] = [part.side(samples, dtype) for part in self._computed]
        parts = list(zip(self._computed, self._sides[dtype.char], strict=True))
        return [*parts, (stored, stored.side(self.distances.samples, dtype))]

    def tile(
        self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float
    ) -> DistanceTile:
        samples = self.distances.samples
        left, right = _as_slice(rows), slice(0, self.n) if columns is None else _as_slice(columns)
        parts = [
            (part, part.take(side, left), part.take(side, right))
            for part, side in self._parts(np.dtype(dtype))
        ]
        return DistanceTile(
            self.distances.kernels, taken(samples, left), taken(samples, right), parts, dtype
        )

    def take(self, idx: Array) -> DistanceBank:
        idx = np.asarray(idx)
        stored = self._stored
        if stored is not None:
            stored = StoredPart([D[np.ix_(idx, idx)] for D in stored.matrices], stored.factors)
        return self._assemble(self.distances.take(idx), stored, self._rest, self.work_bytes)

    def select(self, kernels: Array) -> DistanceBank:
        chosen = np.asarray(kernels)
        distances = self.distances.select(chosen)
        stored = self._stored
        if stored is None:
            return self._assemble(distances, None, distances.terms, self.work_bytes)
        rest = [
            Term(i, t.path, t.leaf) for i, k in enumerate(chosen) for t in self._rest if t.k == k
        ]
        factors = stored.factors[chosen]
        used = np.unique(factors.indices)
        if len(used) == 0:
            return self._assemble(distances, None, rest, self.work_bytes)
        stored = StoredPart([stored.matrices[i] for i in used], factors[:, used])
        return self._assemble(distances, stored, rest, self.work_bytes)


def _sizes(distances: DistanceSet) -> Array:
    """Sizes of the D_k, and of the numbers they are computed from; raises if they are too large.

    By the triangle inequality two samples are no further from each other than twice as far as
    both are from a third. Of given matrices all entries are looked at, before and after they are
    scaled.
    """
    sizes, before, samples = np.zeros(distances.m), [], distances.samples
    first = samples.take(np.array([0]))
    with np.errstate(over="ignore", invalid="ignore"):
        for term in distances.terms:
            given, scale = _given_matrix(term, samples)
            if given is None:
                D = term.exponent(first, samples, np.float64)
                values = through(term.path, samples).array()
                numbers = values.data if sparse.issparse(values) else values
                before.append(float(np.abs(numbers).max(initial=0.0)) ** 2)
            else:
                D = max(scale, 1.0) * given
                before.append(float(np.max(given)))
            sizes[term.k] += float(np.max(D))
    for name, size in zip(distances.names, sizes, strict=True):
        if not size <= LARGEST:
            raise InvalidInputError(
                f"kernel '{name}' has distances of {size:g}; they must be finite and at most "
                f"{LARGEST:g}, or sums of them would overflow. Scale the columns it reads, or "
                f"lower its gamma or raise its scale."
            )
    return np.array([*sizes, *before])


def _worth_keeping(distances: DistanceSet) -> dict[Any, list[tuple[Term, float]]]:
    """Terms that take longer to compute than to read, with those that are multiples of them."""
    given: dict[Any, list[tuple[Term, float]]] = {}
    other: dict[Any, list[tuple[Term, float]]] = {}
    wide: dict[Any, list[tuple[Term, float]]] = {}
    for term in distances.terms:
        rate = term.leaf.squared_rate
        if rate is None:
            group = given if term.leaf.reads_ids else other
            group.setdefault((term.path, term.leaf), []).append((term, 1.0))
            continue
        root, columns = squared_columns(term.path, distances.samples)
        if len(columns) >= _WIDE:
            same = wide.setdefault((root, tuple(sorted(columns))), [])
            first = same[0][0].leaf.squared_rate if same else rate
            same.append((term, rate / (first or rate)))
    return {**given, **other, **wide}


def _given_matrix(term: Term, samples: Samples) -> tuple[Array | None, float]:
    """A matrix the user holds and its factor, where it can be read without a copy."""
    leaf = term.leaf
    given = leaf.given if isinstance(leaf, Distance) else None
    ids = None if given is None else leaf.ids(through(term.path, samples))
    if given is None or ids is None or (np.diff(ids) != 1).any():
        return None, 1.0
    block = slice(int(ids[0]), int(ids[-1]) + 1)
    return given[0][block, block], given[1]


def _computed_matrix(term: Term, samples: Samples, dtype: np.dtype[Any]) -> Array:
    """The n x n matrix of a term, computed in float64."""
    out = np.empty((samples.n, samples.n), dtype)

    def work(start: int, stop: int) -> None:
        part = samples.take(np.arange(start, stop))
        out[start:stop] = term.exponent(part, samples, np.float64)

    map_blocks(work, samples.n, _BLOCK_ROWS)
    return out


def _as_slice(rows: Array) -> Array | slice:
    """Consecutive rows as a slice, so that nothing is copied."""
    index = np.asarray(rows)
    if index.ndim == 1 and len(index) and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
