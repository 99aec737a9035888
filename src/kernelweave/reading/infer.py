"""Columns of text as what they are: whole numbers, numbers, booleans, or text.

Tables may have as many columns as there are genes, and a call of polars for each of them would take
longer than the reading. So the cells of many columns are one long series, one column after the
other, and what is known of a column is a reduction along one axis of an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.reading.layout import MISSING

__all__ = ["typed"]

# Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
_DECIMAL_COMMA = r"^[-+]?\d*(,\d+)?([eE][-+]?\d+)?$"
# Cells that are looked at together.
_CELLS = 2**22


def typed(
    cells: pl.Series, names: list[str], *, commas: bool = False
) -> tuple[pl.DataFrame, list[str]]:
    """Return a table of text, one column after the other, with each in the type of its values.

    With `commas`, numbers may have decimal commas; also returns the columns that had any.
    """
    found: dict[str, pl.Series] = {}
    changed: list[str] = []
    height = len(cells) // len(names)
    step = max(1, _CELLS // height)
    for first in range(0, len(names), step):
        block = names[first : first + step]
        stripped = cells.slice(first * height, step * height).str.strip_chars()
        text = stripped.set(stripped.is_in(list(MISSING)), None)
        if commas:
            text, with_commas = _with_points(text, len(block))
            changed += [block[j] for j in np.flatnonzero(with_commas)]
        found |= _typed_columns(text, block)
    return pl.DataFrame([found[name] for name in names]), changed


def _by_column(values: pl.Series, width: int) -> NDArray[Any]:
    """One value a cell as an array with a row for each column; nulls of booleans are False."""
    plain = values.fill_null(False) if values.dtype == pl.Boolean else values
    return plain.to_numpy().reshape(width, -1)


def _pick(values: pl.Series, columns: NDArray[np.bool_]) -> pl.Series:
    """One value a cell, of these columns."""
    if columns.all():
        return values
    return values.gather(np.arange(len(values)).reshape(len(columns), -1)[columns].ravel())


def _typed_columns(text: pl.Series, names: list[str]) -> dict[str, pl.Series]:
    """The columns by name, some of them numbers or booleans; codes such as 007 stay text."""
    width = len(names)
    height = len(text) // width
    numbers = text.cast(pl.Float64, strict=False)
    missing, values = _by_column(text.is_null(), width), _by_column(numbers, width)
    known = ~missing.all(axis=1)
    number = known & (_by_column(numbers.is_null(), width) == missing).all(axis=1)
    largest = np.fmax.reduce(np.abs(values), axis=1)  # Values are NaN where there is no number.
    whole = number & ((values == np.rint(values)) | np.isnan(values)).all(axis=1)
    whole &= largest < np.inf
    if whole.any():
        starts = _pick(text, whole).str.contains(r"^[-+]?0\d")
        codes = whole.copy()
        codes[whole] = _by_column(starts, int(whole.sum())).any(axis=1)
        number, whole = number & ~codes, whole & ~codes
    large = whole & (largest >= _EXACT)
    truth = known & ~number
    if truth.any():
        lower = _pick(text, truth).str.to_lowercase()
        either = lower.is_in(["true", "false"]) | lower.is_null()
        truth[truth] = _by_column(either, int(truth.sum())).all(axis=1)
    out: dict[str, pl.Series] = {}
    for columns, kind in ((number & ~whole, pl.Float64), (whole & ~large, pl.Int64)):
        some = _pick(numbers, columns).fill_nan(None).cast(kind)
        out |= _named(some, columns, names)
    out |= _named(_pick(text, truth).str.to_lowercase() == "true", truth, names)
    out |= _named(_pick(text, ~number & ~truth), ~number & ~truth, names)
    for j in np.flatnonzero(large).tolist():
        out[names[j]] = _large(text.slice(j * height, height)).alias(names[j])
    return out


def _named(values: pl.Series, columns: NDArray[np.bool_], names: list[str]) -> dict[str, pl.Series]:
    """The chosen columns by name, of one value a cell of them."""
    chosen = [names[j] for j in np.flatnonzero(columns)]
    height = len(values) // max(1, len(chosen))
    if 0 < height < len(chosen):
        # Few long series, turned over, take less time than many short ones.
        rows = {str(i): values.gather_every(height, i) for i in range(height)}
        series = pl.DataFrame(rows).transpose(column_names=chosen).get_columns()
    else:
        series = [values.slice(j * height, height).alias(name) for j, name in enumerate(chosen)]
    return dict(zip(chosen, series, strict=True))


def _large(text: pl.Series) -> pl.Series:
    """Whole numbers that floats cannot tell apart."""
    if not text.drop_nulls().str.contains(r"^[-+]?\d+$").all():
        return text.cast(pl.Float64).fill_nan(None)
    exact = text.cast(pl.Int64, strict=False)
    # Longer ones are names of things, of which rounding would make one.
    return exact if exact.null_count() == text.null_count() else text


def _with_points(text: pl.Series, width: int) -> tuple[pl.Series, NDArray[np.bool_]]:
    """Return the cells with points for decimal commas, and in which columns there were any.

    A column counts if all of its values are numbers that way and some comma has other than three
    digits behind it: "1,234" may well be a thousand.
    """
    sure: NDArray[np.bool_] = np.asarray(
        _by_column(text.str.contains(r",(\d{1,2}|\d{4,})$"), width).any(axis=1)
    )
    if sure.any():
        some = _pick(text, sure)
        numbers = some.str.contains(_DECIMAL_COMMA) | some.is_null()
        sure[sure] = _by_column(numbers, int(sure.sum())).all(axis=1)
    if sure.any():
        points = text.str.replace(",", ".", literal=True)
        text = points.zip_with(pl.Series(np.repeat(sure, len(text) // width)), text)
    return text, sure
