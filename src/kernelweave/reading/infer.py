"""Columns of text as what they are: whole numbers, numbers, booleans, or text.

Tables may have as many columns as there are genes, and a call of polars for each of them would take
longer than the reading. So the cells of many columns are one long series, one column after the
other, and what is known of a column is a reduction along one axis of an array.
"""

from __future__ import annotations

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
# Cells that are looked at together.
_CELLS = 2**22


@dataclass(frozen=True, eq=False)
class _Block:
    """Some columns of text."""

    cells: pl.Series
    names: list[str]

    def by_column(self, values: pl.Series) -> NDArray[Any]:
        """One value a cell as an array with a row for each column; nulls of booleans are False."""
        plain = values.fill_null(False) if values.dtype == pl.Boolean else values
        return plain.to_numpy().reshape(len(self.names), -1)

    def pick(self, columns: NDArray[np.bool_], values: pl.Series) -> pl.Series:
        """One value a cell, of these columns."""
        if columns.all():
            return values
        return values.gather(np.arange(len(values)).reshape(len(columns), -1)[columns].ravel())

    def take(self, columns: NDArray[np.bool_]) -> _Block:
        names = [self.names[j] for j in np.flatnonzero(columns)]
        return _Block(self.pick(columns, self.cells), names)

    def named(self, values: pl.Series) -> dict[str, pl.Series]:
        """The columns of one value a cell."""
        width = len(self.names)
        height = len(values) // max(1, width)
        if 0 < height < width:
            # Few long series, turned over, take less time than many short ones.
            rows = {str(i): values.gather_every(height, i) for i in range(height)}
            series = pl.DataFrame(rows).transpose(column_names=self.names).get_columns()
        else:
            series = [values.slice(j * height, height).alias(n) for j, n in enumerate(self.names)]
        return dict(zip(self.names, series, strict=True))


def typed(
    cells: pl.Series, names: list[str], *, commas: bool = False
) -> tuple[pl.DataFrame, list[str]]:
    """Return a table of text, one column after the other, with each in the type of its values.

    With `commas`, numbers may have decimal commas; also returns the columns that had any.
    """
    done: dict[str, pl.Series] = {}
    changed: list[str] = []
    height = len(cells) // len(names)
    step = max(1, _CELLS // height)
    for first in range(0, len(names), step):
        block = _Block(cells.slice(first * height, step * height), names[first : first + step])
        if commas:
            block, found = _with_points(block)
            changed += found
        # Most tables are numbers throughout: try these first, before any text is cleaned.
        done |= _as_numbers(block)
        rest = _without(block, done)
        if rest.names:
            cleaned = _Block(_clean(rest.cells), rest.names)
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
    before, after = block.by_column(block.cells.is_null()), block.by_column(numbers.is_null())
    found = (before == after).all(axis=1) & ~after.all(axis=1)
    if not found.any():
        return {}
    numbers = block.pick(found, numbers).fill_nan(None)
    block = block.take(found)
    values = block.by_column(numbers)  # NaN where there is none.
    whole = ((values == np.round(values)) | np.isnan(values)).all(axis=1)
    largest = np.fmax.reduce(np.abs(values), axis=1)
    coded = whole & (largest < np.inf)
    if coded.any():
        candidates = block.take(coded)
        codes = candidates.cells.str.contains(r"^\s*[-+]?0\d")
        coded[coded] = candidates.by_column(codes).any(axis=1)
    integer = whole & ~coded & (largest < _EXACT)
    out: dict[str, pl.Series] = {}
    for columns, kind in ((~integer & ~coded, pl.Float64), (integer, pl.Int64)):
        out |= block.take(columns).named(block.pick(columns, numbers).cast(kind))
    large = block.take(whole & ~coded & (largest >= _EXACT) & (largest < np.inf))
    out |= {name: _large(out[name], text) for name, text in large.named(large.cells).items()}
    text = block.take(coded)
    return out | text.named(text.cells)


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
    lower = block.cells.str.to_lowercase()
    missing = block.by_column(lower.is_null())
    either = block.by_column(lower.is_in(["true", "false"])) | missing
    truth = either.all(axis=1) & ~missing.all(axis=1)
    text = block.take(~truth)
    return text.named(text.cells) | block.take(truth).named(block.pick(truth, lower) == "true")


def _with_points(block: _Block) -> tuple[_Block, list[str]]:
    """Return the block with points for decimal commas, and in which columns there were any.

    A column counts if all of its values are numbers that way and some comma has other than three
    digits behind it: "1,234" may well be a thousand.
    """
    commas = block.by_column(block.cells.str.contains(",", literal=True))
    changed: NDArray[np.bool_] = np.asarray(commas.any(axis=1))
    if not changed.any():
        return block, []
    some = block.take(changed)
    known = _clean(some.cells)
    sure = some.by_column(known.str.contains(r",(\d{1,2}|\d{4,})\s*$")).any(axis=1)
    numbers = known.str.contains(_DECIMAL_COMMA) | known.is_null()
    changed[changed] = sure & some.by_column(numbers).all(axis=1)
    points = pl.col("text").str.replace(",", ".", literal=True)
    flags = np.repeat(changed, len(block.cells) // len(changed))
    frame = pl.DataFrame({"text": block.cells, "changed": flags})
    cells = frame.select(pl.when("changed").then(points).otherwise("text")).to_series()
    return _Block(cells, block.names), [block.names[j] for j in np.flatnonzero(changed)]
