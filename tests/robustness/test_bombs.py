"""Small files that unpack to gigabytes are refused while they are unpacked."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from forged_model_files import HEADER, SCHEMA, parts_of
from write_model_fixtures import FOLDER

LARGE = 55 * 10**7
PROCESS = Path(__file__).resolve().parents[1] / "helpers" / "opened_bombs.py"


def packed_member(archive, name, begin, fill, size):
    """Write a member of so many bytes, without ever holding them."""
    piece = fill * 10**6
    with archive.open(name, "w", force_zip64=True) as out:
        out.write(begin)
        for _ in range(size // len(piece)):
            out.write(piece)


def model(path, padded):
    parts = parts_of(FOLDER / "model_v1_regressor.skops")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in parts.items():
            if name == padded:
                packed_member(archive, name, data, b" ", LARGE)
            else:
                archive.writestr(name, data)
    return path


def arrays(path, declared=None):
    """An NPZ file of zeros; `declared` is the size that the archive tells, if not the true one."""
    shape = (LARGE // 8, 1)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        packed_member(archive, "X.npy", header.getvalue(), b"\0", LARGE)
        if declared is not None:
            archive.getinfo("X.npy").file_size = declared
    return path


def text(path, pack, row, begin=b""):
    """Many small files one after the other, which are unpacked as one."""
    piece = row * (10**6 // len(row))
    path.write_bytes(pack(begin + piece) + pack(piece) * (LARGE // len(piece)))
    return path


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    header = model(folder / "header.skops", HEADER)
    schema = model(folder / "schema.skops", SCHEMA)
    npz, lied = arrays(folder / "a.npz"), arrays(folder / "lied.npz", declared=1000)
    rows = pl.DataFrame({"a": pl.zeros(5 * 10**6, dtype=pl.Float64, eager=True)})
    wide = rows.with_columns(rows["a"].alias(f"a{j}") for j in range(8))
    wide.write_parquet(folder / "a.parquet", compression="zstd")

    small = folder / "small.csv.xz"  # Its text is allowed, and what would become of it is not.
    small.write_bytes(lzma.compress(b"1,2\n" * 10**6) * 20)
    return {
        ("read_header", header): "'kernelweave.json' needs .* or more, and the limit is",
        ("load", header): "'kernelweave.json' needs",
        ("load", schema): "'schema.json' needs",
        ("read_table", npz): "'X.npy' needs",
        ("read_matrix", npz): "'X.npy' needs",
        ("warm_start_from", npz): "'X.npy' needs",
        ("read_table", lied): "",
        ("read_table", text(folder / "a.csv.gz", gzip.compress, b"1,2\n")): "content needs",
        ("read_table", text(folder / "a.csv.xz", lzma.compress, b"1,2\n")): "content needs",
        ("read_table", small): "lines and .* fields",
        ("read_sequences", text(folder / "a.fa.gz", gzip.compress, b"A", b">a\n")): "its content",
        ("read_sequences", text(folder / "b.fa.gz", gzip.compress, b">\nA\n")): "its records",
        ("read_table", folder / "a.parquet"): "a table of 5000000 rows and 9 columns needs",
    }


def test_bombs_are_refused_before_they_are_large(bombs):
    """In a process that may take 700 MB: each takes less, and the error names the file."""
    command = [sys.executable, str(PROCESS), *(f"{reader}={path}" for reader, path in bombs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(bombs), done.stderr[-2000:]
    for (reader, path, said, grown), words in zip(found, bombs.values(), strict=True):
        assert Path(path).stat().st_size < 2e7
        assert not said.startswith(("read", "UNEXPECTED")), (reader, path, said)
        assert path in said and grown < 6e8, (reader, path, said, grown)
        assert words.partition(" .* ")[0] in said and words.rpartition(" .* ")[2] in said
