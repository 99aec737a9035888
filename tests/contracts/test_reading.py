"""FASTA and FASTQ files: every writing of the same records reads alike, the rest is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys

import numpy as np
import pytest

from kernelweave import read_sequences
from kernelweave.errors import InvalidInputError

FASTA = b">one first site label=1\nACGTN\nacgt\n\n>two label=-1\nGGT\n"
FASTQ = b"@one first site label=1\nACGTNacgt\n+\nIIIIIIII!\n@two label=-1\nGGT\n+\n#II\n"
PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("sites.fasta", FASTA),
        ("sites.fa", FASTA.replace(b"\n", b"\r\n")),
        ("sites.faa", b"# a comment\n" + FASTA),
        ("sites", FASTA),
        ("sites.fastq", FASTQ),
        ("sites.fq", FASTQ.replace(b"\n", b"\r\n")),
        ("reads", FASTQ),
    ],
)
def test_the_same_records_from_every_file(write, name, data):
    for packed, pack in PACKERS.items():
        records = read_sequences(str(write(name + packed, pack(data))))
        assert records.sequences.tolist() == ["ACGTNacgt", "GGT"]
        assert records.sequences.dtype == object
        assert records.names.tolist() == ["one", "two"]
        assert records.descriptions.tolist() == ["one first site label=1", "two label=-1"]
        assert len(records) == 2
        kind = "FASTQ" if b"@" in data else "FASTA"
        assert repr(records) == f"SequenceRecords(2 from {kind})"
        found = None if records.qualities is None else records.qualities.tolist()
        assert found == (["IIIIIIII!", "#II"] if kind == "FASTQ" else None)


def test_zstandard(write):
    zstd = pytest.importorskip("backports.zstd")
    assert len(read_sequences(write("sites.fa.zst", zstd.compress(FASTA)))) == 2


def test_sequences_of_one_length_are_no_table(write):
    records = read_sequences(write("sites.fa", b">a\nAC\n>b\nGT\n>c\n\n"))
    assert records.sequences.shape == (3,)
    assert records.sequences.tolist() == ["AC", "GT", ""]


@pytest.mark.parametrize(
    ("header", "key", "value"),
    [
        (" chr_num=1, strand=+, position=180699, label=-1", "label", "-1"),
        (" chr_num=1, strand=+, position=180699, label=-1", "chr_num", "1"),
        ("2LHB|fold=1|split=train", "fold", "1"),
        ("2LHB|fold=1|split=train", "split", "train"),
        ("label=a;other=b", "label", "a"),
        ("x [organism=worm] [note=]", "organism", "worm"),
        ("x [organism=worm] [note=]", "note", ""),
        ("x mylabel=2 label=3 label=4", "label", "3"),
        ("x a.b=1 a+b=2", "a+b", "2"),
        ("x path=a=b", "path", "a=b"),
    ],
)
def test_fields_of_the_header(write, header, key, value):
    records = read_sequences(write("sites.fa", f">{header}\nACGT\n".encode()))
    found = records.field(key)
    assert found.dtype.kind == "U"
    assert found.tolist() == [value]


def test_headers_without_a_name(write):
    records = read_sequences(write("sites.fa", b"> label=1\nAC\n>\nGT\n"))
    assert records.names.tolist() == ["label=1", ""]
    assert records.descriptions.tolist() == ["label=1", ""]


def test_a_header_without_the_field_is_named(write):
    records = read_sequences(write("sites.fa", FASTA + b">three score=2 x=y\nAC\n"))
    with pytest.raises(
        InvalidInputError,
        match=r"record 2 has no field 'label' in its header 'three.*fields there: 'score', 'x'",
    ):
        records.field("label")
    with pytest.raises(InvalidInputError, match="record 0 has no field 'abel'"):
        records.field("abel")
    bare = read_sequences(write("bare.fa", b">a\nAC\n"))
    with pytest.raises(InvalidInputError, match="fields there: none"):
        bare.field("label")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.fasta", b"", "holds no records"),
        ("empty", b"", "holds no records"),
        ("comment.fasta", b"# nothing\n", "holds no records"),
        ("table.csv", b"sequence,target\nACG,1\n", "neither FASTA .*'>'.* nor FASTQ"),
        ("table.fasta", b"sequence,target\nACG,1\n", "FASTA file at line 1.*Expected '>'"),
        ("table.fastq", FASTA, "FASTQ file at line 1.*'@'"),
        ("short.fastq", b"@a\nACG\n+\nII\n", "line 4: Length of sequence and qualities differ"),
        ("cut.fastq", b"@a\nACG\n", "Premature end"),
        ("binary.fasta", bytes(range(128, 256)), "cannot be read"),
        ("header.fasta", ">B\u00e4r\nACG\n".encode(), "ASCII"),
        ("plain.fasta.gz", FASTA, "plain.fasta.gz.*Not a gzipped file"),
        ("cut.fasta.gz", gzip.compress(FASTA, mtime=0)[:40], "cut.fasta.gz.* cannot be read"),
        ("cut.fasta.bz2", bz2.compress(FASTA)[:40], "cut.fasta.bz2.* cannot be read"),
    ],
)
def test_what_is_no_file_of_sequences_is_refused(write, name, data, message):
    with pytest.raises(InvalidInputError, match=message):
        read_sequences(write(name, data))


def test_errors_of_the_system_stay_what_they_are(tmp_path):
    for name in ("missing.fasta", "missing.fasta.gz"):
        with pytest.raises(FileNotFoundError, match=name):
            read_sequences(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_sequences(tmp_path)
    with pytest.raises(TypeError, match="int"):
        read_sequences(3)


def test_without_the_reader_the_extra_is_named(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "dnaio", None)
    with pytest.raises(ImportError, match=r"pip install 'kernelweave\[bio\]'"):
        read_sequences(write("sites.fa", FASTA))


def test_records_are_what_string_kernels_read(write):
    from kernelweave.kernels.strings.alphabet import get_alphabet
    from kernelweave.kernels.strings.sequences import Sequences

    records = read_sequences(write("sites.fa", FASTA))
    codes = Sequences.encode(records.sequences, get_alphabet("dna")).codes
    np.testing.assert_array_equal(codes, [0, 1, 2, 3, 255, 0, 1, 2, 3, 2, 2, 3])
