"""Tables of any make as polars frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.packing import polars_frame
from kernelweave.kernels.samples import is_frame
from kernelweave.reading.arrays import series_of, usual_float

_ARRAY_KINDS = "iuf"


def as_polars(X: Any) -> pl.DataFrame:
    """Return a pandas or polars frame, or a 2-D array, as a polars frame with names of text.

    The columns of arrays are called x0, x1, ... Missing values are nulls, also in pandas' text.
    """
    if isinstance(X, pl.DataFrame):
        return X
    if sparse.issparse(X):
        raise TypeError(
            "a sparse matrix is not a table of columns with roles; pass it to the estimator as it "
            "is, or X.toarray()."
        )
    if is_frame(X):
        names = [str(name) for name in X.columns]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InvalidInputError(f"the table has several columns named {twice[0]!r}.")
        kinds = set(X.dtypes)
        only = kinds.pop() if len(kinds) == 1 else None
        if isinstance(only, np.dtype) and only.kind in _ARRAY_KINDS:
            return polars_frame(usual_float(X.to_numpy()), names)
        columns = [_from_pandas(name, X.iloc[:, j]) for j, name in enumerate(names)]
        return pl.DataFrame(columns)
    return _from_array(X)


def _from_array(X: Any) -> pl.DataFrame:
    values = np.asarray(X)
    if values.ndim != 2:
        hint = " Reshape your data: one row for each sample." if values.ndim == 1 else ""
        raise InvalidInputError(
            f"expected a table: a pandas or polars DataFrame, or a 2-D array; got an array of "
            f"shape {values.shape}.{hint}"
        )
    if values.dtype.kind == "c":
        raise InvalidInputError("Complex data not supported: a table holds real numbers or text.")
    names = [f"x{j}" for j in range(values.shape[1])]
    if values.dtype.kind in _ARRAY_KINDS:
        return polars_frame(usual_float(values), names)
    return pl.DataFrame([_series(name, values[:, j]) for j, name in enumerate(names)])


def _from_pandas(name: str, column: Any) -> pl.Series:
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M" and getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_localize(None)
    # Nullable types of pandas have a missing value of their own.
    if kind in "iufb" and hasattr(column.dtype, "na_value") and column.isna().any():
        return _series(name, column.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind in "iufbmM":
        return _series(name, column.to_numpy())
    return _objects(name, column.astype(object).to_numpy(), column.isna().to_numpy())


def _series(name: str, values: Any) -> pl.Series:
    if values.dtype.kind != "O":
        return series_of(name, values)
    # A value that is not itself is NaN.
    missing = np.array([value is None or value != value for value in values], dtype=bool)
    return _objects(name, values, missing)


def _objects(name: str, values: Any, missing: Any) -> pl.Series:
    kinds = set(map(type, values[~missing]))
    strange = [kind for kind in kinds if issubclass(kind, dict | list | set | np.ndarray)]
    if strange:
        # The first words are those of NumPy.
        raise TypeError(
            f"argument must be a string or a number: column {name!r} holds {strange[0].__name__}."
        )
    convert: Callable[[Any], Any] = _text
    dtype: Any = pl.String
    if kinds and kinds <= {bool, np.bool_}:
        convert, dtype = bool, pl.Boolean
    elif kinds and all(issubclass(kind, int | float | np.number) for kind in kinds):
        convert, dtype = float, pl.Float64
    items = [None if gone else convert(v) for v, gone in zip(values, missing, strict=True)]
    return pl.Series(name, items, dtype=dtype)


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
