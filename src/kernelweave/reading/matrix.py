"""Kernel matrices from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import OF_ARRAYS, Allowance, existing_file, plain_errors
from kernelweave.validation import unknown_name


def read_matrix(path: str | os.PathLike[str]) -> Array:
    r"""Read a matrix of numbers: NPY, NPZ, or text (CSV, TSV) with or without names.

    Parameters
    ----------
    path : str or path
        The file. Of an NPZ file with several arrays, ``"file.npz:name"`` is the one called name.
        In text, a first line and a first column of names are left out.

    Returns
    -------
    ndarray of shape (rows, columns)
        Float32 if the file has it so, else float64.

    Examples
    --------
    >>> import tempfile
    >>> from kernelweave.reading import read_matrix
    >>> path = Path(tempfile.mkdtemp(), "K.csv")
    >>> _ = path.write_text(",a,b\na,2,1\nb,1,2\n")
    >>> read_matrix(path)
    array([[2., 1.],
           [1., 2.]])
    """
    text, key = str(path), None
    if ".npz:" in text.lower() and not Path(text).expanduser().exists():
        text, _, key = text.rpartition(":")
    found = existing_file(path if key is None else text)
    from_arrays = found.suffix.lower() in (".npy", ".npz")
    values = _from_arrays(found, key) if from_arrays else _from_text(found)
    if values.ndim != 2 or 0 in values.shape:
        raise InvalidInputError(
            f"{str(found)!r} must hold a matrix (rows, columns); got shape {values.shape}."
        )
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(f"{str(found)!r} must hold real numbers; got {values.dtype}.")
    return values if values.dtype == np.float32 else values.astype(np.float64, copy=False)


def _from_arrays(path: Path, key: str | None) -> Any:
    from kernelweave.reading.arrays import is_sparse, load_arrays, sparse_of

    arrays = load_arrays(path, path.suffix.lower()[1:])
    if is_sparse(arrays):
        matrix = sparse_of(path, arrays)
        needed = 8.0 * matrix.shape[0] * matrix.shape[1]
        Allowance(path, OF_ARRAYS).take(needed, "the matrix, zeros included,")
        with plain_errors(path, "a matrix"):
            return matrix.toarray()
    if key is not None:
        if key not in arrays:
            raise InvalidInputError(f"{str(path)!r}: {unknown_name('array', key, arrays)}")
        return arrays[key]
    if len(arrays) > 1:
        listed = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        name = next(iter(arrays))
        raise InvalidInputError(
            f"{str(path)!r} holds several arrays: {listed}. Say which: {path.name}:{name}."
        )
    return next(iter(arrays.values()))


def _from_text(path: Path) -> Any:
    import polars as pl

    from kernelweave.reading.table import kind_by_suffix
    from kernelweave.reading.text import read_grid

    if kind_by_suffix(path) not in (None, "csv", "tsv"):
        raise InvalidInputError(
            f"{str(path)!r}: matrices are read from .npy, .npz, .csv, .tsv and .txt files."
        )
    grid = read_grid(path)
    text = grid.text
    if grid.header is not None:
        first = pl.DataFrame([grid.header], schema=text.schema, orient="row")
        text = pl.concat([first, text])
    values = text.select(pl.all().str.strip_chars().cast(pl.Float64, strict=False)).to_numpy()
    rows, columns = _without_names(values)
    gaps = np.argwhere(np.isnan(values[rows, columns]))
    if len(gaps):
        i, j = (int(t) for t in gaps[0])
        n, p = values[rows, columns].shape
        found = text[i + rows.start, j + columns.start]
        raise InvalidInputError(
            f"{str(path)!r} must hold a number in every place; row {i + 1}, column {j + 1} of "
            f"{n} x {p} {'is missing' if not found else f'holds {found!r}'}."
        )
    return values[rows, columns]


def _without_names(values: Array) -> tuple[slice, slice]:
    """Which rows and columns are left without a first line and a first column of names.

    Names are known by not being numbers, or by an empty corner, or because they count up and the
    rest is square.
    """
    n, p = values.shape
    words = np.isnan(values)
    corner = words[0, 0] and not words[0, 1:].any() and not words[1:, 0].any()
    if corner and n == p > 2:
        return slice(1, None), slice(1, None)
    row = n > 1 and bool(words[0, min(1, p - 1) :].all())
    column = p > 1 and bool(words[int(row) :, 0].all())
    if not row and not column:
        row = n == p + 1 and bool((np.diff(values[0]) == 1).all())
        column = n == p - 1 and bool((np.diff(values[:, 0]) == 1).all())
    elif not column and n == p:
        # Names of the rows that are numbers, under a corner that is not.
        column = bool(words[0, 0])
    return slice(int(row), None), slice(int(column), None)
