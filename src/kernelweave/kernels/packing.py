"""Tables as plain arrays and lists, for model files: frames and text go in and come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.errors import ModelFileError
from kernelweave.validation import is_missing

_NUMBERS = "biuf"
_NUMBERS_AND_TIMES = "biufmM"
_POLARS_TIMES = ("Date", "Datetime", "Duration", "Time")


def pack(data: Any) -> Any:
    """Return a frame or an array of objects as a dict of arrays and lists; others as they are.

    The index of a pandas frame is not kept: kernels read rows by their place.
    """
    if isinstance(data, np.ndarray):
        if data.dtype != object:
            return data
        return {"table": "objects", "shape": list(data.shape), **_pack_items(data.flat, "X")}
    if hasattr(data, "iloc"):
        return _pack_pandas(data)
    if type(data).__module__.startswith("polars"):
        state = {"table": "polars", "columns": list(data.columns)}
        columns = data.get_columns()
        kinds = {str(kind) for kind in data.dtypes}
        if kinds == {"Float64"} and not any(column.null_count() for column in columns):
            return {**state, "values": data.to_numpy()}
        return {**state, "parts": [_pack_polars(column) for column in columns]}
    return data


def polars_frame(values: Array, names: Sequence[str]) -> Any:
    """Return an array of numbers as a frame of polars."""
    import polars

    if 0 < values.shape[0] < values.shape[1]:
        # Each series is made by Python, so that few long ones, turned over, take less time.
        return polars.from_numpy(values.T, orient="row").transpose(column_names=names)
    return polars.from_numpy(values, schema=list(names), orient="row")


def unpack(state: Any) -> Any:
    """Return what `pack` was given."""
    if not isinstance(state, dict):
        return state
    kind = state["table"]
    if kind == "objects":
        out = np.empty(len(state["items"]), dtype=object)
        out[:] = _unpack_items(state)
        return out.reshape(state["shape"])
    if kind not in ("pandas", "polars"):
        raise ModelFileError(f"the samples are a table of the unknown kind {kind!r}.")
    try:
        library = import_module(kind)
        make = _unpack_pandas if kind == "pandas" else _unpack_polars
        return make(library, state)
    except ImportError as error:
        raise ModelFileError(
            f"the model was fitted on a {kind} frame, which cannot be made here ({error}). "
            f"Install {error.name or kind}."
        ) from error


# Columns of text, or of anything else that JSON can hold


def _pack_items(items: Iterable[Any], what: str) -> dict[str, Any]:
    kept, texts = [], []
    for place, item in enumerate(items):
        value = item.item() if isinstance(item, np.generic) else item
        if isinstance(value, bytes):
            texts.append(place)
            value = value.decode("latin-1")
        elif is_missing(value) and not isinstance(value, float):
            value = None
        if value is not None and not isinstance(value, str | bool | int | float):
            raise ModelFileError(
                f"{what} holds a {type(value).__name__}; a model file can keep numbers and text. "
                "Leave that column out, or convert it first."
            )
        kept.append(value)
    return {"items": kept, "bytes": texts}


def _unpack_items(state: dict[str, Any]) -> list[Any]:
    items = list(state["items"])
    for place in state["bytes"]:
        items[place] = items[place].encode("latin-1")
    return items


# pandas


def _pack_pandas(frame: Any) -> dict[str, Any]:
    labels = [label.item() if isinstance(label, np.generic) else label for label in frame.columns]
    if not all(isinstance(label, str | int) for label in labels):
        raise ModelFileError(
            "the columns of the frame that the model was fitted on have labels that are neither "
            f"text nor integers (such as {labels[0]!r}); rename them first."
        )
    kinds = set(frame.dtypes)
    state = {"table": "pandas", "columns": labels}
    only = next(iter(kinds))
    if len(kinds) == 1 and isinstance(only, np.dtype) and only.kind in _NUMBERS:
        # In one piece and in its order: sums over it then round as they did.
        return {**state, "values": frame.to_numpy()}
    return {**state, "parts": [_pack_series(frame.iloc[:, j]) for j in range(len(labels))]}


def _pack_series(series: Any) -> dict[str, Any]:
    dtype = series.dtype
    state = {"dtype": str(dtype)}
    if isinstance(dtype, np.dtype) and dtype.kind in _NUMBERS_AND_TIMES:
        return {**state, "values": series.to_numpy()}
    if hasattr(dtype, "categories"):
        codes, groups = series.cat.codes.to_numpy(), series.cat.categories.to_series()
        about = {"categories": _pack_series(groups), "ordered": bool(dtype.ordered)}
        return {"dtype": "category", "values": codes, **about}
    plain = getattr(dtype, "numpy_dtype", None)
    if plain is not None and plain.kind in _NUMBERS:
        missing = series.isna().to_numpy(dtype=bool)
        return {**state, "values": series.to_numpy(dtype=plain, na_value=0), "missing": missing}
    if str(dtype).startswith(("object", "str")):
        return {**state, **_pack_items(series, f"column {series.name!r} of X")}
    raise _unknown_column(series)


def _unpack_pandas(pandas: Any, state: dict[str, Any]) -> Any:
    if "values" in state:
        return pandas.DataFrame(state["values"], columns=state["columns"], copy=False)
    columns = {j: _unpack_series(pandas, part) for j, part in enumerate(state["parts"])}
    frame = pandas.DataFrame(columns)
    frame.columns = state["columns"]
    return frame


def _unpack_series(pandas: Any, state: dict[str, Any]) -> Any:
    if "items" in state:
        return pandas.Series(_unpack_items(state), dtype=state["dtype"])
    values = state["values"]
    if "categories" in state:
        groups = _unpack_series(pandas, state["categories"])
        made = pandas.Categorical.from_codes(values, groups, ordered=state["ordered"])
        return pandas.Series(made)
    series = pandas.Series(values)
    if "missing" in state:
        series = series.astype(state["dtype"])
        series[state["missing"]] = pandas.NA
    return series


# polars


def _pack_polars(series: Any) -> dict[str, Any]:
    dtype = series.dtype
    kind = dtype.base_type().__name__
    state = {"dtype": kind}
    if kind in ("String", "Binary", "Categorical", "Enum"):
        if kind == "Enum":
            state["categories"] = list(dtype.categories)
        return {**state, **_pack_items(series.to_list(), f"column {series.name!r} of X")}
    if kind in _POLARS_TIMES:
        state |= {"unit": getattr(dtype, "time_unit", None)}
        state |= {"zone": getattr(dtype, "time_zone", None)}
        series = series.to_physical()
    elif kind == "Decimal" or not (dtype.is_numeric() or kind == "Boolean"):
        raise _unknown_column(series)
    missing: Flags = series.is_null().to_numpy()
    filled = series.fill_null(False) if kind == "Boolean" else series.fill_null(0)
    state["values"] = np.array(filled.to_numpy())
    return {**state, "missing": missing} if missing.any() else state


def _unpack_polars(polars: Any, state: dict[str, Any]) -> Any:
    if "values" in state:
        return polars_frame(state["values"], state["columns"])
    pairs = zip(state["columns"], state["parts"], strict=True)
    return polars.DataFrame([_unpack_column(polars, name, part) for name, part in pairs])


def _unpack_column(polars: Any, name: str, state: dict[str, Any]) -> Any:
    kind = state["dtype"]
    dtype = getattr(polars, kind, None)
    if not (isinstance(dtype, type) and issubclass(dtype, polars.DataType)):
        raise ModelFileError(f"column {name!r} has the unknown polars type {kind!r}.")
    if kind == "Enum":
        dtype = polars.Enum(state["categories"])
    elif kind == "Datetime":
        dtype = polars.Datetime(state["unit"], state["zone"])
    elif kind == "Duration":
        dtype = polars.Duration(state["unit"])
    if "items" in state:
        return polars.Series(name, _unpack_items(state), dtype=dtype)
    series = polars.Series(name, state["values"]).cast(dtype)
    if "missing" in state:
        series = series.scatter(np.flatnonzero(state["missing"]), None)
    return series


def _unknown_column(series: Any) -> ModelFileError:
    return ModelFileError(
        f"column {series.name!r} of the frame that the model was fitted on is of type "
        f"{series.dtype}, which a model file cannot keep. Leave it out, or convert it to numbers "
        "or text before the fit."
    )
