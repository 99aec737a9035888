"""Operators between some samples: parts of others, and kernels that are computed from samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.columns import Block
from kernelweave.kernels.evaluate import evaluate_stack
from kernelweave.kernels.normalize import Normalization, Scaling
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.operators.base import KernelOperator, Which, kernel_indices
from kernelweave.operators.bounds import ErrorBound
from kernelweave.validation import require_kind, require_names

Path = tuple[Block, ...]

# From this many columns on their distances are computed faster by BLAS.
MOST_COLUMNS = 128


# What the parts of an operator have from it.
_OF_PARTS = ("matrix_limit", "cache_mb", "round_size", "keeps_rows", "computes_rows")


class Part(KernelOperator):
    """Some rows, columns and kernels of an operator, asked for as they are needed.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> whole = DenseOperator([np.eye(3), np.ones((3, 3))])
    >>> part = Part(whole, np.array([0]), np.array([0, 2]), None)
    >>> part.weighted([1.0, 10.0])
    array([[11., 10.]])
    >>> part.contract([[1.0, -1.0]])
    array([1., 0.])
    """

    def __init__(
        self,
        whole: KernelOperator,
        rows: Array | None,
        columns: Array | None,
        kernels: Array | None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self._whole, self._dtype = whole, np.dtype(dtype)
        self._rows = None if rows is None else np.asarray(rows)
        self._columns = None if columns is None else np.asarray(columns)
        self._kernels = kernel_indices(kernels, whole.m)
        self.m = len(self._kernels)
        self.n = whole.shape[1] if self._columns is None else len(self._columns)
        self.names = whole.names if kernels is None else [whole.names[k] for k in self._kernels]
        self.__dict__ |= {name: getattr(whole, name) for name in _OF_PARTS}

    @property
    def shape(self) -> tuple[int, int]:
        return self._whole.shape[0] if self._rows is None else len(self._rows), self.n

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen = self._kernels[kernel_indices(kernels, self.m)]
        return self._whole.block(_cut(self._rows, rows), _cut(self._columns, columns), chosen)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        weights = np.zeros(self._whole.m)
        weights[self._kernels] = d
        left, right = _cut(self._rows, rows), _cut(self._columns, columns)
        if out is None:
            height = self.shape[0] if rows is None else len(rows)
            out = np.empty((height, self.n if columns is None else len(columns)), self._dtype)
        return self._whole.weighted(weights, left, right, out)

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        if self._columns is not None:
            return super().apply(v, kernels, rows)
        chosen = self._kernels[kernel_indices(kernels, self.m)]
        return self._whole.apply(v, chosen, _cut(self._rows, rows))

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = self._kernels[kernel_indices(kernels, self.m)]
        found = self._whole.diagonal(chosen)
        return found if self._columns is None else found[:, self._columns]

    def error(self, v: Array, d: Array) -> ErrorBound:
        weights = np.zeros(self._whole.m)
        weights[self._kernels] = d
        bound = self._whole.error(v, weights)
        return ErrorBound(bound.quad_missing[self._kernels], bound.product)


def _cut(index: Array | None, chosen: Array | None) -> Array | None:
    if chosen is None:
        return index
    return np.asarray(chosen) if index is None else index[chosen]


class Rows:
    """Samples on one side of an operator, and what the normalisation knows of them.

    `scalings` has what it knows by kernel, and is None if that still has to be found out.
    """

    def __init__(self, samples: Samples, scalings: dict[int, Scaling] | None = None) -> None:
        self.samples, self.scalings, self.n = samples, scalings, samples.n

    def take(self, idx: Array) -> Rows:
        known = self.scalings
        if known is not None:
            known = {place: own.take(idx) for place, own in known.items()}
        return Rows(self.samples.take(idx), known)


class SampledOperator(KernelOperator):
    """Kernels that are computed from samples, those of the training or others on either side.

    `_left` and `_right` are the samples as the representation reads them, `_train` those of the
    training.
    """

    samples: Any
    # None of those that are known by numbers alone.
    kernels: Sequence[Kernel] = ()
    normalization: Normalization
    dtype = "float64"
    _left: Any
    _right: Any
    _train: Any = None

    @abstractmethod
    def _side(self, new: Samples) -> Any:
        """Return new samples as the representation reads them."""

    @property
    def n(self) -> int:  # type: ignore[override]
        return int((self._right or self.samples).n)

    @property
    def shape(self) -> tuple[int, int]:
        return int((self._left or self.samples).n), self.n

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, m={self.m}, {self.normalization!r})"

    def against(self, X: Any) -> Self:
        return self.of_rows(self._checked(X), self._train)

    def between(self, X: Any, Z: Any) -> Self:
        left = self._checked(X)
        return self.of_rows(left, left if Z is X else self._checked(Z))

    def _checked(self, X: Any) -> Any:
        new = as_samples(X)
        if new.n_columns != self.samples.n_columns:
            raise InvalidInputError(
                f"X has {new.n_columns} columns, but the kernels were bound to "
                f"{self.samples.n_columns}."
            )
        return self._side(new)

    def sample_ids_of(self, idx: Array, kernels: Array | None = None) -> dict[str, Any]:
        rows, found = self.samples.take(idx), {}
        for k, kernel in enumerate(self.kernels):
            if kernels is None or k in kernels:
                found[self.names[k]] = kernel.core.ids(rows.through(kernel.path))
        return {name: ids for name, ids in found.items() if ids is not None}

    def of_rows(self, left: Any, right: Any) -> Self:
        """Return the kernels between other samples."""
        return self._but(_left=left, _right=right)

    def in_type(self, dtype: str) -> Self:
        """Return the same kernels with values of that type."""
        return self._but(dtype=dtype)

    def refined(self) -> KernelOperator | None:
        return None if self.dtype == "float64" else self.in_type("float64")

    def exact(self) -> KernelOperator:
        return self.refined() or self


def check_kernels(kernels: Any, samples: Any, names: Any) -> None:
    """Raise unless bound kernels, which came from a file, fit their samples and have names."""
    require_kind("the kernels", kernels, list)
    require_kind("the training samples", samples, Samples)
    if not kernels:
        raise InvalidInputError("there must be at least one kernel.")
    require_names("the names of the kernels", names, len(kernels))
    for kernel in kernels:
        require_kind("a kernel", kernel, Kernel)
        kernel.core.ids(samples.through(kernel.path))
    first = samples.take([0])
    evaluate_stack(kernels, first, first)


def squared_columns(path: Path, samples: Samples) -> tuple[Path, list[int]]:
    """Return where columns come from: blocks that end in a transformer, and places after them.

    Paths that read the same columns of the same (transformed) data then have equal roots.
    """
    root: Path = ()
    columns: list[int] | None = None
    for place, block in enumerate(path):
        if block.transformer is not None:
            root, columns = path[: place + 1], None
        else:
            chosen = block.indices
            columns = list(chosen) if columns is None else [columns[j] for j in chosen]
    return root, list(range(samples.through(root).n_columns)) if columns is None else columns


class Columns:
    """Columns of samples that squared distances are computed from, each of them once.

    Each of `located` is blocks that end in a transformer, and columns behind them; its `places` are
    those among all `count` columns.
    """

    def __init__(self, located: Sequence[tuple[Path, Sequence[int]]], samples: Samples) -> None:
        wanted: dict[Path, set[int]] = {}
        for root, columns in located:
            wanted.setdefault(root, set()).update(columns)
        self._sources: list[tuple[Path, Block]] = []
        place: dict[tuple[Path, int], int] = {}
        for root, used in wanted.items():
            whole, chosen = samples.through(root), sorted(used)
            names = None if whole.columns is None else [whole.columns[j] for j in chosen]
            self._sources.append((root, Block(chosen, whole.n_columns, names, "")))
            place |= {(root, j): len(place) + i for i, j in enumerate(chosen)}
        self.count = len(place)
        self.places = [np.array([place[root, j] for j in own], np.int32) for root, own in located]

    def values(self, samples: Samples, as_sparse: bool = False) -> Any:
        """All columns side by side, float64, dense or as a CSR matrix."""
        found = []
        for root, block in self._sources:
            seen = samples.through(root)
            everything = len(block.indices) == seen.n_columns and seen.columns is None
            values = seen.array() if everything else Samples(block.native(seen)).array()
            if as_sparse:
                found.append(sparse.csr_matrix(values))
            else:
                found.append(values.toarray() if sparse.issparse(values) else values)
        if len(found) == 1:
            return found[0]
        return sparse.hstack(found, format="csr") if as_sparse else np.hstack(found)


def gaussian_columns(kernels: SampledOperator, k: int) -> tuple[float, Path, list[int]] | None:
    """Return gamma and the columns of kernel k if it is Gaussian, dense and not centred.

    The columns are blocks that end in a transformer, and places behind them.
    """
    kernel = kernels.kernels[k]
    form = kernel.core.form()
    if form is None or (form.ingredient, form.code) != ("sqdist", 0):
        return None
    seen = kernels.samples.through(kernel.path)
    if seen.is_sparse or seen.n_columns > MOST_COLUMNS or "center" in kernels.normalization.names:
        return None
    return form.p0, *squared_columns(kernel.path, kernels.samples)
