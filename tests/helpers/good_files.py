"""Small good files of every kind that is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma

import numpy as np
import polars as pl
from scipy import sparse

CSV = b'name,age,size,smoker\nanna,31,1.5,true\n"bob, jr",NA,2,false\nc,7,-3e2,true\n'
MATRIX = b",a,b,c\na,2,1,0.5\nb,1,2,0\nc,0.5,0,3\n"
LIBSVM = b"+1 1:0.5 3:2 # a comment\n-1 2:1e-1 7:3\n1 qid:4 1:2\n0\n"
FASTA = b">s1 label=1 organism=worm\nACGT\nAC\n>s2 label=-1\nGGTTA\n>s3|x|y label=2\nAC\n"
FASTQ = b"@r1 label=1\nACGT\n+\nIIII\n@r2 label=0\nGG\n+r2 label=0\n!~\n"
TOML = (
    b'[views]\nclinical = ["age", "colour"]\n\n[[kernel]]\nkind = "rbf"\nwidth = [0.5, 2]\n'
    b'view = "clinical"\n\n[[kernel]]\nkind = "polynomial"\ndegree = [1, 2]\ncoef0 = 1.0\n'
    b'columns = ["gene_*"]\nscale = false\n\n[[kernel]]\nkind = "spectrum"\nk = 3\n'
    b'\n[[kernel]]\nkind = "family"\nfamily = "default"\n'
)


def _saved(save, *args, **kwargs) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **kwargs)
    return buffer.getvalue()


def _frame(writer: str) -> bytes:
    frame = pl.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"], "c": [0.5, 1.5, -2.0]})
    buffer = io.BytesIO()
    getattr(frame, writer)(buffer)
    return buffer.getvalue()


def _arrays() -> dict[str, np.ndarray]:
    X = np.array([[1.0, np.nan], [3.0, 4.0]])
    return {"X": X, "y": np.array(["u", "vv"]), "feature_names": np.array(["age", "bmi"])}


def tables() -> dict[str, bytes]:
    """Return tables by the name of a file that holds them."""
    square = np.array([[2.0, 1.0], [1.0, 2.0]])
    return {
        "a.csv": CSV,
        "latin.csv": CSV.replace(b"anna", "Zoë".encode("latin-1")).replace(b",", b";"),
        "wide.csv": CSV.decode().encode("utf-16"),
        "a.tsv": CSV.replace(b",", b"\t"),
        "spaces.txt": b"a   b\n1 2\n 3   4\n",
        "a.csv.gz": gzip.compress(CSV, mtime=0),
        "a.csv.xz": lzma.compress(CSV),
        "matrix.csv": MATRIX,
        "a.libsvm": LIBSVM,
        "a.svmlight.gz": gzip.compress(LIBSVM, mtime=0),
        "a9a.bz2": bz2.compress(LIBSVM),
        "unknown": LIBSVM,
        "a.npy": _saved(np.save, square),
        "a.npz": _saved(np.savez, **_arrays()),
        "packed.npz": _saved(np.savez_compressed, **_arrays()),
        "csr.npz": _saved(sparse.save_npz, sparse.csr_matrix(square)),
        "coo.npz": _saved(sparse.save_npz, sparse.coo_matrix(square), compressed=False),
        "a.fa": FASTA,
        "a.faa.gz": gzip.compress(FASTA, mtime=0),
        "a.fq": FASTQ,
        "a.fastq.gz": gzip.compress(FASTQ, mtime=0),
        "no_suffix": FASTQ,
        "a.parquet": _frame("write_parquet"),
        "a.arrow": _frame("write_ipc"),
        "stream.arrow": _frame("write_ipc_stream"),
    }
