"""Tables from NumPy's files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import (
    OF_ARRAYS,
    Allowance,
    check_npy,
    numbered_names,
    plain_errors,
    read_npz,
)
from kernelweave.reading.table import Table
from kernelweave.reading.text import check_names
from kernelweave.validation import require_sparse

# Arrays of text with these names are taken as the names of the columns of X.
_NAMES = ("columns", "feature_names")
_SPARSE = {"format", "shape", "data"}


def read_arrays(path: Path, kind: str) -> Table:
    """Read an NPY file (a matrix) or an NPZ file (arrays with as many rows each).

    In an NPZ file the columns of ``X``, or of the only matrix, are called x0, x1, ... or as
    ``feature_names`` (or ``columns``) says; those of other matrices by the name of the matrix,
    name0, name1, ...; an array of one dimension is a column with its name.
    """
    arrays = load_arrays(path, kind)
    if is_sparse(arrays):
        matrix = sparse_of(path, arrays)
        return Table(matrix, numbered_names(path, 0, matrix.shape[1]), kind)
    named = _columns(path, arrays)
    check_names([name for name, _ in named], path)
    with plain_errors(path, kind.upper()):
        frame = pl.DataFrame([series_of(name, values) for name, values in named])
    return Table(frame, frame.columns, kind)


def load_arrays(path: Path, kind: str) -> dict[str, Array]:
    """Return the arrays of an NPZ file, or that of an NPY file as "X"."""
    allowance = Allowance(path, OF_ARRAYS)
    with plain_errors(path, kind.upper()):
        if kind == "npy":
            size = path.stat().st_size
            with open(path, "rb") as file:
                check_npy(file, size, "the array")
            allowance.take(size, "the array")
            return {"X": np.load(path, allow_pickle=False)}
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive of arrays")
        out = read_npz(path, allowance)
    if not out:
        raise InvalidInputError(f"{str(path)!r} holds no arrays.")
    return out


def is_sparse(arrays: dict[str, Array]) -> bool:
    """Whether the arrays of an NPZ file are those of a SciPy matrix."""
    return set(arrays) >= _SPARSE and arrays["format"].ndim == 0


def sparse_of(path: Path, arrays: Mapping[str, Array]) -> Any:
    """Return the matrix that `scipy.sparse.save_npz` wrote into these arrays, as CSR."""
    from scipy import sparse

    with plain_errors(path, "a sparse NPZ"):
        kind, data = str(np.asarray(arrays["format"]).astype(np.str_)), arrays["data"]
        n, p = (int(size) for size in arrays["shape"])
        if data.dtype.kind not in "biuf":
            raise ValueError(f"its values are {data.dtype}, not real numbers")
        # One number for each row and column, whatever else there is.
        Allowance(path, OF_ARRAYS).take(8.0 * (n + p), f"a sparse matrix of {n} x {p}")
        if kind == "coo":
            parts: Any = (data, (arrays["row"], arrays["col"]))
        elif kind == "dia":
            parts = (data, arrays["offsets"])
        elif kind in ("csr", "csc", "bsr"):
            parts = (data, arrays["indices"], arrays["indptr"])
        else:
            raise ValueError(f"its format is {kind!r}")
        found = getattr(sparse, f"{kind}_matrix")(parts, shape=(n, p))
        require_sparse(f"the matrix in {str(path)!r}", found)
        matrix = sparse.csr_matrix(found).astype(np.float64)
    if 0 in matrix.shape:
        raise InvalidInputError(f"{str(path)!r} holds a sparse matrix of shape {matrix.shape}.")
    return matrix


def _columns(path: Path, arrays: dict[str, Array]) -> list[tuple[str, Array]]:
    """The arrays, cut into columns with names."""
    titles = None
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    main = "X" if "X" in matrices else matrices[0] if len(matrices) == 1 else None
    for key in _NAMES:
        if main is not None and key in arrays:
            names = arrays[key]
            if names.shape == arrays[main].shape[1:] and names.dtype.kind in "US":
                titles = _as_text(arrays.pop(key))
    _check_shapes(path, arrays)
    out: list[tuple[str, Array]] = []
    for name, array in arrays.items():
        if array.ndim == 1:
            out.append((name, array))
        else:
            titled = [f"{'x' if name == main else name}{j}" for j in range(array.shape[1])]
            if name == main and titles is not None:
                titled = titles
            out += zip(titled, array.T, strict=True)
    return out


def _check_shapes(path: Path, arrays: dict[str, Array]) -> None:
    shapes = "; ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:6])
    axes = [array.ndim for array in arrays.values()]
    heights = {array.shape[:1] for array in arrays.values()}
    if not set(axes) <= {1, 2} or axes == [1] or len(heights) != 1:
        raise InvalidInputError(
            f"{str(path)!r} holds arrays of shapes {shapes}. A table is a matrix (rows, columns), "
            f"or matrices and vectors that all have as many rows."
        )
    if any(0 in array.shape for array in arrays.values()):
        raise InvalidInputError(f"{str(path)!r} holds no rows or no columns: {shapes}.")


def _as_text(values: Array) -> list[str]:
    if values.dtype.kind == "S":
        return [value.decode("utf-8", errors="replace") for value in values.tolist()]
    return [str(value) for value in values.tolist()]


def series_of(name: str, values: Array) -> pl.Series:
    """Return a column of numbers, booleans, text or times as one of polars; NaN is missing."""
    kind = values.dtype.kind
    if kind in "US":
        return pl.Series(name, _as_text(values), dtype=pl.String)
    if kind in "mM":
        return pl.Series(
            name, values.astype("datetime64[us]" if kind == "M" else "timedelta64[us]")
        )
    if kind not in "fiub":
        raise TypeError(
            f"column {name!r} holds {values.dtype}; numbers, booleans, text and dates are read."
        )
    values = usual_float(values)
    native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    return pl.Series(name, native, nan_to_null=kind == "f")


def usual_float(values: Array) -> Array:
    """Return floats of other sizes than polars has as float64, other numbers as they are."""
    unusual = values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8)
    return values.astype(np.float64) if unusual else values
