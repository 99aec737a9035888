"""`kernelweave fit` and `compare`: from a file to a model, a report, or a table of solvers."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.cli.build import build_model, needs_names
from kernelweave.cli.data import Data, Scores, load_data, score, split_rows
from kernelweave.cli.output import Output, carrying, weights_table
from kernelweave.cli.progress import CountProgress, FitProgress, PathProgress
from kernelweave.errors import InvalidInputError
from kernelweave.inspect import find_estimator, rank_kernels
from kernelweave.inspect.certificate import verdict
from kernelweave.inspect.comparison import compare
from kernelweave.model_files import save
from kernelweave.model_files.header import certificate_of
from kernelweave.plot import compare as draw_comparison
from kernelweave.report import write_html

TOP_KERNELS = 10
INTERRUPTED_MODEL = Path("kernelweave-interrupted.skops")


def run_fit(given: dict[str, Any], out: Output) -> int:
    """Read, fit, score, save, all by the options of the command; returns the exit code."""
    with out.console.status("reading"):
        data = load_data(given["data"], given.get("target"), given["task"], needs_names(given))
        train, test = split_rows(data, given["test_size"], given["seed"])
    out.notes_on(data.about)
    with out.hearing():
        model, X, about = build_model(data, given, train)
    out.notes_on(about)
    out.line("split", f"{len(train):,} rows to learn from, {len(test):,} held out")
    out.show()
    y_train = None if data.y is None else data.y[train]
    start = time.perf_counter()
    estimator = model[-1] if hasattr(model, "steps") else model
    with out.hearing(), _progress(out, estimator) as shown:
        estimator.set_params(callbacks=(shown,))
        model.fit(X[train], y_train)
    seconds = time.perf_counter() - start
    estimator.set_params(callbacks=())  # no part of what was learnt
    out.show()
    model_file, report_file = given.get("model"), given.get("report")
    if out.interrupted and model_file is None:
        model_file = INTERRUPTED_MODEL.absolute()
    scores: Scores | None = None
    held: tuple[Any, ...] = ()
    if len(test):
        held = (X[test], None if data.y is None else data.y[test])
        scores = score(np.asarray(model.predict(held[0])), held[1], y_train)
    # First what took long to come by.
    if model_file is not None:
        about_file = {
            "data": data.path.name,
            "rows": len(data.rows),
            "n_rows": data.n_rows,
            "columns": None if data.is_table else data.columns,
            "target": data.target,
            "task": data.task,
            "held_out": None if scores is None else scores.numbers,
            "command": shlex.join(["kernelweave", *sys.argv[1:]]),
        }
        save(model, model_file, about=about_file)
    _tell(out, model, scores)
    if model_file is not None:
        out.saved("model", model_file)
    if report_file is not None:
        title = f"{data.target or 'outliers'} in {data.path.name}"
        try:
            with out.console.status("drawing the report"):
                write_html(model, report_file, *held, title=title, about=[*data.about, *about])
            out.saved("report", report_file)
        except KeyboardInterrupt:
            out.interrupted = True
            kept = "the model was not saved, for there was no --model"
            if model_file is not None:
                kept = f"the model is saved in {model_file}"
            out.warn(
                f"interrupted while the report was drawn: {report_file} was not written; {kept}"
            )
            report_file = None
    out.document(
        _document(model, data, scores)
        | {
            "seconds": seconds,
            "interrupted": out.interrupted,
            "files": {"report": report_file, "model": model_file},
        }
    )
    return 130 if out.interrupted else 0


def _progress(out: Output, estimator: Any) -> AbstractContextManager[Any]:
    if hasattr(estimator, "Cs"):
        title = f"choosing C in {estimator.cv} folds"
        return PathProgress(out.console, title, (estimator.cv + 1) * estimator.Cs)
    title = "learning the weights"
    return FitProgress(out.console, title, estimator.tol, estimator.max_time)


def _tell(out: Output, model: Any, scores: Scores | None) -> None:
    estimator = find_estimator(model)
    ranked = rank_kernels(estimator)
    if scores is not None:
        out.line("held out", scores.text)
    if hasattr(estimator, "C_"):
        out.line("C", f"{estimator.C_:.4g}, score {estimator.best_score_:.4f} in cross-validation")
    out.line("certificate", verdict(estimator).line)
    out.line("kernels", carrying(len(ranked), len(estimator.kernel_names_)))
    out.show()
    out.show(weights_table([(k.name, k.weight) for k in ranked], TOP_KERNELS))
    out.show()


def _document(model: Any, data: Data, scores: Scores | None) -> dict[str, Any]:
    estimator = find_estimator(model)
    return {
        "command": "fit",
        "data": str(data.path),
        "target": data.target,
        "task": data.task,
        "model": type(estimator).__name__,
        "C": getattr(estimator, "C_", getattr(estimator, "C", None)),
        "held_out": None if scores is None else scores.numbers,
        "certificate": certificate_of(estimator),
        "n_kernels": len(estimator.kernel_names_),
        "kernels": [{"name": k.name, "weight": k.weight} for k in rank_kernels(estimator)],
    }


def run_compare(given: dict[str, Any], solvers: Sequence[str], out: Output) -> int:
    """Fit every solver on every split, print one table, draw one figure; returns the exit code."""
    if given["task"] == "outlier":
        raise InvalidInputError("compare scores predictions, and --task outlier has none to score.")
    path, figure, n_splits = given["data"], given["figure"], given["splits"]
    with out.console.status("reading"):
        data = load_data(path, given.get("target"), given["task"], needs_names(given))
    out.notes_on(data.about)
    with out.hearing():
        # Encoded once: a split may lack a value that the kernels of all rows know.
        model, X, about = build_model(data, given, np.arange(len(data.rows)), encoded=True)
    out.notes_on(about)
    out.show()
    bar = CountProgress(out.console, f"{len(solvers)} solvers", len(solvers) * n_splits)
    with bar, out.hearing():
        done = compare(
            X,
            data.y,
            solvers=tuple(solvers),
            estimator=model,
            test_size=given["test_size"],
            n_splits=n_splits,
            random_state=given["seed"],
            time_limit=given.get("time_limit"),
            on_progress=lambda count, total, text: bar.advance_to(count),
        )
    out.show()
    out.text(str(done))
    out.show()
    drawn: Any = draw_comparison(done).figure
    drawn.savefig(figure, dpi=120)
    out.saved("figure", figure)
    out.document({"command": "compare", "data": path, "figure": figure, **done.to_dict()})
    return 130 if done.interrupted else 0
