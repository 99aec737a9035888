"""Tables from NumPy's files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.reading.files import numbered_names, plain_errors
from kernelweave.reading.table import Table
from kernelweave.reading.text import check_names

__all__ = ["load_npy", "load_npz", "load_sparse", "read_arrays"]

# Arrays of text with these names are taken as the names of the columns of X.
_NAMES = ("columns", "feature_names")
_MAGIC = b"\x93NUMPY"
_SPARSE = {"format", "shape", "data"}


def read_arrays(path: Path, kind: str) -> Table:
    """Read an NPY file (a matrix) or an NPZ file (arrays with as many rows each).

    In an NPZ file the columns of ``X``, or of the only matrix, are called x0, x1, ... or as
    ``feature_names`` (or ``columns``) says; those of other matrices by the name of the matrix,
    name0, name1, ...; an array of one dimension is a column with its name.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.npz")
    >>> np.savez(path, X=np.eye(2), y=np.array(["a", "b"]))
    >>> table = read_arrays(path, "npz")
    >>> table.columns, table.data.rows()
    (['x0', 'x1', 'y'], [(1.0, 0.0, 'a'), (0.0, 1.0, 'b')])
    """
    if kind == "npy":
        arrays = {"X": load_npy(path)}
    else:
        arrays = load_npz(path)
        if is_sparse(arrays):
            matrix = load_sparse(path)
            return Table(matrix, numbered_names(path, 0, matrix.shape[1]), kind)
    named = _columns(path, arrays)
    check_names([name for name, _ in named], path)
    with plain_errors(path, kind.upper()):
        frame = pl.DataFrame([_series(path, name, values) for name, values in named])
    return Table(frame, frame.columns, kind)


def load_npy(path: Path) -> NDArray[Any]:
    """Return the array of an NPY file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.npy")
    >>> np.save(path, np.arange(3))
    >>> load_npy(path)
    array([0, 1, 2])
    """
    with plain_errors(path, "NPY"):
        # Anything else `np.load` takes for a pickle.
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("it does not begin as such files do")
        try:
            return _sized(np.load(path, allow_pickle=False), "the array")
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise _pickled(path, "the array") from error
            raise


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.npz")
    >>> np.savez(path, a=np.arange(3))
    >>> load_npz(path)
    {'a': array([0, 1, 2])}
    """
    with plain_errors(path, "NPZ"):
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive of arrays")
        archive = np.load(path, allow_pickle=False)
        out = {}
        for name in archive.files:
            try:
                value = archive[name]
            except ValueError as error:
                if "allow_pickle" in str(error):
                    raise _pickled(path, f"array {name!r}") from error
                raise
            if not isinstance(value, np.ndarray):
                raise ValueError(f"{name!r} is not an array")
            out[name] = _sized(value, f"array {name!r}")
    if not out:
        raise InvalidInputError(f"{str(path)!r} holds no arrays.")
    return out


def is_sparse(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the arrays of an NPZ file are those of a SciPy matrix.

    Examples
    --------
    >>> is_sparse({"X": np.eye(2)})
    False
    """
    return set(arrays) >= _SPARSE and arrays["format"].ndim == 0


def load_sparse(path: Path) -> Any:
    """Return the matrix that `scipy.sparse.save_npz` wrote, as CSR.

    Examples
    --------
    >>> import tempfile
    >>> from scipy import sparse
    >>> path = Path(tempfile.mkdtemp(), "a.npz")
    >>> sparse.save_npz(path, sparse.eye(2, format="csr"))
    >>> load_sparse(path).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    from scipy import sparse

    with plain_errors(path, "a sparse NPZ"):
        matrix = sparse.csr_matrix(sparse.load_npz(path))
        # Indices out of range would be read as whatever is in memory there.
        matrix.check_format(full_check=True)
        if not np.issubdtype(matrix.dtype, np.number) and matrix.dtype != bool:
            raise ValueError(f"its values are {matrix.dtype}, not numbers")
        if np.issubdtype(matrix.dtype, np.complexfloating):
            raise ValueError("its values are complex numbers")
        matrix = matrix.astype(np.float64)
    if 0 in matrix.shape:
        raise InvalidInputError(f"{str(path)!r} holds a sparse matrix of shape {matrix.shape}.")
    return matrix


def _sized(array: NDArray[Any], what: str) -> NDArray[Any]:
    # Any number of elements without a size fits in a small file, and is too many to go through.
    if array.dtype.itemsize == 0:
        raise ValueError(f"{what} holds elements of no size ({array.dtype})")
    return array


def _pickled(path: Path, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{str(path)!r}: {what} holds Python objects, which are not read because they can run "
        f"code. Save numbers or text: array.astype(float), array.astype(str)."
    )


def _columns(path: Path, arrays: dict[str, NDArray[Any]]) -> list[tuple[str, NDArray[Any]]]:
    """The arrays, cut into columns with names."""
    titles = None
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    main = "X" if "X" in matrices else matrices[0] if len(matrices) == 1 else None
    if main is not None:
        width = arrays[main].shape[1]
        for key in _NAMES:
            if key in arrays and arrays[key].shape == (width,) and arrays[key].dtype.kind in "US":
                titles = [str(title) for title in _as_text(arrays[key])]
                arrays = {name: array for name, array in arrays.items() if name != key}
                break
    _check_shapes(path, arrays)
    out: list[tuple[str, NDArray[Any]]] = []
    for name, array in arrays.items():
        if array.dtype.names is not None:
            out += [(field, array[field]) for field in array.dtype.names]
        elif array.ndim == 1:
            out.append((name, array))
        else:
            stem = "x" if name == main else name
            own = titles if name == main else None
            names = own or [f"{stem}{j}" for j in range(array.shape[1])]
            out += [(names[j], array[:, j]) for j in range(array.shape[1])]
    return out


def _check_shapes(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    shapes = "; ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:6])
    lengths = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    bad_axes = any(
        array.ndim != 1 if array.dtype.names is not None else array.ndim not in (1, 2)
        for array in arrays.values()
    )
    single = len(arrays) == 1 and all(
        array.ndim == 1 and array.dtype.names is None for array in arrays.values()
    )
    if bad_axes or single or len(lengths) != 1:
        raise InvalidInputError(
            f"{str(path)!r} holds arrays of shapes {shapes}. A table is a matrix (rows, columns), "
            f"or matrices and vectors that all have as many rows."
        )
    if lengths == {0} or any(0 in array.shape for array in arrays.values()):
        raise InvalidInputError(f"{str(path)!r} holds no rows or no columns: {shapes}.")


def _as_text(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "S":
        return [value.decode("utf-8", errors="replace") for value in values.tolist()]
    return [str(value) for value in values.tolist()]


def _series(path: Path, name: str, values: NDArray[Any]) -> pl.Series:
    kind = values.dtype.kind
    if kind in "US":
        return pl.Series(name, _as_text(values), dtype=pl.String)
    if kind == "f":
        wide = values if values.dtype.itemsize in (4, 8) else values.astype(np.float64)
        native = np.ascontiguousarray(wide, dtype=wide.dtype.newbyteorder("="))
        return pl.Series(name, native, nan_to_null=True)
    if kind in "iub":
        return pl.Series(name, np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))
    if kind == "M":
        return pl.Series(name, values.astype("datetime64[us]"))
    raise InvalidInputError(
        f"{str(path)!r}: column {name!r} holds {values.dtype}; numbers, booleans, text and dates "
        f"are read."
    )
