"""Very many Gaussian kernels on few columns each, described by two arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.columns import Selection
from kernelweave.kernels.names import short
from kernelweave.validation import positive_number

# SimpleMKL's ten widths, for standardised columns.
_WIDTHS = (0.5, 1, 2, 5, 7, 10, 12, 15, 17, 20)


@dataclass(eq=False, repr=False)
class RBFBatch:
    r"""A batch of Gaussian kernels, each on its own few columns.

    .. math:: k_k(x, x') = \exp\Big(-\gamma_k \sum_{j \in S_k} (x_j - x'_j)^2\Big),
              \quad k = 1, \dots, m

    A million such kernels take some 30 bytes each: none of them becomes a Python object, and their
    values are computed where they are needed and not stored. Give the batch as `kernels=` of an
    estimator, alone or in a list with other kernels.

    Parameters
    ----------
    columns : array of int, shape (m, max_size)
        Row k lists the columns :math:`S_k`; shorter rows are filled up with -1.
    gamma : array of float, shape (m,)
        The :math:`\gamma_k`, above zero. A Gaussian of width s has :math:`\gamma = 1 / (2 s^2)`.
    transformer : scikit-learn transformer, default=None
        Cloned and fitted once on all columns of the training samples, for example
        ``StandardScaler()``; `columns` are columns of what it returns.

    Examples
    --------
    >>> from kernelweave.operators import bind_kernels
    >>> batch = RBFBatch([[0, -1], [0, 1]], [1.0, 0.5])
    >>> kernels = bind_kernels(batch, [[0.0, 0.0], [1.0, 1.0]])
    >>> list(kernels.names)
    ['rbf(gamma=1) on column 0', 'rbf(gamma=0.5) on columns 0-1']
    >>> kernels.block([0]).round(3)
    array([[[1.   , 0.368]],
    <BLANKLINE>
           [[1.   , 0.368]]])
    """

    columns: ArrayLike
    gamma: ArrayLike
    transformer: Any = field(default=None, kw_only=True)

    @classmethod
    def random(
        cls,
        m: int,
        n_features: int,
        *,
        sizes: tuple[int, int] = (1, 5),
        widths: Sequence[float] = _WIDTHS,
        transformer: Any = None,
        random_state: int | None = 0,
    ) -> RBFBatch:
        """Draw m kernels on random sets of columns, with random widths.

        Parameters
        ----------
        m : int
            Number of kernels.
        n_features : int
            Number of columns to draw from.
        sizes : tuple of int, default=(1, 5)
            Smallest and largest number of columns of a kernel; all numbers between are as likely.
        widths : sequence of float
            Every kernel draws one of these; the ten widths of SimpleMKL by default.
        transformer : scikit-learn transformer, default=None
            See the class.
        random_state : int or None, default=0
            Seed.

        Examples
        --------
        >>> RBFBatch.random(1000, 60)
        RBFBatch(columns=<array 1000 x 5>, gamma=<array 1000>)
        """
        low, high = sizes
        if not 1 <= low <= high <= n_features:
            raise InvalidInputError(
                f"sizes must satisfy 1 <= smallest <= largest <= n_features; got sizes={sizes!r} "
                f"and n_features={n_features!r}."
            )
        if not m >= 1:
            raise InvalidInputError(f"m must be at least 1; got {m!r}.")
        rates = np.array([0.5 / positive_number("a width", width) ** 2 for width in widths])
        if not len(rates):
            raise InvalidInputError("widths is empty; give at least one width.")
        rng = np.random.default_rng(random_state)
        columns = np.empty((m, high), dtype=np.int32)
        # Floyd's way to draw without replacement: a number met before is replaced by the largest.
        for step in range(high):
            largest = n_features - high + step
            drawn = rng.integers(0, largest + 1, m, dtype=np.int32)
            met = (columns[:, :step] == drawn[:, None]).any(axis=1)
            columns[:, step] = np.where(met, largest, drawn)
        columns = rng.permuted(columns, axis=1)
        # Part of a random set is a random set; the rest is sorted to the end and filled up.
        unused = np.arange(high) >= rng.integers(low, high + 1, m)[:, None]
        columns[unused] = n_features
        columns.sort(axis=1)
        columns[columns == n_features] = -1
        return cls(columns, rates[rng.integers(0, len(rates), m)], transformer=transformer)

    @property
    def m(self) -> int:
        """Number of kernels."""
        return len(np.asarray(self.gamma))

    @property
    def selection(self) -> Selection:
        """All columns, through the transformer."""
        return Selection(slice(None), self.transformer)

    def checked(self, n_columns: int) -> tuple[NDArray[np.int32], Array]:
        """Return columns (sorted, then filled up with -1) and gamma, or raise if they are wrong."""
        columns, gamma = np.asarray(self.columns), np.asarray(self.gamma)
        if columns.ndim != 2 or columns.dtype.kind not in "iu" or not columns.size:
            raise InvalidInputError(
                f"columns of RBFBatch must be a non-empty 2-D array of integers (m, max_size), "
                f"short rows filled up with -1; got shape {columns.shape}, dtype {columns.dtype}."
            )
        if gamma.shape != (len(columns),) or gamma.dtype.kind not in "iuf":
            raise InvalidInputError(
                f"gamma of RBFBatch must hold one number for each of the {len(columns)} rows of "
                f"columns; got shape {gamma.shape}, dtype {gamma.dtype}."
            )
        bad = np.flatnonzero(~(np.isfinite(gamma) & (gamma > 0)))
        if len(bad):
            raise InvalidInputError(
                f"gamma of RBFBatch must be finite and above zero; got {gamma[bad[0]]} for kernel "
                f"{bad[0]}."
            )
        wrong = (columns < -1) | (columns >= n_columns)
        if wrong.any():
            k, c = np.argwhere(wrong)[0]
            raise InvalidInputError(
                f"columns of RBFBatch must be 0 to {n_columns - 1} (the data have {n_columns} "
                f"columns), or -1 to fill up a row; got {columns[k, c]} for kernel {k}."
            )
        # What only fills a row goes to its end.
        rows = np.where(columns < 0, n_columns, columns).astype(np.int32)
        rows.sort(axis=1)
        empty = np.flatnonzero(rows[:, 0] == n_columns)
        if len(empty):
            raise InvalidInputError(
                f"every kernel of RBFBatch needs at least one column; kernel {empty[0]} has none."
            )
        repeats = np.argwhere((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] < n_columns))
        if len(repeats):
            k, c = repeats[0]
            raise InvalidInputError(
                f"a kernel of RBFBatch names each of its columns once; kernel {k} names column "
                f"{rows[k, c]} twice."
            )
        rows[rows == n_columns] = -1
        return rows, gamma.astype(np.float64)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RBFBatch)
            and np.array_equal(self.columns, other.columns)
            and np.array_equal(self.gamma, other.gamma)
            and self.selection == other.selection
        )

    def __hash__(self) -> int:
        return hash((RBFBatch, np.shape(self.columns), type(self.transformer)))

    def __sklearn_clone__(self) -> RBFBatch:
        return self

    def __repr__(self) -> str:
        shown = [
            f"{name}={short(np.asarray(getattr(self, name)))}" for name in ("columns", "gamma")
        ]
        if self.transformer is not None:
            shown.append(f"transformer={self.transformer!r}")
        return f"RBFBatch({', '.join(shown)})"
