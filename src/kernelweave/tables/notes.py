"""What an encoder did to a table, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from kernelweave.tables.roles import Column, like_numbers

__all__ = ["write_notes"]

_SHOWN = 6


def write_notes(found: Mapping[str, Column], frame: pl.DataFrame) -> list[str]:
    """Return lines on missing values, categories, sequences, and on what was left out."""
    used = {name: column for name, column in found.items() if column.role not in ("nothing", "id")}
    lines = [
        _missing({name: column for name, column in used.items() if column.n_missing}),
        _infinite(used, frame),
        _listed("{} categorical column{} one-hot encoded", "category", found),
        _listed("{} column{} of sequences", "sequence", found),
        _like_numbers(found, frame),
        _listed("left out", "nothing", found),
    ]
    return [line for line in lines if line]


def _missing(columns: Mapping[str, Column]) -> str:
    if not columns:
        return ""
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
    return f"{head} missing values: {_some(f'{n} ({c.n_missing})' for n, c in most)}; " + (
        "; ".join(done)
    )


def _infinite(used: Mapping[str, Column], frame: pl.DataFrame) -> str:
    holed = [name for name, c in used.items() if c.role == "number" and c.n_missing]
    kinds = frame.schema if holed else {}
    floats = [name for name in holed if kinds[name].is_float()]
    if not floats:
        return ""
    counts = np.isinf(frame.select(floats).to_numpy()).sum(axis=0)
    told = _some(f"{name} ({n})" for name, n in zip(floats, counts, strict=True) if n)
    return f"infinite values count as missing: {told}" if told else ""


def _listed(head: str, role: str, found: Mapping[str, Column]) -> str:
    """The columns of a role with their remarks; the head has places for their number."""
    told = [f"{name} ({column.remark})" for name, column in found.items() if column.role == role]
    return f"{head.format(len(told), 's' * (len(told) != 1))}: {_some(told)}" if told else ""


def _like_numbers(found: Mapping[str, Column], frame: pl.DataFrame) -> str:
    told = []
    for name, column in found.items():
        if column.role in ("number", "id") or column.remark == "dates":
            continue
        if frame[name].dtype == pl.String and (example := like_numbers(frame[name])) is not None:
            told.append(f"{name} ({example!r})")
    return f"read as text, not as numbers: {_some(told)}" if told else ""


def _some(items: Iterable[str]) -> str:
    every = list(items)
    listed = ", ".join(every[:_SHOWN])
    return listed if len(every) <= _SHOWN else f"{listed}, ... ({len(every)} in all)"
