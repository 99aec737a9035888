"""Distances instead of kernels: the base matrices of a product of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from kernelweave.compiled.finite import fits_float32
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel, no_exponent
from kernelweave.kernels.distance import Distance
from kernelweave.kernels.exponent import (
    EvaluatedPart,
    Part,
    Term,
    row_chunks,
    sum_of_products,
    taken,
    terms_of,
    through,
)
from kernelweave.kernels.families import feature_distances, resolve
from kernelweave.kernels.names import unique_names
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.squared_part import SquaredPart, squared_columns
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    kernel_indices,
    sample_indices,
)
from kernelweave.operators.computed import check_columns, check_kernels
from kernelweave.operators.memory import cache_bytes
from kernelweave.validation import LARGEST

__all__ = ["DistanceOperator", "StoredPart", "sort_terms"]

_Positions = tuple[Array | slice, np.dtype[Any]]

# A product over this many columns takes longer than reading a stored matrix.
_WIDE = 64
# Rows of a stored matrix that are computed at a time.
_BLOCK_ROWS = 64
# Part of `cache_mb` for kept matrices; the rest is for K(d) and what solvers make of it.
_KEPT = 2 / 3
_STATE = ("kernels", "samples", "names")


class DistanceOperator(KernelOperator):
    r"""Distances :math:`D_k` of several bound kernels :math:`\exp(-D_k)` between samples.

    They are the base matrices of :math:`K(d) = \exp(-\sum_k d_k D_k)`. Squared distances on columns
    are computed from the columns by one matrix product for all kernels, and never held all at once.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels bound to `samples`, each with an exponent: RBF, Distance, these on columns, and
        products of them.
    samples : Samples
        The training samples.

    Attributes
    ----------
    n, m : int
        Numbers of right samples and kernels.
    names : list of str
        One readable, unique name for each kernel.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"size": [1.0, 2.0, 3.0], "age": [7.0, 7.0, 1.0]})
    >>> distances = DistanceOperator.build("default", X)
    >>> distances.names
    ['size', 'age']
    >>> distances.against(X[:1]).weighted([1.0, 0.0])
    array([[0. , 1.5, 6. ]])
    """

    matrix_limit = 5000
    # Type of sums.
    dtype = "float64"

    def __init__(self, kernels: Sequence[Kernel], samples: Samples) -> None:
        self.kernels = list(kernels)
        _check_exponents(self.kernels)
        self.samples = samples
        self.names: list[str] = unique_names(self.kernels)
        self._reset()

    def _reset(self) -> None:
        self.m = len(self.kernels)
        self.terms: Sequence[Term] = terms_of(self.kernels)
        # The two sides; None stands for all training samples.
        self._left: Samples | None = None
        self._right: Samples | None = None
        # What is kept of the training samples, and of both sides, for each type.
        self._train: dict[str, list[Any]] = {}
        self._ends: dict[str, list[tuple[Part, Any, Any]]] = {}
        # Matrices that are kept, in which type, and the terms that are not in them.
        self._stored: StoredPart | None = None
        self._stored_dtype = "float64"
        self._rest: Sequence[Term] = ()

    @classmethod
    def build(cls, kernels: Any, X: Any, normalize: Any = None) -> DistanceOperator:
        """Bind whatever an estimator's `kernels` accepts to the samples `X`.

        "default" is one squared distance for each standardised feature (`feature_distances`).
        """
        if "center" in Normalization.parse(normalize).names:
            raise InvalidInputError(
                f"combination='product' takes distances, which are not centred; got "
                f"normalize={normalize!r}. Allowed: 'trace', 'diagonal' or None, which are all the "
                f"same here, because exp(-D) has a diagonal of ones."
            )
        samples = as_samples(X)
        asked = (
            feature_distances() if isinstance(kernels, str) and kernels == "default" else kernels
        )
        return cls(resolve(asked, samples), samples)

    def __repr__(self) -> str:
        return f"DistanceOperator(n={self.n}, m={self.m})"

    def __getstate__(self) -> dict[str, Any]:
        # All else is computed again where it is needed, as that of the samples is.
        return {name: getattr(self, name) for name in _STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: state[name] for name in _STATE})
        self._reset()

    def _after_load(self) -> None:
        check_kernels(self.kernels, self.samples, self.names)
        _check_exponents(self.kernels)

    def sample_ids_of(self, idx: Array, kernels: Array | None = None) -> dict[str, Any]:
        """Return, for each given distance matrix, the ids of those training samples."""
        rows = self.samples.take(idx)
        chosen = kernel_indices(kernels, self.m)
        ids = {self.names[k]: self.kernels[k].ids(rows) for k in chosen}
        return {name: own for name, own in ids.items() if own is not None}

    def keep(self, cache_mb: float = 1000, dtype: str = "float32") -> DistanceOperator:
        """Return the distances for a fit, with matrices kept that take long to compute.

        Given matrices are read where they are. Other metrics, and squared distances on many
        columns, are kept as matrices as long as they fit in two thirds of `cache_mb`, and computed
        anew beyond that.

        Parameters
        ----------
        cache_mb : float, default=1000
            Megabytes for kept matrices, K(d) or rows of it, and the matrices of solvers.
        dtype : {"float32", "float64"}, default="float32"
            Type of kept matrices; float64 if float32 cannot hold them, `InvalidInputError` if not
            even that can. A part of a longer type is computed from the samples.
        """
        if not fits_float32(_sizes(self)):
            dtype = "float64"
        kind = np.dtype(dtype)
        budget = cache_bytes(cache_mb)
        size, spent = kind.itemsize * float(self.n) ** 2, 0.0
        matrices: list[Array] = []
        factors: list[tuple[int, int, float]] = []
        kept: set[int] = set()
        for members in _worth_keeping(self).values():
            matrix, scale = _given_matrix(members[0][0], self.samples)
            if matrix is None:
                spent += size
                if spent > _KEPT * budget:
                    spent -= size
                    break
                matrix = _computed_matrix(members[0][0], self.samples, kind)
            factors += [(term.k, len(matrices), scale * factor) for term, factor in members]
            matrices.append(matrix)
            kept.update(id(term) for term, _ in members)
        stored = None
        if matrices:
            rows, cols, values = zip(*factors, strict=True)
            table = sparse.csr_matrix((values, (rows, cols)), shape=(self.m, len(matrices)))
            stored = StoredPart(matrices, table)
        rest = [term for term in self.terms if id(term) not in kept]
        out = self._but(cache_mb=cache_mb, tile_dtype=dtype, work_bytes=budget - spent, _ends={})
        return out._holding(stored, rest, dtype)

    def _holding(
        self, stored: StoredPart | None, rest: Sequence[Term], dtype: str
    ) -> DistanceOperator:
        self._stored, self._rest, self._stored_dtype = stored, rest, dtype
        # Before threads ask for parts, so that no transformer runs twice.
        self._parts(np.dtype(dtype))
        return self

    # Both sides

    @property
    def n(self) -> int:  # type: ignore[override]
        return (self.samples if self._right is None else self._right).n

    @property
    def shape(self) -> tuple[int, int]:
        return (self.samples if self._left is None else self._left).n, self.n

    def against(self, X: Any) -> DistanceOperator:
        new = check_columns(X, self.samples)
        _ = self._sorted  # Found once for all.
        return self._but(_left=new, _ends={}, _stored=None)

    def between(self, X: Any, Z: Any) -> DistanceOperator:
        left = check_columns(X, self.samples)
        right = left if Z is X else check_columns(Z, self.samples)
        return self._but(_left=left, _right=right, _ends={}, _stored=None)

    def exact(self) -> DistanceOperator:
        """See :class:`KernelOperator`; sums over parts are float64, computed from the samples."""
        return self if self.tile_dtype == "float64" else self._but(tile_dtype="float64")

    def refined(self) -> DistanceOperator | None:
        """Return the same distances in float64."""
        if self._stored_dtype == "float64":
            return None
        finer = DistanceOperator(self.kernels, self.samples).keep(self.cache_mb, "float64")
        finer.names, finer.matrix_limit = self.names, self.matrix_limit
        return finer

    @cached_property
    def _sorted(self) -> list[Part]:
        """What the distances are added up from, without those that are kept."""
        return sort_terms(self.terms, self.samples, self.m)

    @cached_property
    def _computed(self) -> list[Part]:
        """What is added to the matrices that are kept."""
        return sort_terms(self._rest, self.samples, self.m)

    def _parts(self, kind: np.dtype[Any]) -> list[tuple[Part, Any, Any]]:
        """What sums of this type are added up from, with what each part keeps of both sides."""
        if kind not in (np.float64, np.float32):
            raise InvalidInputError(f"distances are computed in float64 or float32; got {kind}.")
        if kind.char not in self._ends:
            stored = self._stored
            if stored is not None and kind.itemsize <= np.dtype(self._stored_dtype).itemsize:
                whole = [(part, part.side(self.samples, kind)) for part in self._computed]
                whole.append((stored, stored.side(self.samples, kind)))
                self._ends[kind.char] = [(part, side, side) for part, side in whole]
            else:
                left, right = self._sides(self._left, kind), self._sides(self._right, kind)
                if self._left is self._right:
                    right = left
                self._ends[kind.char] = list(zip(self._sorted, left, right, strict=True))
        return self._ends[kind.char]

    def _sides(self, samples: Samples | None, kind: np.dtype[Any]) -> list[Any]:
        if samples is not None:
            return [part.side(samples, kind) for part in self._sorted]
        if kind.char not in self._train:
            self._train[kind.char] = [part.side(self.samples, kind) for part in self._sorted]
        return self._train[kind.char]

    @property
    def nbytes(self) -> int:
        """Bytes of kept matrices and columns."""
        held = {
            (id(part), id(side)): (part, side)
            for ends in self._ends.values()
            for part, side, _ in ends
        }
        return sum(part.nbytes(side) for part, side in held.values())

    def part(
        self, rows: Which = None, columns: Which = None, dtype: DTypeLike = np.float64
    ) -> DistanceOperator:
        kind = np.dtype(dtype)
        left = _as_slice(rows, self.shape[0])
        right = _as_slice(columns, self.n)
        ends = [(p, p.take(one, left), p.take(two, right)) for p, one, two in self._parts(kind)]
        return self._but(
            _left=taken(self.samples if self._left is None else self._left, left),
            _right=taken(self.samples if self._right is None else self._right, right),
            _ends={kind.char: ends},
            _stored=None,
            dtype=kind.name,
        )

    def take(self, idx: Array) -> DistanceOperator:
        idx = sample_indices(idx, self.n)
        few = DistanceOperator(self.kernels, self.samples.take(idx))
        stored = self._stored
        if stored is not None:
            stored = StoredPart([D[np.ix_(idx, idx)] for D in stored.matrices], stored.factors)
        return self._like(few, stored, self._rest)

    def select(self, kernels: Array) -> DistanceOperator:
        chosen = kernel_indices(kernels, self.m)
        some = DistanceOperator([self.kernels[k] for k in chosen], self.samples)
        some.names = [self.names[k] for k in chosen]
        rest = [
            Term(i, t.path, t.leaf) for i, k in enumerate(chosen) for t in self._rest if t.k == k
        ]
        stored = self._stored
        if stored is not None:
            factors = stored.factors[chosen]
            used = np.unique(factors.indices)
            matrices = [stored.matrices[i] for i in used]
            stored = StoredPart(matrices, factors[:, used]) if matrices else None
        return self._like(some, stored, rest)

    def _like(
        self, out: DistanceOperator, stored: StoredPart | None, rest: Sequence[Term]
    ) -> DistanceOperator:
        out.cache_mb, out.tile_dtype, out.matrix_limit = (
            self.cache_mb,
            self.tile_dtype,
            self.matrix_limit,
        )
        out.work_bytes = self.work_bytes
        return out._holding(stored, rest, self._stored_dtype)

    # Values

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        """See :class:`KernelOperator`; from the kernels' own formula, one by one."""
        chosen = kernel_indices(kernels, self.m)
        left = self.samples if self._left is None else self._left
        right = self.samples if self._right is None else self._right
        left = left if rows is None else left.take(rows)
        right = right if columns is None else right.take(columns)
        kind = np.dtype(self.dtype if dtype is None else dtype)
        out = np.empty((len(chosen), left.n, right.n), kind)
        for i, k in enumerate(chosen):
            out[i] = self.kernels[k].exponent(Pair(left, right, kind))
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        return np.zeros((len(kernel_indices(kernels, self.m)), self.n))

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        if rows is not None or columns is not None or out is not None:
            kind = np.dtype(self.dtype if out is None else out.dtype)
            found = self.part(rows, columns, kind).weighted(d)
            if out is None:
                return found
            out[...] = found
            return out
        weights = np.asarray(d, dtype=np.float64)
        total: Array | None = None
        for part, left, right in self._parts(np.dtype(self.dtype)):
            total = part.weighted(weights, left, right, total)
        return np.zeros(self.shape, self.dtype) if total is None else total

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        """See :class:`KernelOperator`; M is rounded to the type of sums."""
        weights = np.ascontiguousarray(M, dtype=self.dtype)
        out = np.zeros(self.m)
        for part, left, right in self._parts(np.dtype(self.dtype)):
            part.contract(weights, left, right, out)
        return out


def _check_exponents(kernels: Sequence[Kernel]) -> None:
    for kernel in kernels:
        if not kernel.has_exponent:
            raise no_exponent(kernel.name)


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
                sums[i] += sum_of_products(M[rows], self._block(i, left[0], right[0], rows))
        out += self.factors @ sums


def _count(rows: Array | slice) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def sort_terms(terms: Iterable[Term], samples: Samples, m: int) -> list[Part]:
    """Sort terms into squared distances on dense and on sparse columns, and all others.

    Examples
    --------
    >>> from kernelweave.kernels import RBF
    >>> [type(part).__name__ for part in sort_terms(terms_of([RBF(gamma=1)]), Samples([[1.0]]), 1)]
    ['SquaredPart']
    """
    dense, thin, others = [], [], []
    for term in terms:
        if term.leaf.squared_rate is None:
            others.append(term)
        elif through(term.path, samples).is_sparse:
            thin.append(term)
        else:
            dense.append(term)
    parts: list[Part] = [SquaredPart(group, samples, m) for group in (dense, thin) if group]
    return [*parts, EvaluatedPart(others)] if others else parts


def _sizes(distances: DistanceOperator) -> Array:
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


def _worth_keeping(distances: DistanceOperator) -> dict[Any, list[tuple[Term, float]]]:
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


def _as_slice(rows: Array | None, n: int) -> Array | slice:
    """Consecutive rows (None: all) as a slice, so that nothing is copied."""
    if rows is None:
        return slice(0, n)
    index = sample_indices(rows, n)
    if len(index) and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
