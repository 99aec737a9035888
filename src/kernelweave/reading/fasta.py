"""Tables of sequences with what their headers say."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from kernelweave.errors import InvalidInputError
from kernelweave.reading.infer import typed
from kernelweave.reading.sequences import HEADER_FIELD, read_sequences
from kernelweave.reading.table import Table

__all__ = ["read_fasta"]

# More than this is no set of fields, but words that happen to hold the sign.
_MOST_FIELDS = 1000


def read_fasta(path: Path, kind: str) -> Table:
    """Read sequences as a table: columns "id", "sequence", and the fields of the headers.

    Fields are ``key=value``. Without any, headers are split at bars into field1, field2, ...;
    without bars either, or with more than 1,000 fields, what follows the first word is the column
    "description".
    """
    try:
        records = read_sequences(path)
    except ImportError as error:
        raise InvalidInputError(
            f"{str(path)!r}: FASTA and FASTQ files need dnaio: pip install 'kernelweave[bio]'."
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(f"{str(path)!r} cannot be read: {reason}.") from error
    headers = [str(header) for header in records.descriptions]
    fields = _fields(headers)
    frame = pl.DataFrame(
        {"id": records.names.tolist(), "sequence": records.sequences.tolist()},
        schema={"id": pl.String, "sequence": pl.String},
    )
    if fields:
        cells = pl.Series([text for column in fields.values() for text in column], dtype=pl.String)
        frame = frame.hstack(typed(cells, list(fields))[0])
    found = "fasta" if records.qualities is None else "fastq"
    return Table(frame, frame.columns, found)


def _fields(headers: list[str]) -> dict[str, list[str | None]]:
    """What the headers say, as columns of text."""
    found = [dict(reversed(HEADER_FIELD.findall(header))) for header in headers]
    # In the order in which keys are met; `reversed` above lets the first of two count.
    keys = list(dict.fromkeys(key for row in found for key in reversed(row)))
    if 0 < len(keys) <= _MOST_FIELDS:
        return {_free(key): [row.get(key) for row in found] for key in keys}
    words = [header.split(maxsplit=1) for header in headers]
    width = 1 + max(header.count("|") for header in headers)
    if not keys and width <= _MOST_FIELDS and all("|" in header for header in headers):
        parts = [header.split("|") for header in headers]
        return {
            f"field{j + 1}": [row[j].strip() if j < len(row) else None for row in parts]
            for j in range(width)
        }
    if any(len(pair) > 1 for pair in words):
        return {"description": [pair[1] if len(pair) > 1 else None for pair in words]}
    return {}


def _free(key: str) -> str:
    return f"{key} (header)" if key in ("id", "sequence") else key
