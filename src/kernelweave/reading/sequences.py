"""Sequences from FASTA and FASTQ files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import Allowance
from kernelweave.reading.table import Table, kind_by_suffix

# What may stand around the key=value fields of a header.
_BOUNDS = r"\s,;|\[\]"
# A key and its value.
_FIELD = re.compile(rf"(?:^|(?<=[{_BOUNDS}]))([^{_BOUNDS}=]+)=([^{_BOUNDS}]*)")
# More than this is no set of fields, but words that happen to hold the sign.
_MOST_FIELDS = 1000
# What Python needs for the texts of a record besides their letters.
_RECORD_BYTES = 300


@dataclass(frozen=True, repr=False, eq=False)
class SequenceRecords:
    """The records of a FASTA or FASTQ file, in the order of the file.

    Attributes
    ----------
    names : ndarray of str
        First word of each header.
    descriptions : ndarray of str
        Each header as a whole, without the ``>`` or ``@``.
    sequences : ndarray of str
        The sequences, what `fit` takes as X. Case is as in the file.
    qualities : ndarray of str, or None
        Quality letters of FASTQ records; None for FASTA.

    Examples
    --------
    >>> some = np.array(["a label=1", "b label=-1"], dtype=object)
    >>> records = SequenceRecords(some, some, np.array(["ACGT", "GGTT"], dtype=object))
    >>> len(records), records.field("label")
    (2, array(['1', '-1'], dtype='<U2'))
    """

    names: Array
    descriptions: Array
    sequences: Array
    qualities: Array | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        kind = "FASTA" if self.qualities is None else "FASTQ"
        return f"SequenceRecords({len(self)} from {kind})"

    def field(self, key: str) -> NDArray[np.str_]:
        """Return the values of ``key=value`` in the headers, one `str` for each record.

        Fields end at white space, commas, semicolons, bars and square brackets. If a header has
        the key twice, the first one counts.
        """
        found = [dict(reversed(_FIELD.findall(header))) for header in self.descriptions]
        for i, fields in enumerate(found):
            if key not in fields:
                listed = ", ".join(map(repr, reversed(fields))) or "none"
                raise InvalidInputError(
                    f"record {i} has no field {key!r} in its header {self.descriptions[i]!r}; "
                    f"fields there: {listed}."
                )
        return np.array([fields[key] for fields in found], dtype=np.str_)


def read_sequences(path: str | os.PathLike[str]) -> SequenceRecords:
    r"""Read a FASTA or FASTQ file, plain or compressed (gz, bz2, xz, zst).

    FASTA sequences may span several lines. Needs dnaio: ``pip install 'kernelweave[bio]'``.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    SequenceRecords
        Names, headers, sequences, and qualities if there are any.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave import read_sequences
    >>> path = Path(tempfile.mkdtemp(), "sites.fasta")
    >>> _ = path.write_text(">a label=1\nACGTTG\nACC\n>b label=-1\nGGTTA\n")
    >>> records = read_sequences(path)
    >>> records.sequences
    array(['ACGTTGACC', 'GGTTA'], dtype=object)
    >>> records.names, records.field("label")
    (array(['a', 'b'], dtype=object), array(['1', '-1'], dtype='<U2'))
    """
    try:
        import dnaio
        from xopen import xopen  # dnaio brings it along.
    except ImportError as error:
        raise ImportError("read_sequences needs dnaio: pip install 'kernelweave[bio]'.") from error
    where = os.fspath(path)
    allowance, kind = Allowance(Path(where)), kind_by_suffix(Path(where))
    headers: list[str] = []
    sequences: list[str] = []
    qualities: list[str] = []
    try:
        with xopen(where, "rb", threads=0) as packed:
            data = allowance.read(packed)
        # None leaves it to the first letter inside.
        fileformat = kind if kind in ("fasta", "fastq") else None
        with dnaio.open(BytesIO(data), fileformat=fileformat) as reader:
            for record in reader:
                allowance.take(_RECORD_BYTES, "its records")
                headers.append(record.name)
                sequences.append(record.sequence)
                if record.qualities is not None:
                    qualities.append(record.qualities)
    except dnaio.UnknownFileFormat as error:
        raise InvalidInputError(
            f"{where!r} is neither FASTA (records start with '>') nor FASTQ ('@')."
        ) from error
    except Exception as error:
        # Every kind of compression has errors of its own. Those of the system have a number.
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        raise InvalidInputError(f"{where!r} cannot be read as FASTA or FASTQ: {error}") from error
    if not sequences:
        raise InvalidInputError(f"{where!r} holds no records.")
    names = [(header.split(maxsplit=1) or [""])[0] for header in headers]
    descriptions = [header.strip() for header in headers]
    first, whole, own = (np.array(x, dtype=object) for x in (names, descriptions, sequences))
    return SequenceRecords(
        first, whole, own, np.array(qualities, dtype=object) if qualities else None
    )


def read_fasta(path: Path, kind: str) -> Table:
    """Read sequences as a table: columns "id", "sequence", and the fields of the headers.

    Fields are ``key=value``. Without any, headers are split at bars into field1, field2, ...;
    without bars either, or with more than 1,000 fields, what follows the first word is the column
    "description".
    """
    import polars as pl

    from kernelweave.reading.text import text_columns, typed

    try:
        records = read_sequences(path)
    except ImportError as error:
        raise InvalidInputError(
            f"{str(path)!r}: FASTA and FASTQ files need dnaio: pip install 'kernelweave[bio]'."
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(f"{str(path)!r} cannot be read: {reason}.") from error
    fields = _header_columns(records.descriptions.tolist())
    frame = pl.DataFrame(
        {"id": records.names.tolist(), "sequence": records.sequences.tolist()},
        schema={"id": pl.String, "sequence": pl.String},
    )
    if fields:
        frame = frame.hstack(typed(text_columns(fields))[0])
    found = "fasta" if records.qualities is None else "fastq"
    return Table(frame, frame.columns, found)


def _header_columns(headers: list[str]) -> dict[str, list[str | None]]:
    """What the headers say, as columns of text."""
    found = [dict(reversed(_FIELD.findall(header))) for header in headers]
    # In the order in which keys are met; `reversed` above lets the first of two count.
    keys = list(dict.fromkeys(key for row in found for key in reversed(row)))
    if 0 < len(keys) <= _MOST_FIELDS:
        names = [f"{key} (header)" if key in ("id", "sequence") else key for key in keys]
        return dict(zip(names, [[row.get(key) for row in found] for key in keys], strict=True))
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
