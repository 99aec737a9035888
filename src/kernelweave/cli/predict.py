"""`kernelweave predict` and `inspect`: what a model file answers, and what it says of itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kernelweave.arrays import Array
from kernelweave.cli.build import with_rows
from kernelweave.cli.data import read_matrices, score
from kernelweave.cli.output import Output, carrying, weights_table
from kernelweave.errors import InvalidInputError, visible
from kernelweave.estimators.new_rows import precomputed_kernels, with_new_rows
from kernelweave.inspect import find_estimator
from kernelweave.model_files import load, read_header
from kernelweave.reading import Table, read_table

# What makes a spreadsheet take a cell for a formula.
_RUN = ("=", "+", "-", "@", "\t", "\r")


def run_predict(given: dict[str, Any], out: Output) -> int:
    """Load, predict, write, all by the options of the command; returns the exit code."""
    path, output, matrices = given["model"], given.get("output"), given.get("kernel_matrix", ())
    about = read_header(path).about
    with out.console.status("loading"):
        model = load(path, trusted=list(given.get("trust", ())))
        table = read_table(given["data"])
    estimator = find_estimator(model)
    X, y = _samples(table, estimator, model, about)
    if matrices or precomputed_kernels(estimator):
        model, X = _on_matrices(model, X, matrices, about, table)
    with out.hearing():
        frame = _predictions(model, X, estimator, given["proba"])
    scores = None
    if y is not None and about.get("task") != "outlier":
        scores = score(frame["prediction"].to_numpy(), y, y)
        out.line("known", f"{about['target']} is in the file: {scores.text}")
    roles = getattr(model[0], "roles_", {}) if hasattr(model, "steps") else {}
    if isinstance(table.data, pl.DataFrame):
        # Columns that name the rows, which no kernel uses, come first.
        unused = {name for name, role in roles.items() if role == "nothing"}
        there = [c for c in table.data.iter_columns() if c.name in unused]
        named = [c for c in there if c.n_unique() == len(c) > 1 and c.name not in frame.columns]
        frame = pl.DataFrame([*named, *frame.iter_columns()])
    if output is not None:
        _write(frame, output, given["raw"])
        out.saved(f"{len(frame):,} rows", output)
    elif not out.json:
        sys.stdout.write((frame if given["raw"] else guarded(frame)).write_csv())
    out.document(
        {
            "command": "predict",
            "model": path,
            "known": None if scores is None else scores.numbers,
            "output": output,
            "rows": frame.to_dicts() if output is None else len(frame),
        }
    )
    return 0


def _samples(
    table: Table, estimator: Any, model: Any, about: dict[str, Any]
) -> tuple[Any, Array | None]:
    """Return the columns that the model takes, and the target if the file has it."""
    target, data = str(about.get("target")), table.data
    if not isinstance(data, pl.DataFrame):
        known = table.target if about.get("task") else None
        X = table.sparse_on(about["columns"]) if about.get("columns") else data
        return X, _like_classes(known, estimator)
    y = None
    if target in data.columns:
        column, data = data[target], data.drop(target)
        y = None if column.null_count() else _like_classes(column.to_numpy(), estimator)
    if hasattr(model, "steps") or hasattr(estimator, "feature_names_in_"):
        return data, y
    # A model of an array without names takes the columns in their order.
    return data.to_numpy(), y


def _like_classes(y: Any, estimator: Any) -> Array | None:
    """Return known targets as the model writes them; None if they are not its classes."""
    classes = getattr(estimator, "classes_", None)
    if y is None or classes is None:
        return None if y is None else np.asarray(y, dtype=np.float64)
    try:
        values = np.asarray([str(v) for v in y] if classes.dtype.kind == "U" else y)
        return values.astype(classes.dtype)
    except (TypeError, ValueError):
        return None


def _on_matrices(
    model: Any, X: Any, texts: Sequence[str], about: dict[str, Any], table: Table
) -> tuple[Any, Any]:
    """Give samples their ids in precomputed matrices: old ones, or new ones with values given."""
    n_new = table.data.shape[0]
    n_old = about.get("n_rows")
    if n_old is None or not hasattr(model, "steps"):
        raise InvalidInputError(
            "this model has precomputed kernels and was not made by kernelweave fit: predict in "
            "Python, on sample ids."
        )
    if not texts:
        if n_new != n_old:
            needed = ", ".join(precomputed_kernels(find_estimator(model)))
            raise InvalidInputError(
                f"the model has kernel matrices over the {n_old} rows it was fitted on, and this "
                f"file has {n_new}. For new samples give --kernel-matrix NAME=FILE with a matrix "
                f"of shape ({n_new}, {n_old}) for each of: {needed}."
            )
        return model, with_rows(X, np.arange(n_new))
    matrices = read_matrices(texts, (n_new, n_old))
    steps = [*model.steps[:-1], (model.steps[-1][0], with_new_rows(model[-1], matrices))]
    return type(model)(steps), with_rows(X, n_old + np.arange(n_new))


def _predictions(model: Any, X: Any, estimator: Any, proba: bool) -> pl.DataFrame:
    columns: dict[str, Any] = {}
    if hasattr(estimator, "nu"):
        columns["prediction"] = np.where(model.predict(X) == 1, "inside", "outside")
        columns["score"] = np.asarray(model.decision_function(X))
    elif hasattr(estimator, "weights_std_") and not hasattr(estimator, "classes_"):
        columns["prediction"], columns["std"] = model.predict(X, return_std=True)
    else:
        columns["prediction"] = model.predict(X)
    if proba:
        if not hasattr(model, "predict_proba"):
            raise InvalidInputError(
                f"--proba: a {type(estimator).__name__} without probabilities was saved. Fit it "
                "with --loss logistic or --solver bayes."
            )
        chances = model.predict_proba(X)
        for c, name in enumerate(estimator.classes_):
            columns[f"probability {name}"] = chances[:, c]
    return pl.DataFrame(columns)


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose text is safe in a spreadsheet and on a screen.

    A spreadsheet runs text that begins with =, +, -, @, a tab or a carriage return: such text gets
    an apostrophe in front. Control characters are written as Python writes them. Numbers stay.
    """
    text = [name for name in frame.columns if frame.schema[name] in (pl.String, pl.Categorical)]
    safe = frame.with_columns(
        pl.col(name).cast(pl.String).map_elements(_guarded, return_dtype=pl.String) for name in text
    )
    return safe.rename({name: _guarded(name) for name in frame.columns})


def _guarded(text: str) -> str:
    return ("'" if text.startswith(_RUN) else "") + visible(text)


def _write(frame: pl.DataFrame, path: Path, raw: bool) -> None:
    kind = path.suffix.lower()
    if kind == ".parquet":
        frame.write_parquet(path)
    elif kind == ".json":
        frame.write_json(path)
    elif kind == ".npy":
        np.save(path, np.array(frame["prediction"].to_list()), allow_pickle=False)
    else:
        frame = frame if raw else guarded(frame)
        frame.write_csv(path, separator="\t" if kind == ".tsv" else ",")


def run_inspect(path: Path, top: int, out: Output) -> int:
    """Print the header of a model file, of which nothing is run; returns the exit code."""
    header = read_header(path)
    if out.json:
        size = path.stat().st_size
        out.document({"command": "inspect", "file": path, "bytes": size, **asdict(header)})
        return 0
    inside = "" if header.estimator in ("", header.model) else f"{header.estimator} in a "
    out.line("model", f"{inside}{header.model}, written {header.created}")
    out.line("file", f"{path.stat().st_size / 1e6:.2f} MB, format {header.format}")
    out.line("versions", ", ".join(f"{name} {v}" for name, v in header.versions.items()))
    for name, value in header.about.items():
        if value is not None and name not in ("n_rows", "columns"):
            out.line(name.replace("_", " "), _words(value))
    out.line("certificate", _words(header.certificate))
    out.line("kernels", carrying(len(header.kernels), header.n_kernels))
    out.show()
    out.show(weights_table([(k["name"], k["weight"]) for k in header.kernels], top))
    return 0


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
