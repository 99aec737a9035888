"""Precomputed Gram matrices: kernels on a column of sample ids."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.compiled.dense_rows import rectangle
from kernelweave.errors import IndefiniteKernelWarning, InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.psd import bounds_spectrum, scan, symmetrized
from kernelweave.kernels.samples import Samples
from kernelweave.validation import LARGEST, require_kind

__all__ = ["Precomputed", "from_matrices", "sample_ids"]

# Relative to the largest eigenvalue (diagonal entry): below the first a defect is rounding and
# left alone, up to the second it is repaired with a warning, beyond it is an error.
_TOLERANCE = {np.dtype(np.float64): (1e-10, 1e-6), np.dtype(np.float32): (1e-6, 1e-5)}


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


class Precomputed(Kernel):
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

    def __init__(self, K: Any, name: str | None = None) -> None:
        self.K = K
        self._name = name
        # What the check found: the matrix to use, and a warning to repeat.
        self._checked: tuple[NDArray[Any], str | None] | None = None

    @property
    def name(self) -> str:
        return "precomputed" if self._name is None else str(self._name)

    def bind(self, samples: Samples) -> Precomputed:
        if self._checked is None:
            self._checked = _check_kernel(self.K, self.name)
        if self._checked[1] is not None:
            warnings.warn(self._checked[1], IndefiniteKernelWarning, stacklevel=2)
        read_ids(samples, len(self._matrix), self.name, "Precomputed(K)")
        return self

    def _after_load(self) -> None:
        super()._after_load()
        # That it is positive semidefinite was found before it was written, at some cost.
        checked_matrix(self._checked, self.name, "kernel")

    def check_bound(self, samples: Samples) -> None:
        self.ids(samples)

    @property
    def _matrix(self) -> NDArray[Any]:
        if self._checked is None:
            self._checked = _check_kernel(self.K, self.name)
        return self._checked[0]

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        return look_up(self._matrix, pair, self.name, "Precomputed(K)")

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        ids = read_ids(samples, len(self._matrix), self.name, "Precomputed(K)")
        return self._matrix.diagonal()[ids].astype(np.float64)

    def whole_matrix(self) -> NDArray[Any]:
        return self._matrix

    def ids(self, samples: Samples) -> NDArray[np.intp]:
        return read_ids(samples, len(self._matrix), self.name, "Precomputed(K)")

    def _file_state(self) -> dict[str, Any]:
        return {**self.__dict__, "K": np.asarray(self.K)}

    def _parameters(self) -> dict[str, Any]:
        return {"K": self.K, "name": self._name}

    def _key(self) -> tuple[Any, ...]:
        return (Precomputed, id(self.K), self._name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        # The matrix is read only: copies of an estimator share it.
        return copy.copy(self)

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
    sizes = []
    for K, title in zip(given, titles, strict=True):
        check_square(K, title, "kernel")
        sizes.append(K.shape[0] if hasattr(K, "shape") else len(K))
    for size, title in zip(sizes, titles, strict=True):
        if size != sizes[0]:
            raise InvalidInputError(
                f"all matrices must be over the same samples; '{titles[0]}' has {sizes[0]} and "
                f"'{title}' has {size}."
            )
    return [Precomputed(K, title) for K, title in zip(given, titles, strict=True)]


def checked_matrix(checked: Any, name: str, kind: str) -> None:
    """Raise unless this is what the check of a matrix found: the matrix, and a warning or None.

    Samples that came after the fit are the last ones, with NaN between them (`with_new_rows`).
    """
    if checked is None:
        return
    require_kind(f"what is known of '{name}'", checked, tuple)
    matrix, note = checked
    require_kind(f"the matrix of '{name}'", matrix, np.ndarray)
    require_kind(f"the warning about '{name}'", note, (str, type(None)))
    if matrix.ndim == 2 and matrix.dtype.kind == "f":
        late = int(np.isnan(matrix.diagonal()).sum())
        if late:
            matrix = matrix.copy()
            between = matrix[len(matrix) - late :, len(matrix) - late :]
            between[np.isnan(between)] = 0.0
    real_matrix(matrix, name, kind)


def check_square(K: Any, name: str, kind: str) -> None:
    """Raise unless K is a dense square matrix.

    Examples
    --------
    >>> check_square(np.zeros((3, 2)), "K1", "kernel")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: 'K1' has shape (3, 2), but a precomputed kernel ...
    """
    if sparse.issparse(K):
        raise InvalidInputError(f"'{name}' is a sparse matrix; pass K.toarray().")
    shape = np.shape(K)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInputError(
            f"'{name}' has shape {shape}, but a precomputed {kind} matrix must be square: one row "
            f"and one column for every sample, training and test. Features go to the estimator as "
            f"X, with a kernel such as RBF(width=1)."
        )


def real_matrix(K: Any, name: str, kind: str) -> tuple[NDArray[Any], float]:
    """Return a square matrix as a float array (not copied if it is one) and its asymmetry.

    Examples
    --------
    >>> real_matrix([[1, 0], [0, 1]], "K1", "kernel")
    (array([[1., 0.],
           [0., 1.]]), 0.0)
    """
    check_square(K, name, kind)
    A = np.asarray(K)
    if np.iscomplexobj(A):
        raise InvalidInputError(f"'{name}' must be a real matrix; got complex numbers.")
    if A.dtype not in _TOLERANCE:
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"'{name}' must hold numbers; got {A.dtype}.") from error
    if len(A) == 0:
        raise InvalidInputError(f"'{name}' is empty.")
    asymmetry, finite = scan(A)
    if not finite:
        bad = ~np.isfinite(A)
        # If there is none, a sum of two entries overflowed.
        allowed = "finite" if bad.any() else f"at most {LARGEST:g} in size"
        i, j = (int(t) for t in np.argwhere(bad if bad.any() else np.abs(A) > LARGEST)[0])
        raise InvalidInputError(f"'{name}' must be {allowed}; got {A[i, j]} at ({i}, {j}).")
    return A, asymmetry


def symmetric_matrix(
    A: NDArray[Any], gap: float, name: str, scale: float
) -> tuple[NDArray[Any], str | None]:
    """Return a symmetric version of A and what was done; raise if it is far from symmetric.

    `gap` is the largest |A_ij - A_ji|; it counts relative to `scale`.

    Examples
    --------
    >>> symmetric_matrix(np.eye(2), 0.0, "K1", 1.0)[1] is None
    True
    """
    ignored, repaired = _TOLERANCE[A.dtype]
    if gap <= ignored * scale:
        return A, None
    if gap <= repaired * scale:
        return symmetrized(A), f"was asymmetric by {gap:.2g} and has been made symmetric"
    raise InvalidInputError(
        f"'{name}' is not symmetric: K[i, j] and K[j, i] differ by up to {gap:.3g} (typical "
        f"entries are {scale:.3g}). If that is meant, pass (K + K.T) / 2."
    )


def _check_kernel(K: Any, name: str) -> tuple[NDArray[Any], str | None]:
    """Return the matrix to use and a warning, or raise if it is no kernel."""
    A, gap = real_matrix(K, name, "kernel")
    top = float(np.abs(A.diagonal()).max())
    A, done = symmetric_matrix(A, gap, name, top or float(np.abs(A).max()) or 1.0)
    found = bounds_spectrum(A)
    ignored, repaired = _TOLERANCE[A.dtype]
    largest = max(found.largest, top)
    if found.smallest < -repaired * largest or (largest <= 0 and found.smallest < 0):
        raise InvalidInputError(
            f"'{name}' is not positive semidefinite: it has an eigenvalue of {found.smallest:.3g} "
            f"or less (the largest is about {largest:.3g}), so it is not a kernel. Repair it with "
            f"kernelweave.kernels.nearest_psd(K), which offers 'clip', 'flip' and 'shift'."
        )
    notes = [] if done is None else [done]
    if found.smallest < -ignored * largest:
        # A part of the rows shows about that part of a spread-out eigenvector: be generous.
        shift = -found.smallest if found.share == 1.0 else -2.0 * found.smallest / found.share
        A = A.copy() if done is None else A
        A[np.diag_indices_from(A)] += A.dtype.type(shift)
        notes.append(
            f"had an eigenvalue of {found.smallest:.2g} (the largest is about {largest:.3g}) and "
            f"{shift:.2g} has been added to its diagonal"
        )
    return A, f"precomputed kernel '{name}' {' and '.join(notes)}." if notes else None


def read_ids(samples: Samples, size: int, name: str, call: str) -> NDArray[np.intp]:
    """Return the sample ids in the only column of `samples`, checked.

    Examples
    --------
    >>> read_ids(Samples(sample_ids(3)), 3, "K1", "Precomputed(K)")
    array([0, 1, 2])
    """
    if samples.n_columns != 1:
        raise InvalidInputError(
            f"'{name}' is precomputed over {size} samples and reads one column of sample ids, but "
            f"X has {samples.n_columns} columns. Fit on X=kernelweave.sample_ids({size}), or say "
            f"which column holds the ids: {call}.on(id_column)."
        )
    ids = samples.memo("ids", _to_ids)
    if len(ids) and (ids.min() < 0 or ids.max() >= size):
        wrong = ids[(ids < 0) | (ids >= size)][0]
        raise InvalidInputError(
            f"'{name}' is over {size} samples, so ids go from 0 to {size - 1}; got {wrong}. Does "
            f"the column hold sample ids (kernelweave.sample_ids({size}))?"
        )
    return ids


def _to_ids(base: Samples) -> NDArray[np.intp]:
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


def look_up(A: NDArray[Any], pair: Pair, name: str, call: str) -> NDArray[Any]:
    """Return the entries of A for the ids of a pair, in the pair's type.

    Examples
    --------
    >>> X = Samples(sample_ids(2))
    >>> look_up(np.eye(2), Pair(X.take([1]), X), "K1", "Precomputed(K)")
    array([[0., 1.]])
    """
    left = read_ids(pair.left, len(A), name, call)
    right = read_ids(pair.right, len(A), name, call)
    return rectangle(A, left, right, pair.dtype)
