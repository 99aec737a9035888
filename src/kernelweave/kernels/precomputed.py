"""Precomputed Gram matrices: kernels on a column of sample ids."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.arrays import Array, Index
from kernelweave.compiled.dense_rows import rectangle
from kernelweave.errors import IndefiniteKernelWarning, InvalidInputError
from kernelweave.kernels.base import Given, Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.psd import check_kernel, check_square, real_matrix
from kernelweave.kernels.samples import Samples
from kernelweave.validation import require_kind


def sample_ids(n: int) -> NDArray[np.int64]:
    """Return the column of sample ids 0..n-1 that precomputed kernels read, shape (n, 1).

    Fit on ``sample_ids(n)[train]`` and predict on ``sample_ids(n)[test]``; ``GridSearchCV`` and
    ``cross_val_score`` cut it for you.

    Examples
    --------
    >>> sample_ids(3)
    array([[0],
           [1],
           [2]])
    """
    return np.arange(n, dtype=np.int64)[:, None]


class MatrixKernel(Kernel):
    """What kernels share that are known by a matrix over all samples, training and test.

    A subclass checks its matrix in `_check`. Its samples are ids: positions in the matrix.
    """

    # How a user writes it, and what the matrix holds.
    _call: ClassVar[str]
    _kind: ClassVar[str]

    def __init__(self, name: str | None) -> None:
        self._name = name
        # What the check found: the matrix to use, and a warning to repeat.
        self._checked: tuple[Array, str | None] | None = None

    @abstractmethod
    def _check(self) -> tuple[Array, str | None]:
        """Return the matrix to use and a warning, or raise if it is none of its kind."""

    @property
    def _matrix(self) -> Array:
        if self._checked is None:
            self._checked = self._check()
        return self._checked[0]

    def _check_ids(self, samples: Samples) -> None:
        self.ids(samples)
        if self._checked is not None and self._checked[1] is not None:
            warnings.warn(self._checked[1], IndefiniteKernelWarning, stacklevel=3)

    def _after_load(self) -> None:
        super()._after_load()
        if self._checked is None:
            return
        # That it is positive semidefinite was found before it was written, at some cost.
        require_kind(f"what is known of '{self.name}'", self._checked, tuple)
        matrix, note = self._checked
        require_kind(f"the matrix of '{self.name}'", matrix, np.ndarray)
        require_kind(f"the warning about '{self.name}'", note, (str, type(None)))
        if matrix.ndim == 2 and matrix.dtype.kind == "f":
            # Samples that came after the fit are the last ones, with NaN between them
            # (`with_new_rows`).
            first = len(matrix) - int(np.isnan(matrix.diagonal()).sum())
            if first < len(matrix):
                matrix = matrix.copy()
                between = matrix[first:, first:]
                between[np.isnan(between)] = 0.0
        real_matrix(matrix, self.name, self._kind)

    def ids(self, samples: Samples) -> Any:
        size = len(self._matrix)
        if samples.n_columns != 1:
            raise InvalidInputError(
                f"'{self.name}' is precomputed over {size} samples and reads one column of sample "
                f"ids, but X has {samples.n_columns} columns. Fit on "
                f"X=kernelweave.sample_ids({size}), or say which column holds the ids: "
                f"{self._call}.on(id_column)."
            )
        ids: Index = samples.memo("ids", _to_ids)
        if len(ids) and (ids.min() < 0 or ids.max() >= size):
            wrong = ids[(ids < 0) | (ids >= size)][0]
            raise InvalidInputError(
                f"'{self.name}' is over {size} samples, so ids go from 0 to {size - 1}; got "
                f"{wrong}. Does the column hold sample ids (kernelweave.sample_ids({size}))?"
            )
        return ids

    def _entries(self, pair: Pair) -> Array:
        """The entries of the matrix for the ids of a pair, in the pair's type."""
        return rectangle(self._matrix, self.ids(pair.left), self.ids(pair.right), pair.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # The matrix is read only: copies of an estimator share it.
        return copy.copy(self)


class Precomputed(MatrixKernel):
    r"""A kernel given by its Gram matrix over all samples, training and test.

    .. math:: k(i, j) = K_{ij}

    The samples are ids: rows of X hold the position of a sample in K. Use ``sample_ids(n)`` as X,
    or a column of ids among others: ``Precomputed(K).on("id")``.

    K must be square, real, finite, symmetric and positive semidefinite. Defects up to 1e-6 of the
    largest eigenvalue (1e-5 in float32) are repaired with an `IndefiniteKernelWarning`; worse ones
    are an error, and `nearest_psd` offers repairs. Up to 1,000 samples the check is exact; beyond
    that it looks at 2 x 2 minors and principal submatrices. The matrix is checked once and not
    copied; do not change it afterwards.

    Parameters
    ----------
    K : array of shape (n, n)
        The Gram matrix, float64 or float32.
    name : str, optional
        What to call it in outputs and messages.

    Examples
    --------
    >>> K = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    >>> kernel = Precomputed(K, name="expression")
    >>> kernel(sample_ids(3)[[2, 0]])
    array([[2., 0.],
           [0., 2.]])
    """

    reads_ids: ClassVar[bool] = True
    _call, _kind = "Precomputed(K)", "kernel"

    def __init__(self, K: Any, name: str | None = None) -> None:
        super().__init__(name)
        self.K = K

    @property
    def name(self) -> str:
        return "precomputed" if self._name is None else str(self._name)

    def _check(self) -> tuple[Array, str | None]:
        return check_kernel(self.K, self.name)

    def bind(self, samples: Samples) -> Precomputed:
        self._check_ids(samples)
        return self

    def evaluate(self, pair: Pair) -> Array:
        return self._entries(pair)

    def diagonal(self, samples: Samples) -> Array:
        values: Array = self._matrix.diagonal()[self.ids(samples)].astype(np.float64)
        return values

    @property
    def given(self) -> Given:
        return Given(self._matrix)

    def _file_state(self) -> dict[str, Any]:
        return {**self.__dict__, "K": np.asarray(self.K)}

    @classmethod
    def examples(cls) -> list[Kernel]:
        A = np.random.default_rng(5).normal(size=(12, 4))
        gram = A @ A.T
        return [cls(gram, "similarity"), cls(gram.astype(np.float32), "single precision")]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        return sample_ids(12)


def from_matrices(matrices: Sequence[Any], names: Sequence[str] | None = None) -> list[Precomputed]:
    """Return one `Precomputed` kernel for each matrix, over the same samples.

    Parameters
    ----------
    matrices : sequence of arrays of shape (n, n)
        Gram matrices over all samples, training and test.
    names : sequence of str, optional
        Their names; "K1", "K2", ... by default.

    Examples
    --------
    >>> kernels = from_matrices([np.eye(3), np.ones((3, 3))], names=["identity", "constant"])
    >>> [kernel.name for kernel in kernels]
    ['identity', 'constant']
    """
    given = list(matrices)
    if not given:
        raise InvalidInputError("from_matrices needs at least one matrix; got none.")
    if not sparse.issparse(given[0]) and np.ndim(given[0]) < 2:
        raise InvalidInputError(
            "from_matrices takes a list of matrices; for a single one write from_matrices([K])."
        )
    titles = [f"K{j + 1}" for j in range(len(given))] if names is None else list(names)
    if len(titles) != len(given):
        raise InvalidInputError(f"got {len(given)} matrices but {len(titles)} names.")
    sizes = [check_square(K, title, "kernel") for K, title in zip(given, titles, strict=True)]
    for size, title in zip(sizes, titles, strict=True):
        if size != sizes[0]:
            raise InvalidInputError(
                f"all matrices must be over the same samples; '{titles[0]}' has {sizes[0]} and "
                f"'{title}' has {size}."
            )
    return [Precomputed(K, title) for K, title in zip(given, titles, strict=True)]


def _to_ids(base: Samples) -> Index:
    values = base.array()
    column = values.toarray()[:, 0] if sparse.issparse(values) else values[:, 0]
    ids = np.rint(column)
    if (ids != column).any() or (np.abs(ids) > 2**53).any():
        wrong = column[(ids != column) | (np.abs(ids) > 2**53)][0]
        raise InvalidInputError(
            f"precomputed kernels read integer sample ids, but the column holds {wrong:g}. Fit on "
            f"X=kernelweave.sample_ids(n), or use .on(id_column)."
        )
    return ids.astype(np.intp)
