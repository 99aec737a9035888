"""Small files that ask for much: refused at once with what they ask for, or read quickly."""

from __future__ import annotations

import gzip
import io
import zipfile

import numpy as np
import polars as pl
import pytest

from kernelweave import read_table
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.reading import read_matrix
from kernelweave.tables import TableEncoder, table_kernels


def npy(shape, descr="<f8", data=b""):
    """An NPY file that says whatever it likes about its shape and type."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def npz(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def array(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def sparse_parts(shape, kind=b"coo"):
    whole = np.array([0, 1], dtype=np.int32)
    places = {"row": whole, "col": whole, "data": np.ones(2), "format": np.array(kind)}
    return npz(shape=array(np.array(shape)), **{k: array(v) for k, v in places.items()})


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.npy", npy((10**13, 3)), "240000000000000 bytes, but 0 are there"),
        ("a.npz", npz(X=npy((10**13, 3))), "240000000000000 bytes, but 0 are there"),
        ("a.npz", npz(X=npy((2, 10**12), "|S0")), "no size"),
        ("a.npz", npz(X=npy((2, 10**12), "|V0")), "no size"),
        ("a.npz", sparse_parts((2**50, 2)), "a sparse matrix of 1125899906842624 x 2 needs"),
        ("a.npz", sparse_parts((2, 2**40)), ""),
        (
            "a.libsvm",
            "1 2147483640:1\n0 1:2\n",
            "2147483640 columns it says it has needs",
        ),
        ("a.libsvm", f"1 1:1\n0 {'9' * 5000}:2\n", "too large"),
    ],
)
def test_shapes_that_no_memory_holds(write, name, data, words):
    path = write(name, data)
    for reader in (read_table, read_matrix) if name.endswith(("y", "z")) else (read_table,):
        with pytest.raises((InvalidInputError, MemoryBudgetError)) as caught:
            reader(path)
        assert str(path) in str(caught.value) and words in str(caught.value)


def test_a_packed_file_stops_where_the_memory_does(write, monkeypatch):
    path = write("a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 200_000))
    assert read_table(path).n_rows == 200_000
    monkeypatch.setattr("kernelweave.reading.bounded.available_bytes", lambda: 2e6)
    with pytest.raises(MemoryBudgetError, match=r"a.csv.gz': .*unpacked.* is 500 kB, 25% of the 2"):
        read_table(path)


def test_columns_of_text_tables_are_counted_before_they_are_made(write, monkeypatch):
    monkeypatch.setattr("kernelweave.reading.bounded.available_bytes", lambda: 2e8)
    path = write("a.csv", b"\n" + b"," * 10**5 + b"x\n")
    with pytest.raises(MemoryBudgetError, match=r"a table of 3 lines and .* fields needs"):
        read_table(path)


@pytest.mark.parametrize("text", ["1 1:1e999\n0 1:2\n", "1e999 1:1\n0 1:2\n", "1 1:-1e999\n"])
def test_numbers_that_overflow_are_named(write, text):
    path = write("a.libsvm", text)
    with pytest.raises(InvalidInputError, match=r"line 1.*finite number.*1e999"):
        read_table(path)


def test_as_many_columns_as_there_are_genes(write):
    """No step may look through all columns for every column."""
    n = 2000
    for header, value in (("", "1"), ("c{}", "x"), ("c{}", "7"), ("c{}", "true")):
        names = [header.format(j) for j in range(n)]
        table = read_table(write("a.csv", ",".join(names) + "\n" + ",".join([value] * n) + "\n"))
        assert table.data.shape == (1, n) and len(set(table.columns)) == n


def test_headers_of_sequences_that_are_no_fields(write):
    records = [f">s{i} key{i}=1\nAC\n" for i in range(2000)]
    table = read_table(write("keys.fa", "".join(records)))
    assert table.columns == ["id", "sequence", "description"]
    assert table.data["description"][7] == "key7=1"
    bars = ">a" + "|" * 100_000 + "\nAC\n" + ">b|c\nGT\n" * 500
    assert read_table(write("bars.fa", bars)).columns == ["id", "sequence"]


def test_kernel_files_with_numbers_of_any_size(write):
    frame = pl.DataFrame({"age": [1.0, 2.0, 3.0], "size": [1.0, 3.0, 2.0]})
    encoder = TableEncoder().fit(frame)
    start = '[[kernel]]\nkind = "polynomial"\ndegree = '
    many = f"[{', '.join(map(str, range(1, 300)))}]"
    for text, words in (
        (start + "9" * 5000, "digits"),
        (start + "0x" + "f" * 5000, "64 bits"),
        (start + "9" * 400, "64 bits"),
        ("[views]\nv = [0x" + "f" * 5000 + "]\n" + start + "2", "64 bits"),
        (f"{start}{many}\ncoef0 = {many}\ngamma = {many}", "26730899 kernels need 26.7 GB"),
    ):
        path = write("k.toml", text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kernelweave.memory.available_bytes", lambda: 1e9)
            with pytest.raises((InvalidInputError, MemoryBudgetError), match=words) as caught:
                table_kernels(path, encoder)
        assert str(path) in str(caught.value)


def test_a_kernel_file_from_the_editor_of_windows(write):
    frame = pl.DataFrame({"age": [1.0, 2.0, 3.0]})
    path = write("k.toml", '\ufeff[[kernel]]\r\nkind = "linear"\r\n')
    assert len(table_kernels(path, TableEncoder().fit(frame))) == 1


def test_a_packed_buffer_that_tells_a_huge_size_is_refused(write):
    for written in (pl.DataFrame.write_ipc, pl.DataFrame.write_ipc_stream):
        buffer = io.BytesIO()
        written(pl.DataFrame({"a": np.zeros(10**4)}), buffer, compression="zstd")
        true = (8 * 10**4).to_bytes(8, "little")
        assert true in buffer.getvalue()
        forged = buffer.getvalue().replace(true, (10**15).to_bytes(8, "little"))
        with pytest.raises(MemoryBudgetError, match="its unpacked content needs 1e\\+03 TB"):
            read_table(write("a.arrow", forged))


def test_pages_and_not_the_footer_tell_how_much_is_unpacked(write, monkeypatch):
    monkeypatch.setattr("kernelweave.reading.bounded.available_bytes", lambda: 1e9)
    buffer = io.BytesIO()
    pl.DataFrame({"a": [0.5, 1.5]}).write_parquet(buffer)
    data = buffer.getvalue()
    # The header of the first page: its kind, then its unpacked size in one byte, here in five.
    assert data[4] == data[6] == 0x15 and data[7] < 128
    forged = data[:7] + b"\xfe\xff\xff\xff\x0f" + data[8:]
    with pytest.raises(MemoryBudgetError, match=r"its unpacked content needs 2\.15 GB"):
        read_table(write("a.parquet", forged))
