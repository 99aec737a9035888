"""Checks of the numbers in a table before kernels are computed from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.text import as_text
from kernelweave.validation import LARGEST

if TYPE_CHECKING:
    from kernelweave.kernels.samples import Samples

__all__ = [
    "check_numbers",
    "check_size",
    "column_label",
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
