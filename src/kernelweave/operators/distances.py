"""Distances instead of kernels: the base matrices of a product of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.dense_rows import fits_float32
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.algebra import Product
from kernelweave.kernels.base import Kernel, no_exponent
from kernelweave.kernels.families import feature_distances, resolve
from kernelweave.kernels.names import unique_names
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.memory import cache_bytes, rows_and_work
from kernelweave.operators.base import Which, into, kernel_indices, sample_indices
from kernelweave.operators.distance_parts import (
    Evaluated,
    Part,
    Side,
    Term,
    factor_table,
    parts_of,
)
from kernelweave.operators.sampled import SampledOperator, check_kernels, squared_columns
from kernelweave.validation import LARGEST

# Columns from which on the distance of one kernel is kept. For 512 x 2,000 distances a matrix is
# read in 0.55 ms and a column multiplied in 0.036 (0.84 and 0.055 in float64), so that 15 columns
# take as long. Four times as many, as columns that several kernels read are multiplied once for
# all of them.
_WIDE = 64
# Rows of a stored matrix that are computed at a time.
_BLOCK_ROWS = 64
_STATE = ("kernels", "samples", "names")


class DistanceOperator(SampledOperator):
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

    def __init__(self, kernels: Sequence[Kernel], samples: Samples) -> None:
        self.kernels = list(kernels)
        _check_exponents(self.kernels)
        self.samples = samples
        self.names: list[str] = unique_names(self.kernels)
        self._reset()

    def _reset(self) -> None:
        self.m = len(self.kernels)
        self.terms = [
            Term(k, *term)
            for k, kernel in enumerate(self.kernels)
            for term in kernel.leaves(Product)
        ]
        self._train = self._left = self._right = self._side(self.samples)
        # The matrices that are kept, their type, and what sums with them are added up from.
        self._matrices: list[Array] = []
        self._kept: np.dtype[Any] | None = None
        self._kept_parts: list[Part] = []

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
        room, _ = rows_and_work(budget, float("inf"))
        size, spent = kind.itemsize * float(self.n) ** 2, 0.0
        matrices: list[Array] = []
        factors: list[tuple[int, int, float]] = []
        kept: set[int] = set()
        for members in _worth_keeping(self):
            matrix, scale = _given_matrix(members[0][0], self.samples)
            if matrix is None:
                if spent + size > room:
                    break
                spent += size
                matrix = _computed_matrix(members[0][0], self.samples, kind)
            scale /= members[0][1]
            factors += [(term.k, len(matrices), scale * rate) for term, rate in members]
            matrices.append(matrix)
            kept.update(id(term) for term, _ in members)
        parts = parts_of([t for t in self.terms if id(t) not in kept], self.samples, self.m)
        if matrices:
            parts.append(Evaluated(matrices, factor_table(factors, self.m, len(matrices))))
        out = self._but(cache_mb=cache_mb, tile_dtype=dtype, work_bytes=budget - spent)
        out._matrices, out._kept, out._kept_parts = matrices, kind, parts
        return out

    # Both sides

    def _side(self, new: Samples) -> Side:
        return Side(new, slice(0, new.n))

    def of_rows(self, left: Side, right: Side) -> DistanceOperator:
        _ = self._computed_parts  # Found once for all.
        return self._but(_left=left, _right=right, _kept=None, _kept_parts=[])

    def exact(self) -> DistanceOperator:
        """See :class:`KernelOperator`; sums over parts are float64, computed from the samples."""
        if self.tile_dtype == "float64":
            return self
        _ = self._computed_parts  # Found once for all.
        return self._but(tile_dtype="float64")

    def refined(self) -> DistanceOperator | None:
        if self._kept is None or self._kept == np.float64:
            return None
        return self._again(self.samples, np.dtype(np.float64))

    @cached_property
    def _computed_parts(self) -> list[Part]:
        """What the distances are added up from, without those that are kept."""
        return parts_of(self.terms, self.samples, self.m)

    def _parts(self, kind: np.dtype[Any]) -> list[Part]:
        """What sums of this type are added up from."""
        if kind not in (np.float64, np.float32):
            raise InvalidInputError(f"distances are computed in float64 or float32; got {kind}.")
        kept = self._kept is not None and kind.itemsize <= self._kept.itemsize
        return self._kept_parts if kept else self._computed_parts

    def part(
        self, rows: Which = None, columns: Which = None, dtype: DTypeLike = np.float64
    ) -> DistanceOperator:
        kind = np.dtype(dtype)
        self._parts(kind)
        return self._but(
            _left=self._left.cut(rows),
            _right=self._right.cut(columns),
            dtype=kind.name,
        )

    def take(self, idx: Array) -> DistanceOperator:
        """See :class:`KernelOperator`; what is kept is computed again for these samples."""
        return self._again(self.samples.take(sample_indices(idx, self.n)), self._kept)

    def _again(self, samples: Samples, kept: np.dtype[Any] | None) -> DistanceOperator:
        """Return the same distances between other samples, kept in that type."""
        out = DistanceOperator(self.kernels, samples)
        out = out if kept is None else out.keep(self.cache_mb, kept.name)
        out.matrix_limit = self.matrix_limit
        return out

    # Values

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        part, chosen = self.part(rows, columns, self.dtype), kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), *part.shape), self.dtype)
        for own, k in zip(out, chosen, strict=True):
            own[...] = part.weighted(np.arange(self.m) == k)
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        return np.zeros((len(kernel_indices(kernels, self.m)), self.n))

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        if rows is not None or columns is not None or out is not None:
            kind = np.dtype(self.dtype if out is None else out.dtype)
            return into(out, self.part(rows, columns, kind).weighted(d))
        weights, kind = np.asarray(d, dtype=np.float64), np.dtype(self.dtype)
        total: Array | None = None
        for part in self._parts(kind):
            w = part.by_base @ weights
            if w.any():
                D = part.weighted(w, self._left, self._right, kind)
                total = D if total is None else np.add(total, D, out=total)
        return np.zeros(self.shape, kind) if total is None else total

    def contract(self, M: ArrayLike) -> Array:
        """See :class:`KernelOperator`; M is rounded to the type of sums."""
        kind = np.dtype(self.dtype)
        weights, out = np.ascontiguousarray(M, dtype=kind), np.zeros(self.m)
        for part in self._parts(kind):
            out += part.factors @ part.contract(weights, self._left, self._right, kind)
        return out


def _check_exponents(kernels: Sequence[Kernel]) -> None:
    for kernel in kernels:
        if any(type(leaf).exponent is Kernel.exponent for _, leaf in kernel.leaves(Product)):
            raise no_exponent(kernel.name)


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
                values = samples.through(term.path).array()
                numbers = values.data if sparse.issparse(values) else values
                before.append(float(np.abs(numbers).max(initial=0.0)) ** 2)
                sizes[term.k] += float(np.max(term.exponent(first, samples, np.float64)))
            else:
                before.append(float(np.max(given)))
                sizes[term.k] += max(scale, 1.0) * before[-1]
    for name, size in zip(distances.names, sizes, strict=True):
        if not size <= LARGEST:
            raise InvalidInputError(
                f"kernel '{name}' has distances of {size:g}; they must be finite and at most "
                f"{LARGEST:g}, or sums of them would overflow. Scale the columns it reads, or "
                f"lower its gamma or raise its scale."
            )
    return np.array([*sizes, *before])


def _worth_keeping(distances: DistanceOperator) -> list[list[tuple[Term, float]]]:
    """Terms that take longer to compute than to read: multiples of one matrix, and by what."""
    groups: dict[Any, list[tuple[Term, float]]] = {}
    for term in distances.terms:
        rate = term.leaf.squared_rate
        if rate is None:
            key: Any = int(not term.leaf.reads_ids), term.path, term.leaf
        else:
            root, columns = squared_columns(term.path, distances.samples)
            if len(columns) < _WIDE:
                continue
            key = 2, root, tuple(sorted(columns))
        groups.setdefault(key, []).append((term, rate or 1.0))
    # Given matrices take no memory, and squared distances are the quickest to compute anew.
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def _given_matrix(term: Term, samples: Samples) -> tuple[Array | None, float]:
    """A matrix the user holds and its factor, where it can be read without a copy."""
    given, ids = term.leaf.given, term.leaf.ids(samples.through(term.path))
    if given is None or given.rate is None or ids is None or (np.diff(ids) != 1).any():
        return None, 1.0
    block = slice(int(ids[0]), int(ids[-1]) + 1)
    return given.matrix[block, block], given.rate


def _computed_matrix(term: Term, samples: Samples, dtype: np.dtype[Any]) -> Array:
    out = np.empty((samples.n, samples.n), dtype)

    def work(start: int, stop: int) -> None:
        part = samples.take(np.arange(start, stop))
        out[start:stop] = term.exponent(part, samples, np.float64)

    map_blocks(work, samples.n, _BLOCK_ROWS)
    return out
