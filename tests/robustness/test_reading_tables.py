"""Tables and matrices from files: all writings of a table read alike, the rest is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from kernelweave import read_table
from kernelweave.errors import InvalidInputError
from kernelweave.reading import read_matrix

CSV = "name,age,size,smoker\nanna,31,1.5,true\nbob,NA,2,false\n"
ROWS = [("anna", 31, 1.5, True), ("bob", None, 2.0, False)]
COLUMNS = ["name", "age", "size", "smoker"]


def refused(path, *words, reader=read_table):
    with pytest.raises(InvalidInputError) as caught:
        reader(path)
    for word in words:
        assert word in str(caught.value)


# The same table in many writings


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", CSV),
        ("a.CSV", CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace("\n", "\r")),
        ("a.csv", "\ufeff" + CSV),
        ("a.csv", CSV.encode("utf-16")),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", CSV.replace(",", ";").replace("1.5", "1,5")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.txt", CSV.replace(",", "|")),
        ("a.txt", CSV.replace(",", "   ")),
        ("a.unknown", CSV),
        ("a", CSV),
        ("a.csv", CSV.replace("\n", "\n\n") + "\n  \n"),
        ("a.csv", CSV.replace(",", " , ")),
        ("a.csv", CSV.replace("anna", '"anna"').replace("NA", '""')),
        ("a.csv", CSV.rstrip("\n")),
        *(("a.csv", CSV.replace("NA", gap)) for gap in ("", "N/A", "nan", "NaN", "null", "None")),
        *(("a.csv", CSV.replace("NA", gap)) for gap in ("?", ".", "  ")),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv.bz2", bz2.compress(CSV.encode())),
        ("a.csv.xz", lzma.compress(CSV.encode())),
        ("a.csv.gz", CSV),  # Unpacked by a browser.
    ],
)
def test_the_same_table_from_every_writing(write, name, text):
    table = read_table(write(name, text))
    assert table.columns == table.data.columns == COLUMNS
    assert table.data.rows() == ROWS
    assert table.data.dtypes == [pl.String, pl.Int64, pl.Float64, pl.Boolean]
    assert table.n_rows == 2
    assert table.target is None


def test_parquet_and_arrow_in_every_way(write):
    frame = pl.DataFrame(ROWS, schema=COLUMNS, orient="row")
    for name, writer in [
        ("a.parquet", frame.write_parquet),
        ("a.pq", frame.write_parquet),
        ("a.feather", frame.write_ipc),
        ("a.arrow", frame.write_ipc),
        ("stream.arrow", frame.write_ipc_stream),
        ("by_content", frame.write_parquet),
        ("by_content_too", frame.write_ipc),
    ]:
        buffer = io.BytesIO()
        writer(buffer)
        table = read_table(write(name, buffer.getvalue()))
        assert table.data.rows() == ROWS, name
        assert table.kind in ("parquet", "arrow")


def mixed_frame():
    """Columns of many types, nested ones too, in enough rows for several pages."""
    n = 3000
    return pl.DataFrame(
        {
            "number": [None if i % 7 == 0 else i / 3 for i in range(n)],
            "text": [f"text {i % 11}" for i in range(n)],
            "other text": [f"text number {i}" for i in range(n)],
            "truth": [i % 2 == 0 for i in range(n)],
            "lists": [[str(j) for j in range(i % 4)] for i in range(n)],
            "struct": [{"a": i, "b": [i, i]} for i in range(n)],
            "price": pl.Series(range(n)).cast(pl.Decimal(20, 2)),
            "kind": pl.Series([f"kind {i % 3}" for i in range(n)], dtype=pl.Categorical),
            "day": pl.Series(range(n)).cast(pl.Date),
            "nothing": [None] * n,
            "bytes": [b"abc"] * n,
        }
    )


@pytest.mark.parametrize("packing", ["uncompressed", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_parquet_of_every_packing_is_what_was_written(tmp_path, packing):
    frame = mixed_frame()
    for size in (None, 500):
        path = tmp_path / "a.parquet"
        frame.write_parquet(path, compression=packing, row_group_size=size, data_page_size=1000)
        assert read_table(path).data.equals(frame)


@pytest.mark.parametrize("packing", ["uncompressed", "lz4", "zstd"])
def test_arrow_of_every_packing_is_what_was_written(tmp_path, packing):
    frame = mixed_frame()
    for name, level in (("a", pl.CompatLevel.oldest()), ("b", pl.CompatLevel.newest())):
        path, stream = tmp_path / f"{name}.arrow", tmp_path / f"{name}_stream.arrow"
        frame.write_ipc(path, compression=packing, compat_level=level)
        frame.write_ipc_stream(stream, compression=packing, compat_level=level)
        for written in (path, stream):
            assert read_table(written).data.to_dicts() == frame.to_dicts()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_parquet_of_another_writer(tmp_path, version):
    parquet = pytest.importorskip("pyarrow.parquet")
    frame = mixed_frame().drop("nothing")
    encodings = dict.fromkeys(["text", "other text", "bytes"], "DELTA_BYTE_ARRAY")
    for columns in ({}, {"use_dictionary": False, "column_encoding": encodings}):
        path = tmp_path / "a.parquet"
        parquet.write_table(frame.to_arrow(), path, data_page_version=version, **columns)
        assert read_table(path).data.to_dicts() == frame.to_dicts()


def test_quotes_separators_and_line_ends_inside_fields(write):
    text = 'text,number\n"a, ""b""\nc",1\nplain,2\n'
    assert read_table(write("a.csv", text)).data.rows() == [('a, "b"\nc', 1), ("plain", 2)]
    # Quotes that are no quotes: inches.
    text = 'pipe\tlength\n5" wide\t1\n3" wide, 2" deep\t2\n7"\t3\n'
    table = read_table(write("a.tsv", text))
    assert table.data["pipe"].to_list() == ['5" wide', '3" wide, 2" deep', '7"']
    assert table.data["length"].to_list() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("1,2\n3,4\n", ["x0", "x1"], (1, 2)),
        (
            "5.1,3.5,Iris-setosa\n4.9,3.0,Iris-setosa\n",
            ["x0", "x1", "x2"],
            (5.1, 3.5, "Iris-setosa"),
        ),
        ("39, Private, 5\n50, Private, 6\n", ["x0", "x1", "x2"], (39, "Private", 5)),
        ("country,1990,2000\nPeru,1,2\nChad,3,4\n", ["country", "1990", "2000"], ("Peru", 1, 2)),
        (",a,b\nr1,1,2\nr2,3,4\n", ["x0", "a", "b"], ("r1", 1, 2)),
        ("a,b\nr1,1,2\nr2,3,4\n", ["row names", "a", "b"], ("r1", 1, 2)),
        ("a,b\n1,2,\n3,4,\n", ["a", "b", "x2"], (1, 2, None)),
        ("a\n1\n2\n", ["a"], (1,)),
        ("NA,1\n2,3\n", ["x0", "x1"], (None, 1)),
    ],
)
def test_headers_are_told_from_data(write, text, columns, first):
    table = read_table(write("a.csv", text))
    assert table.columns == columns
    assert table.data.row(0) == first


def test_what_had_to_be_guessed_is_said(write):
    assert read_table(write("a.csv", "1,2\n3,4\n")).notes == (
        "no header: columns are called x0, x1, ...",
    )
    table = read_table(write("b.csv", "stadt;zahl\nK\xf6ln;1,5\n".encode("latin-1")))
    assert table.data.rows() == [("Köln", 1.5)]
    assert "Latin-1" in table.notes[0] and "decimal points: zahl" in table.notes[1]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], pl.Int64),
        (["1", "2.5"], pl.Float64),
        (["1e3", "-inf"], pl.Float64),
        (["007", "012"], pl.String),  # Codes.
        (["0", "0.5"], pl.Float64),
        (["9007199254740993", "1"], pl.Int64),  # More than a float can tell apart.
        (["123456789012345678901", "123456789012345678902"], pl.String),
        (["TRUE", "False"], pl.Boolean),
        (["yes", "no"], pl.String),
        (["nan", "NaN"], pl.Float64),
        (["1,234", "5,678"], pl.String),
        (["2021-03-04", "2022-01-01"], pl.String),
    ],
)
def test_types_of_columns(write, values, kind):
    text = "a\tb\n" + "".join(f"{value}\tx\n" for value in values)
    column = read_table(write("a.tsv", text)).data["a"]
    assert column.dtype == kind
    if kind in (pl.String, pl.Int64):
        assert [str(value) for value in column] == values


KINDS = {
    "whole": ["1", "-2", "", "40"],
    "real": ["1.5", "2", "NA", "-3e2"],
    "code": ["007", "010", "", "1"],
    "long": ["9007199254740993", "1", "", "2"],
    "name": ["99999999999999999999", "1", "", "2"],
    "truth": ["true", "", "False", "TRUE"],
    "text": ["x", " y ", "?", "1"],
    "nothing": ["", "NA", "", "."],
}
EXPECTED = {
    "whole": (pl.Int64, [1, -2, None, 40]),
    "real": (pl.Float64, [1.5, 2.0, None, -300.0]),
    "code": (pl.String, ["007", "010", None, "1"]),
    "long": (pl.Int64, [9007199254740993, 1, None, 2]),
    "name": (pl.String, ["99999999999999999999", "1", None, "2"]),
    "truth": (pl.Boolean, [True, None, False, True]),
    "text": (pl.String, ["x", "y", None, "1"]),
    "nothing": (pl.String, [None] * 4),
}


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("repeats", [1, 250])
def test_tables_with_far_more_columns_than_rows(write, repeats, separator, quoted):
    """One table of many columns, and the same columns one under the other."""
    commas = separator == ";"
    columns = {f"{kind}{r}": KINDS[kind] for r in range(repeats) for kind in KINDS}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    if repeats == 1:
        rows += 20 * rows[1:]
    if commas:
        rows[1:] = [[field.replace("1.5", "1,5") for field in row] for row in rows[1:]]
    mark = '"' if quoted else ""
    text = "\n".join(separator.join(f"{mark}{field}{mark}" for field in row) for row in rows)
    table = read_table(write("many.csv", text))
    assert table.columns == table.data.columns == list(columns)
    assert any("decimal points: real0" in note for note in table.notes) == commas
    for kind, (dtype, values) in EXPECTED.items():
        for name in (f"{kind}0", f"{kind}{repeats - 1}"):
            assert table.data[name].dtype == dtype, name
            assert table.data[name][:4].to_list() == values, name


@pytest.mark.parametrize("separator", [",", "\t", " "])
def test_long_runs_of_spaces_take_no_longer_than_other_text(write, separator):
    run = " " * 10**6
    inner = "x" if separator == " " else f"x{run}y"
    rows = [["a", "b"], ["1", "u"], ["2", run + "z"], ["3", "w" + run], ["4", inner]]
    table = read_table(write("a.txt", "\n".join(map(separator.join, rows))))
    assert table.data.rows() == [(1, "u"), (2, "z"), (3, "w"), (4, inner)]


def test_quotes_that_are_needed_are_kept_in_wide_tables(write):
    names = ",".join(f"c{j}" for j in range(50))
    row = ",".join(['"a,b"', '"a""b"', '"two\nlines"', *["1"] * 47])
    table = read_table(write("wide.csv", f"{names}\n{row}\n"))
    assert table.data.row(0)[:4] == ("a,b", 'a"b', "two\nlines", 1)


def test_libsvm_in_every_way(write):
    text = "+1 1:0.5 3:2 # a comment\n-1 2:1e-1\n1\n"
    expected = [[0.5, 0, 2], [0, 0.1, 0], [0, 0, 0]]
    for name, data in [
        ("a.libsvm", text),
        ("a.svm", text.replace("\n", "\r\n")),
        ("a9a", text),
        ("a.txt", text),
        ("a.svmlight.gz", gzip.compress(text.encode())),
        ("a9a.bz2", bz2.compress(text.encode())),
    ]:
        table = read_table(write(name, data))
        assert table.kind == "libsvm"
        assert sparse.issparse(table.data) and table.data.format == "csr"
        np.testing.assert_array_equal(table.data.toarray(), expected)
        assert table.columns == ["x1", "x2", "x3"]
        assert table.all_columns == ["target", "x1", "x2", "x3"]
        assert table.target.tolist() == [1, -1, 1] and table.target.dtype == np.int64
    assert read_table(write("r.libsvm", "0.5 1:1\n2 1:2\n")).target.tolist() == [0.5, 2]


def test_columns_of_libsvm_files_keep_their_index(write):
    train = read_table(write("train.libsvm", "1 0:1 2:3\n0 1:1\n"))
    test = read_table(write("test.libsvm", "1 1:5 4:7\n"))
    assert train.columns == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(test.sparse_on(train.columns).toarray(), [[0, 5, 0]])
    assert train.sparse_on(train.columns) is train.data


def test_numpy_files(write, tmp_path):
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    np.save(tmp_path / "a.npy", X)
    assert read_table(tmp_path / "a.npy").data.rows() == [(1.0, None), (3.0, 4.0)]
    np.savez(
        tmp_path / "a.npz", X=X.astype(">f4"), y=np.array([b"u", b"v"]), z=np.ones((2, 1), bool)
    )
    table = read_table(tmp_path / "a.npz")
    assert table.columns == ["x0", "x1", "y", "z0"]
    assert table.data.rows() == [(1.0, None, "u", True), (3.0, 4.0, "v", True)]
    np.savez(tmp_path / "b.npz", data=X, feature_names=np.array(["age", "bmi"]))
    assert read_table(tmp_path / "b.npz").columns == ["age", "bmi"]
    sparse.save_npz(tmp_path / "s.npz", sparse.csc_matrix([[0, 2], [1, 0]]))
    table = read_table(tmp_path / "s.npz")
    np.testing.assert_array_equal(table.data.toarray(), [[0, 2], [1, 0]])
    assert table.columns == ["x0", "x1"]


def test_sequences_with_their_headers(write):
    table = read_table(write("a.fa", ">s1 label=1 organism=worm\nACGT\nAC\n>s2 label=-1\nGG\n"))
    assert table.columns == ["id", "sequence", "label", "organism"]
    assert table.data.rows() == [("s1", "ACGTAC", 1, "worm"), ("s2", "GG", -1, None)]
    table = read_table(write("b.faa.gz", gzip.compress(b">sp|P1|X\nMK\n>sp|P2|Y\nMA\n")))
    assert table.columns == ["id", "sequence", "field1", "field2", "field3"]
    table = read_table(write("c.txt", ">s1 positive\nAC\n>s2 negative\nGT\n"))
    assert table.data["description"].to_list() == ["positive", "negative"]
    assert read_table(write("d", "@r1\nAC\n+\nII\n")).kind == "fastq"
    assert read_table(write("e.fa", ">a id=7\nAC\n")).columns == ["id", "sequence", "id (header)"]


def test_sequences_say_which_package_they_need(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "dnaio", None)
    refused(write("a.fa", ">a\nAC\n"), "pip install 'kernelweave[bio]'")


# What cannot be read


def test_files_that_are_not_there(tmp_path, write):
    write("Patients.csv", CSV)
    refused(tmp_path / "patient.csv", "no such file", "did you mean", "Patients.csv")
    refused(tmp_path / "zzz", "no such file")
    refused(tmp_path / "none" / "a.csv", "there is no folder")
    refused(tmp_path, "is a folder")
    refused(write("empty.csv", ""), "is empty")
    refused(write("packed.csv.gz", gzip.compress(b"")), "holds nothing")
    refused(3, "a path must be")
    refused("a\0b.csv", "no such file")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", "a,b,c\n1,2,3\n4,5\n", ["line 3 has 2 fields", "header has 3", "','"]),
        ("a.csv", "a,b\n\n1,2\n3,4,5\n6,7,8\n", ["line 4 has 3 fields", "1 other lines"]),
        ("a.csv", '1,"x\ny"\n2,z\n3\n', ["line 4 has 1 field,", "header has 2"]),
        ("a.csv", 'a,b\n1,"x\n2,y\n3,z\n', ["quote", "line 2", "never closed"]),
        ("a.csv", "a,b,a\n1,2,3\n", ["several columns named 'a'", "1, 3"]),
        ("a.csv", "a,b\n", ["header (a, b) and no rows"]),
        ("a.csv", " \n\n", ["nothing but blank lines"]),
        ("a.csv", b"a,b\n1,\0\n", ["line 2", "binary data"]),
        (
            "a.csv.gz",
            gzip.compress(CSV.encode(), mtime=0)[:30],
            ["cannot be read as a packed file"],
        ),
        ("a.xlsx", b"PK\x03\x04 sheet", [".xlsx", "Save the sheet as CSV", ".parquet"]),
        ("a.pkl", b"\x80\x04N.", ["can run code"]),
        ("a.jpg", b"\xff\xd8\xff\0\0", ["'.jpg'", ".csv", ".libsvm"]),
        ("a.parquet", "a,b\n1,2\n", ["cannot be read as Parquet"]),
        ("a.parquet", b"PAR1" + b"x" * 40 + b"PAR1", ["cannot be read as Parquet"]),
        ("a.feather", b"ARROW1\0\0" + b"x" * 40 + b"ARROW1", ["cannot be read as Arrow"]),
        ("a.libsvm", "1 1:2\nyes 1:2\n", ["line 2", "label must be a finite number", "'yes'"]),
        ("a.libsvm", "1 1:2\n1 3:1 2:1\n", ["line 2", "index 2 comes after 3"]),
        ("a.libsvm", "1 1:2\n\n1 a:1\n", ["line 3", "'a:1'"]),
        ("a.libsvm", "1 1:nan\n", ["line 1", "finite"]),
        ("a.libsvm", "1 99999999999:1\n", ["line 1", "too large"]),
        ("a.libsvm", "# nothing\n", ["no rows"]),
        ("a.npy", b"\x93NUMPY\x01\x00junk", ["cannot be read as NPY"]),
        ("a.npz", b"PK\x03\x04junk", ["cannot be read as NPZ"]),
        ("a.fa", "ACGT\n", ["FASTA"]),
        ("a.fa", "", ["is empty"]),
    ],
)
def test_broken_files_are_named_with_the_line(write, name, data, words):
    refused(write(name, data), name, *words)


def test_arrays_that_are_no_tables(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 2, 2)))
    refused(tmp_path / "a.npy", "(2, 2, 2)", "A table is a matrix")
    np.save(tmp_path / "v.npy", np.zeros(3))
    refused(tmp_path / "v.npy", "(3,)")
    np.save(tmp_path / "c.npy", np.zeros((2, 2), complex))
    refused(tmp_path / "c.npy", "complex")
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 2)), y=np.zeros(2))
    refused(tmp_path / "a.npz", "X (3, 2); y (2,)")
    np.save(tmp_path / "e.npy", np.zeros((0, 2)))
    refused(tmp_path / "e.npy", "no rows")


def test_pickles_inside_numpy_files_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was loaded",))

    trap = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", X=trap)
    for name in ("a.npy", "a.npz"):
        refused(tmp_path / name, "Python objects", "can run code")
        refused(tmp_path / name, "Python objects", reader=read_matrix)


# Matrices


@pytest.mark.parametrize(
    "text",
    [
        "2,1\n1,2\n",
        "a,b\n2,1\n1,2\n",
        ",a,b\na,2,1\nb,1,2\n",
        "a,b\na,2,1\nb,1,2\n",
        "a\t2\t1\nb\t1\t2\n",
        "id,a,b\n1,2,1\n2,1,2\n",
        ",0,1\n0,2,1\n1,1,2\n",
        "0 1\n2 1\n1 2\n",
        "2 1\n1 2\n",
    ],
)
def test_matrices_with_and_without_names(write, text):
    np.testing.assert_array_equal(read_matrix(write("K.csv", text)), [[2, 1], [1, 2]])


def test_matrices_from_numpy_files(tmp_path):
    K = np.array([[2.0, 1.0], [1.0, 2.0]], dtype=np.float32)
    np.save(tmp_path / "K.npy", K)
    assert read_matrix(str(tmp_path / "K.npy")).dtype == np.float32
    np.savez(tmp_path / "K.npz", K)
    np.testing.assert_array_equal(read_matrix(tmp_path / "K.npz"), K)
    np.savez(tmp_path / "two.npz", first=K.astype(int), second=2 * K)
    np.testing.assert_array_equal(read_matrix(f"{tmp_path / 'two.npz'}:second"), 2 * K)
    assert read_matrix(f"{tmp_path / 'two.npz'}:first").dtype == np.float64
    refused(tmp_path / "two.npz", "first (2, 2)", "two.npz:first", reader=read_matrix)
    refused(f"{tmp_path / 'two.npz'}:frist", "did you mean 'first'", reader=read_matrix)
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(K))
    np.testing.assert_array_equal(read_matrix(tmp_path / "s.npz"), K)
    np.save(tmp_path / "cube.npy", np.zeros((2, 3, 4)))
    refused(tmp_path / "cube.npy", "(2, 3, 4)", reader=read_matrix)
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    refused(tmp_path / "words.npy", "real numbers", reader=read_matrix)


def test_gaps_in_matrices_are_named(write):
    path = write("K.csv", "a,b\n1,2\n3,x\n")
    refused(path, "row 2, column 2 of 2 x 2", "'x'", reader=read_matrix)
    refused(write("L.csv", "1,2\n3,\n"), "row 2, column 2", reader=read_matrix)
    refused(write("K.fa", ">a\nAC\n"), ".npy", reader=read_matrix)
    refused(write("K.npy", b"junk"), "NPY", reader=read_matrix)


# Anything at all

SUFFIXES = ["csv", "tsv", "txt", "parquet", "arrow", "libsvm", "npy", "npz", "fa", "x", "csv.gz"]
MAGIC = [b"", b"PAR1", b"ARROW1\0\0", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b">", b"\x1f\x8b"]
SMALL = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@SMALL
@given(st.sampled_from(SUFFIXES), st.sampled_from(MAGIC), st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(tmp_path, suffix, magic, data):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(magic + data)
    for reader in (read_table, read_matrix):
        try:
            reader(path)
        except InvalidInputError as error:
            assert str(path) in str(error)


@SMALL
@given(st.text(alphabet='a1.,;\t|" \n\r-:é', min_size=1, max_size=40))
@example('"\n"')
@example('a,"b"c\n1,2\n')
@example('"a\n1')
def test_random_text_is_read_or_refused(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8", newline="")
    for reader in (read_table, read_matrix):
        try:
            reader(path)
        except InvalidInputError as error:
            assert str(path) in str(error)


CELL = st.text(alphabet='ab1,;"\n é', min_size=1, max_size=5).filter(lambda text: text.strip())


@SMALL
@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=2, max_size=6))
def test_what_csv_writers_write_is_read_back(tmp_path, rows):
    import csv

    path = tmp_path / "a.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("first", "second", "third"), *rows])
    table = read_table(path)
    assert table.columns == ["first", "second", "third"]
    read = [tuple(str(field).replace(".0", "") for field in row) for row in table.data.rows()]
    expected = [tuple(field.strip() for field in row) for row in rows]
    assert read == expected


@pytest.mark.parametrize("quoted", ['"a,b"', '"a""b"', '"a\nb"', 'a"b', '"a"b', '"a" '])
def test_quotes_count_only_where_they_stand_around_fields(write, quoted):
    """Beside fields that do not need theirs, as those of a whole table often do not."""
    import csv

    text = f'"name","other"\n"x","1"\n{quoted},"2"\n'
    read = read_table(write("a.csv", text)).data.rows()
    expected = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))][1:]
    assert [(name, str(other)) for name, other in read] == [(n.strip(), o) for n, o in expected]


@pytest.mark.parametrize("text", ['"a"\n""\n"x"\n', '"a"\t"b"\n""\t""\n"x"\t"y"\n'])
def test_rows_of_quoted_gaps_are_rows(write, text):
    assert read_table(write("a.tsv", text)).data["a"].to_list() == [None, "x"]
