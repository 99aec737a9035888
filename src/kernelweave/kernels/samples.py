"""The samples a kernel is evaluated on: arrays, CSR matrices, frames, text behind one face."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse

from kernelweave.arrays import Array, Index
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.packing import pack, unpack
from kernelweave.validation import LARGEST, require_names, require_sparse

# Column blocks that are copies are kept up to this size for each set of samples; larger ones are
# cut again on every use, so that many thousand overlapping blocks never add up to gigabytes.
_KEEP_BYTES = 256 * 2**20
# Letters of a reason that an error shows: it may hold the text, which may be a whole chromosome.
_LONGEST_REASON = 60
_STATE = ("_data", "columns", "n", "n_columns", "_parent", "_index")


class Samples:
    """Rows of data, converted once and shared by all kernels.

    Parameters
    ----------
    X : array of shape (n, p), CSR matrix, pandas or polars DataFrame, or n sequences
        The samples. Columns are converted to numbers only when a kernel asks for them, so a table
        may hold text in columns that go through a transformer or a string kernel. A list, array or
        Series of `str` or `bytes` is one column of text.

    Attributes
    ----------
    n : int
        Number of samples.
    n_columns : int
        Number of columns.
    columns : list of str or None
        Column names, if the data have them.

    Examples
    --------
    >>> samples = Samples([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> samples.n, samples.n_columns
    (3, 2)
    >>> samples.take([2, 0]).array()
    array([[4., 5.],
           [0., 1.]])
    >>> Samples(["ACGT", "GGA"])
    Samples(n=2, n_columns=1)
    """

    def __init__(self, X: Any) -> None:
        self._data, self.columns = _accept(X)
        self.n, self.n_columns = (int(size) for size in self._data.shape)
        self._parent: Samples | None = None
        self._index: Index | None = None
        self._reset()

    def _reset(self) -> None:
        # By key what was computed, by column block the samples seen through it, and the blocks that
        # selections were bound to. All of it can be computed again.
        self._cache: dict[Any, Any] = {}
        self._derived: dict[Any, Samples] = {}
        self._kept_bytes = 0
        # The rows of the whole set as it is cut: a slice, where there is one, copies nothing.
        rows = self._index
        self._cut: Any = rows
        if rows is not None and len(rows) and (np.diff(rows) == 1).all():
            self._cut = slice(int(rows[0]), int(rows[-1]) + 1)
        whole = self if self._parent is None else self._parent
        self.is_sparse = bool(sparse.issparse(whole._data))
        self.bound: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Samples(n={self.n}, n_columns={self.n_columns})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _STATE}

    def _file_state(self) -> dict[str, Any]:
        return {**self.__getstate__(), "_data": pack(self._data)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._data = unpack(self._data)
        self._reset()

    def _after_load(self) -> None:
        if self._parent is not None or self._index is not None:
            raise InvalidInputError("the training samples must be a whole set.")
        data, _ = _accept(self._data)
        if data.shape != (self.n, self.n_columns):
            raise InvalidInputError(
                f"the training samples have shape {data.shape}; it should be "
                f"({self.n!r}, {self.n_columns!r})."
            )
        self._data = data
        if self.columns is not None:
            require_names("the columns of the training samples", self.columns, self.n_columns)

    @property
    def base(self) -> Samples:
        """The whole set these rows were taken from (itself if they are the whole set)."""
        return self if self._parent is None else self._parent

    @property
    def index(self) -> Index | None:
        """Positions of these rows in `base`; None for the whole set in order."""
        return self._index

    @property
    def native(self) -> Any:
        """The data in the type they came in (what a transformer or a column selector sees)."""
        if self._index is None:
            return self._data
        data = self.base._data
        return data.iloc[self._index] if hasattr(data, "iloc") else data[self._index]

    def label(self, j: int) -> str:
        """Return how messages speak of one column."""
        return f"column {j}" if self.columns is None else f"column {self.columns[j]!r}"

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Where the columns of each name are."""
        if self._parent is not None:
            return self._parent.places
        places: dict[str, list[int]] = {}
        for j, name in enumerate(self.columns or []):
            places.setdefault(name, []).append(j)
        return places

    def take(self, index: ArrayLike) -> Samples:
        """Return the samples at these positions; nothing is copied until it is asked for."""
        rows = np.asarray(index, dtype=np.intp)
        out = object.__new__(Samples)
        out._parent = self if self._parent is None else self._parent
        out._index = rows if self._index is None else self._index[rows]
        out._data = None
        out.columns = self.columns
        out.n, out.n_columns = len(rows), self.n_columns
        out._reset()
        return out

    def rows(self, first: int, last: int) -> Samples:
        """Return the samples from one position to before another, or to the end."""
        last = min(last, self.n)
        return self if last - first == self.n else self.take(np.arange(first, last))

    def in_another(self, whole: Samples) -> Samples:
        """Return the rows of another whole set that stand where these do in theirs."""
        return whole if self._index is None else whole.take(self._index)

    def derive(self, block: Any) -> Samples:
        """Return the same rows seen through a column block (see `kernelweave.kernels.Block`)."""
        if self._parent is not None:
            return self.in_another(self._parent.derive(block))
        known = self._derived.get(block)
        if known is None:
            known = block.apply(self)
            size = 0
            if block.transformer is None:
                size = 12 * known._data.nnz if known.is_sparse else 8 * known.n * known.n_columns
            if known is not self and self._kept_bytes + size <= _KEEP_BYTES:
                self._derived[block] = known
                self._kept_bytes += size
        return known

    def through(self, path: Iterable[Any]) -> Samples:
        """Return the same rows seen through several column blocks, one behind the other."""
        seen = self
        for block in path:
            seen = seen.derive(block)
        return seen

    def memo(self, key: Any, make: Callable[[Samples], Any], *, keep: bool = False) -> Any:
        """Return ``make(base)`` (one row for each sample), computed once, cut to these rows.

        With ``keep=True`` the cut is kept too, for as long as these rows are looked at.
        """
        base = self if self._parent is None else self._parent
        value = base._cache.get(key)
        if value is None:
            value = base._cache[key] = make(base)
        if self._index is None:
            return value
        cut = self._cache.get(key)
        if cut is None:
            cut = value[self._cut]
            if keep:
                self._cache[key] = cut
        return cut

    def array(self, dtype: DTypeLike = np.float64, *, centred: bool = False) -> Any:
        """Return the values as an (n, p) array, or as CSR if they came so.

        With ``centred=True`` the column means of the whole set are taken off dense values.
        Arrays may be views of the user's data: do not write into them.
        """
        kind = np.dtype(dtype)
        centred = centred and not self.is_sparse
        if kind == np.float64 and not centred:
            return self.memo("values", as_floats)
        whole = self.base.array()
        origin = self.shift if centred else None
        return self.memo(
            ("array", kind.char, centred),
            lambda _: (whole if origin is None else whole - origin).astype(kind, copy=False),
        )

    @property
    def shift(self) -> Array:
        """Column means of the whole set: the origin distances are computed from."""
        base = self.base
        if "shift" not in base._cache:
            base._cache["shift"] = base.array().mean(axis=0)
        return base._cache["shift"]

    def square_norms(self, dtype: DTypeLike = np.float64, *, centred: bool = False) -> Any:
        """Return the squared Euclidean norm of every row."""
        key = "norms", np.dtype(dtype).char, centred and not self.is_sparse
        whole = self.base.array(dtype, centred=centred)
        return self.memo(key, lambda _: row_square_norms(whole))


def as_samples(X: Any) -> Samples:
    """Return `X` as `Samples`, unchanged if it is one already."""
    return X if isinstance(X, Samples) else Samples(X)


def row_square_norms(A: Any) -> Any:
    """Return the squared norms of the rows of a dense or sparse matrix."""
    if sparse.issparse(A):
        return np.asarray(A.multiply(A).sum(axis=1), dtype=A.dtype).ravel()
    return np.einsum("ij,ij->i", A, A)


def _accept(X: Any) -> tuple[Any, list[str] | None]:
    """Check the outer shape of the data and find the column names."""
    if sparse.issparse(X):
        if X.ndim != 2:
            raise InvalidInputError(f"sparse X must have 2 dimensions; got {X.ndim}.")
        require_sparse("sparse X", X)
        data, names = X.tocsr(), None
    elif is_frame(X):
        labels = list(X.columns)
        # As in scikit-learn, labels count as names only if all of them are strings.
        data, names = X, labels if all(isinstance(label, str) for label in labels) else None
    else:
        data, names = _accept_array(X), None
    n, p = data.shape
    if n == 0 or p == 0:
        raise InvalidInputError(
            f"X must hold at least one sample and one column; got shape {(n, p)}."
        )
    return data, names


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars DataFrame."""
    if type(X).__module__.startswith("polars"):
        if type(X).__name__ == "LazyFrame":
            raise InvalidInputError("X is a polars LazyFrame; pass X.collect().")
        return type(X).__name__ == "DataFrame"
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _accept_array(X: Any) -> Array:
    text = as_text(X)
    if text is not None:
        return text
    try:
        data = np.asarray(X)
    except ValueError as error:
        raise InvalidInputError(f"X could not be read as a 2-D array: {error}") from error
    if data.ndim != 2:
        hint = (
            " Use X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one sample."
            if data.ndim == 1
            else ""
        )
        raise InvalidInputError(
            f"X must have 2 dimensions (samples, features); got shape {data.shape}.{hint}"
        )
    if np.iscomplexobj(data):
        raise InvalidInputError("X must be real; got complex numbers.")
    return data


def as_floats(base: Samples) -> Any:
    """Return the data of a whole set in float64, or raise if kernels cannot use them."""
    data = base._data
    try:
        if sparse.issparse(data) or isinstance(data, np.ndarray):
            values = data.astype(np.float64, copy=False)
        elif hasattr(data, "iloc"):
            values = data.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = data.to_numpy().astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise _not_numbers(base, error) from error
    _refuse(values, base.label, finite=True)
    if not sparse.issparse(values) and values.shape[1] == 1:
        values = np.ascontiguousarray(values)
    return values


def _not_numbers(base: Samples, error: Exception) -> InvalidInputError:
    culprit, place = "some columns", "'sequence'"
    for j in range(base.n_columns):
        try:
            data = base._data
            np.asarray(data.iloc[:, j] if hasattr(data, "iloc") else data[:, j]).astype(np.float64)
        except (TypeError, ValueError):
            culprit = base.label(j)
            place = repr(j if base.columns is None else base.columns[j])
            break
    example = f"Spectrum(k=3).on({place})"
    if base.n_columns == 1 and base.columns is None:
        example = "kernels=[Spectrum(k=3), WeightedDegree(degree=5)]"
    reason = str(error)
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}..."
    return InvalidInputError(
        f"{culprit} of X cannot be read as numbers ({reason}). Choose numeric columns with "
        f"kernel.on(columns), or encode these with kernel.on(columns, OneHotEncoder()). For "
        f"sequences use the string kernels Spectrum and WeightedDegree, such as {example}."
    )


def refuse_huge(data: Any, columns: Sequence[int]) -> None:
    """Raise if a finite number is too large to be squared, before a transformer squares it.

    Whether NaN and infinity are allowed is for the transformer to say. `columns` are the places in
    X of the columns of `data`, an array, a sparse matrix or a frame.
    """
    names: list[Any] | None = None
    values = data
    if hasattr(data, "iloc"):
        part = data.select_dtypes("number")
        names, values = list(part.columns), part.to_numpy(dtype=np.float64, na_value=np.nan)
    elif hasattr(data, "schema"):
        kinds = zip(data.columns, data.dtypes, strict=True)
        names = [name for name, kind in kinds if kind.is_numeric()]
        values = (data if len(names) == data.width else data.select(names)).to_numpy()
    _refuse(values, lambda j: f"column {columns[j] if names is None else repr(names[j])}")


def _refuse(values: Any, label: Callable[[int], str], *, finite: bool = False) -> None:
    """Raise if a number is so large that its square, or a sum of them, would overflow.

    With `finite` NaN and infinity are refused, too. Of several the first is named, a number before
    what is none.
    """
    numbers = values.data if sparse.issparse(values) else values
    if numbers.dtype.kind != "f" or numbers.size == 0:
        return
    # (said so that NaN is looked at)
    if numbers.max() <= LARGEST and numbers.min() >= -LARGEST:
        return
    bad = np.isfinite(numbers) & (np.abs(numbers) > LARGEST)
    if finite and not bad.any():
        bad = ~np.isfinite(numbers)
    if not bad.any():
        return
    place = int(bad.argmax())
    value, (row, col) = numbers.flat[place], divmod(place, values.shape[1])
    if sparse.issparse(values):
        entries = values.tocoo()
        row, col = int(entries.row[place]), int(entries.col[place])
    if np.isfinite(value):
        raise InvalidInputError(
            f"X contains {value:g} in {label(col)} (row {row}); kernels need numbers of at most "
            f"{LARGEST:g} in size, or their squares would overflow. Scale that column."
        )
    kind = "NaN" if np.isnan(value) else "infinity"
    raise InvalidInputError(
        f"X contains {kind} in {label(col)} (row {row}); kernels need finite numbers. Drop those "
        f"rows, or impute with kernel.on(columns, SimpleImputer())."
    )


def as_text(X: Any) -> Array | None:
    """Return a list, array or Series that holds text as an array of shape (n, p).

    One dimension becomes one column. Lists become arrays of objects: an array of dtype "U" takes
    four bytes for each letter of the longest text, for every row. Arrays stay as they are. None if
    X, which is no DataFrame, holds no `str` or `bytes` or is no such table.
    """
    if isinstance(X, str | bytes):
        raise InvalidInputError("X is a single text; for one sequence give a list of one, [X].")
    if isinstance(X, list | tuple):
        rows = (item for item in X if isinstance(item, list | tuple))
        if not _any_text(X) and not any(_any_text(row) for row in rows):
            return None
        data = np.array(X, dtype=object)
    elif len(getattr(X, "shape", ())) in (1, 2):
        data = np.asarray(X)
    else:
        return None
    if data.dtype.kind == "T":
        data = data.astype(object)
    is_text = data.dtype.kind in "SU" or (data.dtype.kind == "O" and _any_text(data.flat))
    if not is_text or data.ndim not in (1, 2):
        return None
    return data.reshape(-1, 1) if data.ndim == 1 else data


def _any_text(items: Iterable[Any]) -> bool:
    return any(isinstance(item, str | bytes) for item in items)
