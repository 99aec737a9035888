"""What a table holds before kernels are computed from it: numbers to check, text to find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.validation import LARGEST

if TYPE_CHECKING:
    from kernelweave.kernels.samples import Samples

__all__ = [
    "as_text",
    "check_numbers",
    "check_size",
    "column_label",
    "is_missing",
    "not_numbers",
    "refuse_huge",
]

_LONGEST_REASON = 60


def check_numbers(samples: Samples) -> None:
    """Raise if a column holds text that is no number, before a transformer stumbles over it.

    Examples
    --------
    >>> from kernelweave.kernels.samples import Samples
    >>> check_numbers(Samples([[1.0, "2.5"], [3.0, "4"]]))
    """
    base = samples.base
    data = base._data
    if sparse.issparse(data) or (isinstance(data, np.ndarray) and data.dtype.kind not in "OSU"):
        return
    for j in _not_typed_numbers(data):
        text = as_text(_column(data, j))
        if text is None:
            continue
        try:
            text.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise not_numbers(base, error) from error


def _not_typed_numbers(data: Any) -> list[int]:
    """Columns that may hold text, going by their types: a look at very many takes long."""
    if isinstance(data, np.ndarray):
        return list(range(data.shape[1]))
    if hasattr(data, "iloc"):
        typed = [isinstance(kind, np.dtype) and kind.kind in "iufb" for kind in data.dtypes]
    else:
        typed = [kind.is_numeric() for kind in data.dtypes]
    return [j for j, is_number in enumerate(typed) if not is_number]


def not_numbers(base: Samples, error: Exception) -> InvalidInputError:
    culprit, place = "some columns", "'sequence'"
    for j in range(base.n_columns):
        column = _column(base._data, j)
        try:
            np.asarray(column).astype(np.float64)
        except (TypeError, ValueError):
            culprit = column_label(base, j)
            place = repr(j if base.columns is None else base.columns[j])
            break
    example = f"Spectrum(k=3).on({place})"
    if base.n_columns == 1 and base.columns is None:
        example = "kernels=[Spectrum(k=3), WeightedDegree(degree=5)]"
    reason = str(error)
    if len(reason) > _LONGEST_REASON:  # It holds the text, which may be a whole chromosome.
        reason = f"{reason[:_LONGEST_REASON]}..."
    return InvalidInputError(
        f"{culprit} of X cannot be read as numbers ({reason}). Choose numeric columns with "
        f"kernel.on(columns), or encode these with kernel.on(columns, OneHotEncoder()). For "
        f"sequences use the string kernels Spectrum and WeightedDegree, such as {example}."
    )


def _column(data: Any, j: int) -> Any:
    if isinstance(data, np.ndarray):
        return data[:, j]
    if hasattr(data, "iloc"):
        return data.iloc[:, j]
    return data[:, j]


def column_label(samples: Samples, j: int) -> str:
    """Return how to speak of one column in a message.

    Examples
    --------
    >>> from kernelweave.kernels.samples import Samples
    >>> column_label(Samples([[1.0, 2.0]]), 1)
    'column 1'
    """
    return f"column {j}" if samples.columns is None else f"column {samples.columns[j]!r}"


def check_size(base: Samples, values: Any) -> None:
    """Refuse NaN, infinity, and numbers whose squares, or sums of them, would overflow.

    Of several the first is named, a number before what is none.
    """
    numbers = values.data if sparse.issparse(values) else values
    # (said so that NaN is refused)
    if numbers.size == 0 or (numbers.max() <= LARGEST and numbers.min() >= -LARGEST):
        return
    large = _huge(numbers)
    row, col, value = _first(values, large if large.any() else ~np.isfinite(numbers))
    if np.isfinite(value):
        raise _too_large(value, column_label(base, col), row)
    kind = "NaN" if np.isnan(value) else "infinity"
    raise InvalidInputError(
        f"X contains {kind} in {column_label(base, col)} (row {row}); kernels need finite "
        f"numbers. Drop those rows, or impute with kernel.on(columns, SimpleImputer())."
    )


def _huge(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(numbers) & (np.abs(numbers) > LARGEST)


def _first(values: Any, chosen: NDArray[np.bool_]) -> tuple[int, int, float]:
    """Row, column and value of the first of these entries; of a sparse matrix, of its data."""
    place = np.argwhere(chosen)[0]
    if sparse.issparse(values):
        entries = values.tocoo()
        return int(entries.row[place[0]]), int(entries.col[place[0]]), entries.data[place[0]]
    return int(place[0]), int(place[1]), values[tuple(place)]


def _too_large(value: float, column: str, row: int) -> InvalidInputError:
    return InvalidInputError(
        f"X contains {value:g} in {column} (row {row}); kernels need numbers of at most "
        f"{LARGEST:g} in size, or their squares would overflow. Scale that column."
    )


def refuse_huge(data: Any, columns: Sequence[int]) -> None:
    """Raise if a finite number is too large to be squared, before a transformer squares it.

    Whether NaN and infinity are allowed is for the transformer to say. `columns` are the places in
    X of the columns of `data`, an array, a sparse matrix or a frame.

    Examples
    --------
    >>> refuse_huge(np.array([[1e9, np.nan]]), [0, 1])
    """
    names: list[Any] | None = None
    values = data
    if hasattr(data, "iloc"):
        part = data.select_dtypes("number")
        names, values = list(part.columns), part.to_numpy(dtype=np.float64, na_value=np.nan)
    elif hasattr(data, "schema"):
        kinds = zip(data.columns, data.dtypes, strict=True)
        names = [name for name, kind in kinds if kind.is_numeric()]
        part = data if len(names) == data.width else data.select(names)
        values = part.to_numpy()
    numbers = values.data if sparse.issparse(values) else values
    # (NaN is passed over by both)
    if numbers.dtype.kind != "f" or numbers.size == 0:
        return
    sizes = np.fmax.reduce(numbers, axis=None), -np.fmin.reduce(numbers, axis=None)
    if max(sizes) > LARGEST and (huge := _huge(numbers)).any():
        row, col, value = _first(values, huge)
        label = f"column {columns[col]}" if names is None else f"column {names[col]!r}"
        raise _too_large(value, label, row)


# Text among the data: which inputs hold any, and how they become a column or a table


def as_text(X: Any) -> NDArray[Any] | None:
    """Return a list, array or Series that holds text as an array of shape (n, p).

    One dimension becomes one column. Lists become arrays of objects: an array of dtype "U" takes
    four bytes for each letter of the longest text, for every row. Arrays stay as they are.

    None if X, which is no DataFrame, holds no `str` or `bytes` or is no such table.

    Examples
    --------
    >>> as_text(["ACG", "TTTT"])
    array([['ACG'],
           ['TTTT']], dtype=object)
    >>> as_text([0.5, 1.5]) is None
    True
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


def is_missing(item: Any) -> bool:
    """Whether an item stands for a missing value: None, NaN, pandas' NA or NaT."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float | np.floating) and bool(np.isnan(item))


def _any_text(items: Iterable[Any]) -> bool:
    return any(isinstance(item, str | bytes) for item in items)
