"""What the columns of a table are: numbers, categories, sequences, or nothing of use; in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from kernelweave.arrays import Array
from kernelweave.validation import some_of

ROLES = ("number", "category", "sequence", "nothing")
MOST_CATEGORIES = 50
OTHER, MISSING = "other", "missing"
# Share of missing values from which on their being missing is a column of its own.
_MISSING_SHARE = 0.05

# Letters of the alphabets, with how much of a text must be unambiguous to count as a sequence.
_ALPHABETS = (
    ("dna", "ACGT", "NRYSWKMBDHV-", 0.8),
    ("rna", "ACGU", "NRYSWKMBDHV-", 0.8),
    ("protein", "ACDEFGHIKLMNPQRSTVWY", "BJOUXZ*-", 0.97),
)
_SHORTEST_SEQUENCE = 8
_SURELY_LONG = 30
_FEW_LETTERS = 8
_DATE = r"^\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?$|^\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?$"
_LIKE_NUMBER = r"^[-+]?[$€£]?\s*\d[\d.,'\s]*%?$"
_FLOATS, _INTEGERS = (pl.Float64, pl.Float32), (pl.Int64, pl.Int32, pl.Int16, pl.Int8)
_ARRAY_KINDS = (*_FLOATS, *_INTEGERS, pl.UInt64, pl.UInt32, pl.UInt16, pl.UInt8)
_SHOWN = 6  # columns of a note
_ID_NAME = re.compile(r"(^|[\s_.-])(id|ids|index|idx|key|uuid|row|unnamed.*|row ?names?)$")


class Column(NamedTuple):
    """What was found out about a column."""

    role: str
    plan: dict[str, Any]  # What `TableEncoder` needs to encode it, as plain values.
    n_missing: int
    remark: str = ""  # Why it is left out, or what kind of values it holds.


def look_at(column: pl.Series, role: str | None = None) -> Column:
    """Find out what a column is that is not numbers, or take it as what it is said to be."""
    if role == "nothing":
        return Column("nothing", {}, column.null_count(), "as asked for")
    kind = column.dtype
    if role is None and (kind.is_temporal() or kind.is_nested()):
        remark = "dates" if kind.is_temporal() else "lists"
        return Column("nothing", {}, column.null_count(), remark)
    if role is None and kind in (pl.Binary, pl.Object):
        return Column("nothing", {}, column.null_count(), "neither numbers nor text")
    text = as_text(column)
    if text.null_count() == len(text):
        return Column("nothing", {}, text.null_count(), "no values")
    if role == "category" or (role is None and kind in (pl.Boolean, pl.Categorical, pl.Enum)):
        return _category(text, forced=role is not None)
    return _text(text, role)


def look_at_numbers(frame: pl.DataFrame, forced: Collection[str] = ()) -> dict[str, Column]:
    """Find out what columns of numbers are, all at once: there may be many thousands."""
    if not frame.width:
        return {}
    numbers = as_numbers(frame)
    missing = np.isnan(numbers).sum(axis=0)
    ranked, every = np.sort(numbers, axis=0), np.arange(frame.width)  # NaN comes last.
    last = np.maximum(frame.height - missing - 1, 0)
    low, high = ranked[last // 2, every], ranked[(last + 1) // 2, every]
    with np.errstate(over="ignore"):
        middle = (low + (high - low) / 2).tolist()
    same = (ranked[0] == ranked[last, every]).tolist()
    often, missing = (missing > _MISSING_SHARE * frame.height).tolist(), missing.tolist()
    out = {}
    for j, (name, kind) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if missing[j] == frame.height:
            remark = "no values"
        elif name in forced:
            remark = ""
        elif same[j] and not often[j]:
            remark = "the same in every row"
        else:
            is_id = kind.is_integer() and _ID_NAME.search(name.strip().lower()) is not None
            own = numbers[~np.isnan(numbers[:, j]), j] if is_id else numbers[:0, j]
            all_own = len(np.unique(own)) == len(own) > 2
            remark = "a number of its own for every row" if all_own else ""
        plan = {} if remark else {"fill": middle[j], "indicator": often[j]}
        out[name] = Column("nothing" if remark else "number", plan, missing[j], remark)
    return out


def _text(text: pl.Series, role: str | None) -> Column:
    known = text.drop_nulls()
    n_missing, distinct = len(text) - len(known), known.n_unique()
    plan = _as_sequence(known, distinct, forced=role == "sequence")
    if plan is not None:
        length = plan["length"]
        letters = f"{length} letters each" if length else "of several lengths"
        return Column("sequence", plan, n_missing, f"{plan['alphabet']}, {letters}")
    if known.head(1000).str.contains(_DATE).all() and known.str.contains(_DATE).all():
        return Column("nothing", {}, n_missing, "dates")
    if distinct == len(known) > 1:
        return Column("nothing", {}, n_missing, "different in every row")
    if distinct > MOST_CATEGORIES and distinct > len(known) / 2:
        return Column("nothing", {}, n_missing, f"{distinct} different texts in {len(known)} rows")
    return _category(text, forced=False)


def _category(text: pl.Series, forced: bool) -> Column:
    counts = text.drop_nulls().value_counts(sort=True)
    n_missing = text.null_count()
    if counts.height == 1 and not n_missing and not forced:
        return Column("nothing", {}, 0, "the same in every row")
    # Ties by name, so that the order of the rows does not matter.
    ranked = counts.sort("count", text.name, descending=[True, False])[text.name].to_list()
    room = MOST_CATEGORIES - bool(n_missing)
    other = len(ranked) > room
    values = sorted(ranked[: room - 1] if other else ranked)
    if other:
        values = [value for value in values if value != OTHER]
    plan = {"values": values, "other": other, "missing": bool(n_missing)}
    return Column("category", plan, n_missing, f"{len(ranked)} values")


def _as_sequence(known: pl.Series, distinct: int, forced: bool) -> dict[str, Any] | None:
    """Plan for a column of sequences, or None if it is none."""
    lengths = known.str.len_chars()
    typical = float(lengths.median())  # type: ignore[arg-type]
    various = 2 * distinct >= len(known) or (typical >= _SURELY_LONG and distinct > 20)
    if not forced and (typical < _SHORTEST_SEQUENCE or not various):
        return None
    for name, letters, ambiguous, share in _ALPHABETS:
        allowed = f"(?i)^[{letters}{re.escape(ambiguous)}]*$"
        # A glance at the first spares most columns of text the rest.
        if not known.head(100).str.contains(allowed).all() or not known.str.contains(allowed).all():
            continue
        certain = int(known.str.count_matches(f"(?i)[{letters}]").sum()) / max(1, sum(lengths))
        # Names of people are mostly letters of proteins; sequences are in one case and varied.
        some = "".join(known.head(200).to_list())
        varied = some in (some.upper(), some.lower()) and len(set(some.upper())) >= _FEW_LETTERS
        if not forced and (certain < share or (name == "protein" and not varied)):
            continue
        same = lengths.min() == lengths.max() and lengths.min()
        # Ambiguous in every alphabet: similar to nothing.
        length = int(lengths[0]) if same else None
        return {"alphabet": name, "length": length, "fill": "X" * (length or 1)}
    return {"alphabet": "dna", "length": None, "fill": "X"} if forced else None


def _like_numbers(text: pl.Series) -> str | None:
    """Return an example if a column of text looks like numbers in a dress."""
    known = as_text(text).drop_nulls().head(1000)
    if not len(known) or not known.str.contains(_LIKE_NUMBER).mean() > 0.9:  # type: ignore[operator]
        return None
    return str(known.filter(known.str.contains(_LIKE_NUMBER))[0])


def as_text(column: pl.Series) -> pl.Series:
    """Return a column as text; whole numbers have no decimal point, empty text is missing."""
    if column.dtype == pl.Boolean:
        return column.cast(pl.String)
    if column.dtype.is_float():
        whole = column.fill_nan(None)
        text = whole.cast(pl.String)
        return text.str.strip_suffix(".0")
    text = column.cast(pl.String, strict=False)
    stripped = text.str.strip_chars()
    return stripped.set(stripped == "", None)


def as_numbers(frame: pl.DataFrame) -> Array:
    """Return columns as float64, with NaN for what is missing, infinite or no number."""
    alike: dict[Any, list[int]] = {}
    for j, kind in enumerate(frame.dtypes):
        alike.setdefault(kind, []).append(j)
    columns = frame.get_columns() if len(alike) > 1 else []
    out = np.empty(frame.shape, order="F")
    for kind, places in alike.items():
        part = frame if len(alike) == 1 else pl.DataFrame([columns[j] for j in places])
        # NumPy converts the usual kinds: an expression for each of many columns takes long.
        if kind not in _ARRAY_KINDS:
            text = pl.col(pl.String).str.strip_chars()
            part = part.with_columns(text).select(pl.all().cast(pl.Float64, strict=False))
        out[:, places] = part.to_numpy()
    out[~np.isfinite(out)] = np.nan
    return out


def write_notes(found: Mapping[str, Column], frame: pl.DataFrame) -> list[str]:
    """Return lines on missing values, categories, sequences, and on what was left out."""
    lines: list[str] = []
    schema = frame.schema

    def note(head: str, told: list[str]) -> None:
        if told:
            head = head.format(len(told), "s" * (len(told) != 1))
            lines.append(f"{head}: {some_of(told, _SHOWN)}")

    def remarks(role: str) -> list[str]:
        return [f"{name} ({c.remark})" for name, c in found.items() if c.role == role]

    used = {name: column for name, column in found.items() if column.role not in ("nothing", "id")}
    holed = {name: column for name, column in used.items() if column.n_missing}
    if holed:
        lines.append(_missing(holed))
    floats = [n for n, c in holed.items() if c.role == "number" and schema[n].is_float()]
    if floats:
        counts = np.isinf(frame.select(floats).to_numpy()).sum(axis=0)
        told = [f"{name} ({n})" for name, n in zip(floats, counts, strict=True) if n]
        note("infinite values count as missing", told)
    note("{} categorical column{} one-hot encoded", remarks("category"))
    note("{} column{} of sequences", remarks("sequence"))
    texts = [n for n, c in found.items() if c.role not in ("number", "id") and c.remark != "dates"]
    examples = {name: _like_numbers(frame[name]) for name in texts if schema[name] == pl.String}
    dressed = [f"{name} ({example!r})" for name, example in examples.items() if example is not None]
    note("read as text, not as numbers", dressed)
    note("left out", remarks("nothing"))
    return lines


def _missing(columns: Mapping[str, Column]) -> str:
    most = sorted(columns.items(), key=lambda item: -item[1].n_missing)
    roles = {column.role for column in columns.values()}
    done = []
    if "number" in roles:
        flagged = any(column.plan.get("indicator") for column in columns.values())
        done.append("filled with the median" + (", with a column that says where" * flagged))
    if "category" in roles:
        done.append("a category of their own" if len(roles) == 1 else "in categories a value")
    if "sequence" in roles:
        done.append("sequences similar to none")
    head = "1 column has" if len(columns) == 1 else f"{len(columns)} columns have"
    told = some_of((f"{name} ({column.n_missing})" for name, column in most), _SHOWN)
    return f"{head} missing values: {told}; {'; '.join(done)}"
