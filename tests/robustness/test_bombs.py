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


def text(path, pack, row, begin=b"", size=LARGE):
    """Many small files one after the other, which are unpacked as one."""
    piece = row * (10**6 // len(row))
    path.write_bytes(pack(begin + piece) + pack(piece) * (size // len(piece)))
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
        ("read_sequences", text(folder / "b.fa.gz", gzip.compress, b">\nA\n", size=10**7)): (
            "its records needs"
        ),
        ("read_table", folder / "a.parquet"): "a table of 5000000 rows and 9 columns needs",
    }


@pytest.fixture(scope="module")
def columnar_bombs(tmp_path_factory):
    """Parquet and Arrow files whose rows and columns are few, or not told."""
    folder = tmp_path_factory.mktemp("columnar")
    zeros = pl.DataFrame({f"a{j}": pl.zeros(5 * 10**6, eager=True) for j in range(9)})
    zeros.write_ipc(folder / "zeros.arrow", compression="zstd")
    zeros.write_ipc_stream(folder / "zeros_stream.arrow", compression="zstd")
    letters = "A" * (LARGE // 550)
    texts = pl.DataFrame({"a": [f"{i}{letters}" for i in range(550)]})
    texts.write_parquet(folder / "texts.parquet", compression="zstd")
    texts.write_ipc(folder / "texts.feather", compression="zstd")
    texts.write_ipc_stream(folder / "texts_stream.arrow", compression="lz4")
    one = pl.Series("a", [letters])
    same = one.gather([0] * 550)
    same.to_frame().write_parquet(folder / "same.parquet")
    newest = {"compat_level": pl.CompatLevel.newest(), "compression": "zstd"}
    same.to_frame().write_ipc_stream(folder / "same.arrow", **newest)
    categories = one.cast(pl.Categorical).gather([0] * 550).to_frame()
    categories.write_ipc(folder / "categories.arrow", compression="zstd")
    categories.write_parquet(folder / "categories.parquet")
    unpacked, text = "its unpacked content needs", "its text needs"
    words = {
        "zeros.arrow": unpacked,
        "zeros_stream.arrow": unpacked,
        "texts.parquet": unpacked,
        "texts.feather": unpacked,
        "texts_stream.arrow": unpacked,
        "same.parquet": text,
        "same.arrow": text,
        "categories.arrow": text,
        "categories.parquet": text,
    }
    return {("read_table", folder / name): told for name, told in words.items()}


def test_bombs_are_refused_before_they_are_large(bombs):
    check_refused(bombs)


def test_columnar_bombs_are_refused_before_they_are_large(columnar_bombs):
    check_refused(columnar_bombs)


def test_texts_told_by_differences_are_counted_while_they_are_made(tmp_path):
    """550 texts of a megabyte in one page that unpacks to little more than one of them."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "differences.parquet"
    parquet.write_table(
        arrow.table({"a": ["A" * (LARGE // 550)] * 550}),
        path,
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"},
    )
    check_refused({("read_table", path): "its text needs"})


def check_refused(bombs):
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
