"""Columns of text as what they are: whole numbers, numbers, booleans, or text."""

from __future__ import annotations

import polars as pl

from kernelweave.reading.layout import MISSING

__all__ = ["decimal_commas", "typed"]

# Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
_DECIMAL_COMMA = r"^\s*[-+]?\d*(,\d+)?([eE][-+]?\d+)?\s*$"


def typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame of text with every column in the type that all its values have.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ["1", " 2"], "b": ["1.5", "NA"], "c": ["true", "x"]})
    >>> typed(frame).dtypes
    [Int64, Float64, String]
    """
    # Most tables are numbers throughout: try these first, before any text is cleaned.
    done = _as_numbers(frame)
    rest = [name for name in frame.columns if name not in done]
    if rest:
        cleaned = frame.select(_clean(pl.col(rest)))
        done |= _as_numbers(cleaned)
        done |= _as_booleans(cleaned.select([name for name in rest if name not in done]))
    return pl.DataFrame([done[name] for name in frame.columns])


def _clean(columns: pl.Expr) -> pl.Expr:
    stripped = columns.str.strip_chars()
    return pl.when(~stripped.is_in(list(MISSING))).then(stripped)


def _as_numbers(text: pl.DataFrame) -> dict[str, pl.Series]:
    """Columns whose values are all numbers, as these; codes such as 007 stay text."""
    numbers = text.select(pl.all().cast(pl.Float64, strict=False))
    before, after = text.null_count().row(0), numbers.null_count().row(0)
    some = [name for j, name in enumerate(text.columns) if before[j] == after[j] < text.height]
    if not some:
        return {}
    numbers = numbers.select(pl.col(some).fill_nan(None))
    whole = numbers.select((pl.all() == pl.all().round()).all()).row(0)
    largest = numbers.select(pl.all().abs().max()).row(0)
    # Tables may have as many columns as there are genes: all of them at a time.
    coded = text.select(pl.col(some).str.contains(r"^\s*[-+]?0\d").any()).row(0)
    small = [
        name
        for j, name in enumerate(some)
        if whole[j] and not coded[j] and largest[j] is not None and largest[j] < _EXACT
    ]
    out = _by_name(numbers) | _by_name(numbers.select(pl.col(small).cast(pl.Int64)))
    for j, name in enumerate(some):
        if whole[j] and largest[j] is not None and _EXACT <= largest[j] < float("inf"):
            out[name] = _large(out[name], text[name])
        if whole[j] and coded[j] and largest[j] is not None and largest[j] < float("inf"):
            out[name] = text[name]
    return out


def _by_name(frame: pl.DataFrame) -> dict[str, pl.Series]:
    return {column.name: column for column in frame.get_columns()}


def _large(numbers: pl.Series, text: pl.Series) -> pl.Series:
    """Whole numbers that floats cannot tell apart."""
    if not text.drop_nulls().str.contains(r"^\s*[-+]?\d+\s*$").all():
        return numbers
    exact = text.str.strip_chars().cast(pl.Int64, strict=False)
    # Longer ones are names of things, of which rounding would make one.
    return exact if exact.null_count() == text.null_count() else text


def _as_booleans(text: pl.DataFrame) -> dict[str, pl.Series]:
    """All columns, those whose values are all true or false as booleans."""
    if not text.width:
        return {}
    lower = text.select(pl.all().str.to_lowercase())
    nulls = text.null_count().row(0)
    either = lower.select(pl.all().drop_nulls().is_in(["true", "false"]).all()).row(0)
    truth = [name for j, name in enumerate(text.columns) if either[j] and nulls[j] < text.height]
    return _by_name(text) | _by_name(lower.select(pl.col(truth) == "true"))


def decimal_commas(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the frame with points for decimal commas, and in which columns there were any.

    A column counts if all of its values are numbers that way and some comma has other than three
    digits behind it: "1,234" may well be a thousand.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ["1,5", "2"], "b": ["1,234", "5,678"]})
    >>> changed, names = decimal_commas(frame)
    >>> changed.rows(), names
    ([('1.5', '1,234'), ('2', '5,678')], ['a'])
    """
    changed = []
    some = frame.head(1000).select(pl.all().str.contains(",", literal=True).any()).row(0)
    for name in (name for name, found in zip(frame.columns, some, strict=True) if found):
        text = frame[name]
        known = text.drop_nulls()
        known = known.filter(~known.str.strip_chars().is_in(list(MISSING)))
        sure = known.str.contains(r",(\d{1,2}|\d{4,})\s*$").any()
        if sure and known.str.contains(_DECIMAL_COMMA).all():
            changed.append(name)
    points = [pl.col(name).str.replace(",", ".", literal=True) for name in changed]
    return frame.with_columns(points), changed
