"""Columns of text as what they are: whole numbers, numbers, booleans, or text.

Tables may have as many columns as there are genes, and a call of polars for each of them would take
longer than the reading. So the cells of many columns are one long series, and what is known of a
column is a reduction along one axis of an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.reading.layout import MISSING

__all__ = ["typed"]

# Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
_DECIMAL_COMMA = r"^\s*[-+]?\d*(,\d+)?([eE][-+]?\d+)?\s*$"
# Cells of a long table that are looked at together.
_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class _Block:
    """Some columns of text: all cells, one row (`by_row`) or one column after the other."""

    cells: pl.Series
    names: list[str]
    by_row: bool

    def table(self, values: NDArray[Any]) -> NDArray[Any]:
        """View one value a cell as an array with the columns of the table."""
        width = len(self.names)
        return values.reshape(-1, width) if self.by_row else values.reshape(width, -1).T

    def mask(self, cells: pl.Series) -> NDArray[np.bool_]:
        """View a boolean series of all cells so, nulls as False."""
        return self.table(cells.fill_null(False).to_numpy())

    def places(self, columns: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Where the cells of these columns are."""
        table = self.table(np.arange(len(self.cells)))[:, columns]
        return (table if self.by_row else table.T).ravel()

    def take(self, columns: NDArray[np.bool_]) -> _Block:
        """Return a block of these columns."""
        if columns.all():
            return self
        names = [self.names[j] for j in np.flatnonzero(columns)]
        return _Block(self.cells.gather(self.places(columns)), names, self.by_row)

    def columns(self, values: pl.Series) -> dict[str, pl.Series]:
        """Return the columns of one value a cell, by name."""
        width = len(self.names)
        if not width:
            return {}
        height = len(self.cells) // width
        if self.by_row:
            rows = {str(i): values[i * width : (i + 1) * width] for i in range(height)}
            series = pl.DataFrame(rows).transpose(column_names=self.names).get_columns()
        else:
            parts = [values[j * height : (j + 1) * height] for j in range(width)]
            series = [part.alias(name) for part, name in zip(parts, self.names, strict=True)]
        return dict(zip(self.names, series, strict=True))


def _blocks(frame: pl.DataFrame, names: list[str], by_row: bool) -> Iterator[_Block]:
    """A table cut into blocks: all of it if it has more columns than rows."""
    if not by_row and frame.width > frame.height:
        frame, by_row = frame.transpose(), True
    if by_row:
        yield _Block(pl.concat(frame.get_columns(), rechunk=True), names, True)
        return
    step = max(1, _CELLS // frame.height)
    for first in range(0, frame.width, step):
        columns = frame[:, first : first + step].get_columns()
        yield _Block(pl.concat(columns, rechunk=True), names[first : first + step], False)


def typed(
    frame: pl.DataFrame, names: list[str], *, by_row: bool = False, commas: bool = False
) -> tuple[pl.DataFrame, list[str]]:
    """Return a table of text with every column in the type that all its values have.

    The columns of the frame are those of the table, which have these names; with `by_row` they are
    its rows. With `commas`, numbers may have decimal commas; also returns the columns that had any.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ["1", " 2"], "b": ["1.5", "NA"], "c": ["true", "x"]})
    >>> typed(frame, frame.columns)[0].dtypes
    [Int64, Float64, String]
    >>> frame = pl.DataFrame({"1": ["1,5", "1,234"], "2": ["2", "5,678"]})
    >>> changed, found = typed(frame, ["a", "b"], by_row=True, commas=True)
    >>> changed.rows(), found
    ([(1.5, '1,234'), (2.0, '5,678')], ['a'])
    """
    done: dict[str, pl.Series] = {}
    changed: list[str] = []
    for block in _blocks(frame, names, by_row):
        if commas:
            block, found = _with_points(block)
            changed += found
        # Most tables are numbers throughout: try these first, before any text is cleaned.
        done |= _as_numbers(block)
        rest = _without(block, done)
        if rest.names:
            cleaned = _Block(_clean(rest.cells), rest.names, rest.by_row)
            done |= _as_numbers(cleaned)
            done |= _as_booleans(_without(cleaned, done))
    return pl.DataFrame([done[name] for name in names]), changed


def _without(block: _Block, done: dict[str, pl.Series]) -> _Block:
    return block.take(np.array([name not in done for name in block.names], dtype=bool))


def _clean(text: pl.Series) -> pl.Series:
    stripped = pl.col("text").str.strip_chars()
    kept = pl.when(~stripped.is_in(list(MISSING))).then(stripped)
    return text.alias("text").to_frame().select(kept).to_series()


def _as_numbers(block: _Block) -> dict[str, pl.Series]:
    """Columns whose values are all numbers, as these; codes such as 007 stay text."""
    numbers = block.cells.cast(pl.Float64, strict=False)
    before, after = block.mask(block.cells.is_null()), block.mask(numbers.is_null())
    found = (before == after).all(axis=0) & ~after.all(axis=0)
    if not found.any():
        return {}
    if not found.all():
        numbers = numbers.gather(block.places(found))
    block, numbers = block.take(found), numbers.fill_nan(None)
    values = block.table(numbers.to_numpy())  # NaN where there is none.
    whole = ((values == np.round(values)) | np.isnan(values)).all(axis=0)
    largest = np.fmax.reduce(np.abs(values), axis=0)
    finite = whole & (largest < np.inf)
    coded = np.zeros(len(finite), dtype=bool)
    candidates = block.take(finite)
    if candidates.names:
        codes = candidates.cells.str.contains(r"^\s*[-+]?0\d")
        coded[finite] = candidates.mask(codes).any(axis=0)
    small, large = finite & ~coded & (largest < _EXACT), finite & ~coded & (largest >= _EXACT)
    out: dict[str, pl.Series] = {}
    for columns, kind in ((~small & ~coded, pl.Float64), (small, pl.Int64)):
        if columns.any():
            own = numbers if columns.all() else numbers.gather(block.places(columns))
            out |= block.take(columns).columns(own.cast(kind))
    text = block.take(coded | large)
    texts = text.columns(text.cells)
    for j in np.flatnonzero(large):
        name = block.names[j]
        out[name] = _large(out[name], texts[name])
    return out | {block.names[j]: texts[block.names[j]] for j in np.flatnonzero(coded)}


def _large(numbers: pl.Series, text: pl.Series) -> pl.Series:
    """Whole numbers that floats cannot tell apart."""
    if not text.drop_nulls().str.contains(r"^\s*[-+]?\d+\s*$").all():
        return numbers
    exact = text.str.strip_chars().cast(pl.Int64, strict=False)
    # Longer ones are names of things, of which rounding would make one.
    return exact if exact.null_count() == text.null_count() else text


def _as_booleans(block: _Block) -> dict[str, pl.Series]:
    """All columns, those whose values are all true or false as booleans."""
    if not block.names:
        return {}
    missing = block.mask(block.cells.is_null())
    either = block.mask(block.cells.str.to_lowercase().is_in(["true", "false"])) | missing
    truth = np.asarray(either.all(axis=0) & ~missing.all(axis=0))
    own, text = block.take(truth), block.take(~truth)
    return text.columns(text.cells) | own.columns(own.cells.str.to_lowercase() == "true")


def _with_points(block: _Block) -> tuple[_Block, list[str]]:
    """Return the block with points for decimal commas, and in which columns there were any.

    A column counts if all of its values are numbers that way and some comma has other than three
    digits behind it: "1,234" may well be a thousand.
    """
    found = block.mask(block.cells.str.contains(",", literal=True))
    commas = np.asarray(found.any(axis=0))
    some = block.take(commas)
    if not some.names:
        return block, []
    known = _clean(some.cells)
    sure = some.mask(known.str.contains(r",(\d{1,2}|\d{4,})\s*$")).any(axis=0)
    numbers = some.mask(known.str.contains(_DECIMAL_COMMA) | known.is_null()).all(axis=0)
    changed = commas.copy()
    changed[commas] = sure & numbers
    names = [block.names[j] for j in np.flatnonzero(changed)]
    if not names:
        return block, []
    points = pl.col("text").str.replace(",", ".", literal=True)
    flags = np.zeros(len(block.cells), dtype=bool)
    block.table(flags)[:, changed] = True
    frame = pl.DataFrame({"text": block.cells, "changed": flags})
    cells = frame.select(pl.when("changed").then(points).otherwise("text")).to_series()
    return _Block(cells, block.names, block.by_row), names
