"""One table from a file of any kind."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import PACKED, existing_file, unpacked

if TYPE_CHECKING:
    import polars as pl
    from scipy.sparse import csr_matrix

_SUFFIXES = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".ipc", ".feather"),
    "libsvm": (".libsvm", ".svmlight", ".svm"),
    "npy": (".npy",),
    "npz": (".npz",),
    "fasta": (".fasta", ".fa", ".fna", ".faa", ".fas", ".ffn", ".frn"),
    "fastq": (".fastq", ".fq"),
}
_KIND_OF = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes}
# A label, perhaps a query, and any number of index:value.
_LIBSVM_LINE = re.compile(rb"^[-+.\deE]+(\s+qid:\d+)?(\s+\d+:[-+.\deEnaif]+)*\s*(#.*)?$")
_HEAD = 65536


@dataclass(frozen=True, eq=False)
class Table:
    """What was read from a file.

    Attributes
    ----------
    data : polars.DataFrame or CSR matrix
        The rows. A frame holds whole numbers, numbers, booleans and text, with nulls where values
        are missing. Libsvm files and sparse NPZ files give a CSR matrix.
    columns : list of str
        Names of its columns.
    kind : str
        What the file was: "csv", "tsv", "parquet", "arrow", "libsvm", "npy", "npz", "fasta" or
        "fastq".
    notes : tuple of str
        What a person should know about the reading, such as a guessed encoding.
    target : ndarray or None
        Labels that came beside a CSR matrix, one for each row.

    Examples
    --------
    >>> table = Table(np.zeros((2, 1)), ["x1"], "libsvm", (), np.array([1, -1]))
    >>> table.n_rows, table.all_columns
    (2, ['target', 'x1'])
    """

    data: pl.DataFrame | csr_matrix
    columns: list[str]
    kind: str
    notes: tuple[str, ...] = ()
    target: Array | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.data.shape[0])

    @property
    def all_columns(self) -> list[str]:
        """The columns and, if labels came beside them, "target"."""
        return self.columns if self.target is None else ["target", *self.columns]

    def sparse_on(self, columns: Sequence[str]) -> csr_matrix:
        """Return a CSR matrix with these columns: those it has not are zero, others are left out.

        Files of sparse rows end at the last column that is not zero, so that two files of the
        same data may differ in width.
        """
        from scipy import sparse

        data: Any = self.data
        if not sparse.issparse(data):
            raise InvalidInputError(f"the table ({self.kind}) is not sparse.")
        if list(columns) == self.columns:
            return data
        place = {name: j for j, name in enumerate(columns)}
        new = np.array([place.get(name, -1) for name in self.columns], dtype=np.int64)
        entries = data.tocoo()
        kept = new[entries.col] >= 0
        where = (entries.row[kept], new[entries.col[kept]])
        return sparse.csr_matrix((entries.data[kept], where), shape=(self.n_rows, len(columns)))


def read_table(path: str | os.PathLike[str]) -> Table:
    r"""Read a table: CSV, TSV, Parquet, Arrow, libsvm, NPY, NPZ, FASTA or FASTQ.

    The suffix says what a file is; if it says nothing, the content does. CSV, TSV, libsvm and
    sequences may be packed by gzip, bzip2 or xz. FASTA and FASTQ need dnaio:
    ``pip install 'kernelweave[bio]'``.

    In text, the separator (comma, semicolon, tab, bar, spaces) is found by itself; a first line
    of numbers means that there is no header, and columns are then called x0, x1, ...; empty
    fields, ``NA``, ``N/A``, ``NaN``, ``null``, ``None``, ``?`` and ``.`` are missing values.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Table

    Examples
    --------
    >>> import tempfile
    >>> from kernelweave import read_table
    >>> path = Path(tempfile.mkdtemp(), "people.csv")
    >>> _ = path.write_text("age;colour\n31;red\nNA;blue\n")
    >>> table = read_table(path)
    >>> table.data.rows(), table.kind
    ([(31, 'red'), (None, 'blue')], 'csv')
    """
    found = existing_file(path)
    kind = kind_by_suffix(found)
    if kind is None:
        kind = _kind_by_content(found)
    # Imported when needed: reading sequences should not wait for polars, nor tables for SciPy.
    if kind in ("csv", "tsv"):
        from kernelweave.reading.text import read_text as reader
    elif kind in ("parquet", "arrow"):
        from kernelweave.reading.columnar import read_columnar as reader
    elif kind == "libsvm":
        from kernelweave.reading.libsvm import read_libsvm as reader
    elif kind in ("npy", "npz"):
        from kernelweave.reading.arrays import read_arrays as reader
    else:
        from kernelweave.reading.sequences import read_fasta as reader
    return reader(found, kind)


def kind_by_suffix(path: Path) -> str | None:
    """Return what a file is by its name, or None if that says nothing."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (*PACKED, ".zst"):
        suffixes.pop()
    return _KIND_OF.get(suffixes[-1]) if suffixes else None


def _kind_by_content(path: Path) -> str:
    data = unpacked(path)
    head = data[:_HEAD]
    for magic, kind in ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\x93NUMPY", "npy")):
        if head.startswith(magic):
            return kind
    if head.startswith(b"PK\x03\x04"):
        with suppress(zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            names = zipfile.ZipFile(BytesIO(data)).namelist()
            if names and all(name.endswith(".npy") for name in names):
                return "npz"
        raise _unknown(path)
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith(b"#")]
    # The last line may have been cut.
    lines = lines[:-1] if len(data) > _HEAD and len(lines) > 1 else lines
    if lines and lines[0].startswith(b">"):
        return "fasta"
    if len(lines) > 2 and lines[0].startswith(b"@") and lines[2].startswith(b"+"):
        return "fastq"
    first = lines[:20]
    if b":" in b"".join(first) and all(_LIBSVM_LINE.match(line.strip()) for line in first):
        return "libsvm"
    if path.suffix.lower() in (".txt", ".dat", ".data"):
        return "csv"
    if b"\0" not in head:
        from kernelweave.reading.text import decode, find_separator

        cut = len(head) == _HEAD
        # Several lines of several fields each.
        if find_separator(decode(head, cut=cut)[0], whole=not cut)[1]:
            return "csv"
    raise _unknown(path)


def _unknown(path: Path) -> InvalidInputError:
    suffix = path.suffix.lower()
    allowed = ", ".join(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes)
    what = f"files of type {suffix!r}" if suffix else "this"
    hint = ""
    if suffix in (".xlsx", ".xls", ".ods"):
        hint = " Save the sheet as CSV."
    elif suffix in (".pkl", ".pickle", ".joblib"):
        hint = " Pickles can run code when they are read; write the table as Parquet or CSV."
    return InvalidInputError(
        f"{str(path)!r}: {what} cannot be read as a table.{hint} Read are {allowed}, .txt; "
        f"text and sequences also packed ({', '.join(PACKED)}); libsvm files of any name."
    )
