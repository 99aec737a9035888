"""`kernelweave fit`: from a file to a model, a report and an answer."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.cli.build import Settings, build_model, needs_names
from kernelweave.cli.data import Data, load_data, split_rows
from kernelweave.cli.output import Output, carrying, weights_table
from kernelweave.cli.progress import FitProgress, PathProgress
from kernelweave.cli.scores import Scores, score
from kernelweave.inspect import find_estimator, rank_kernels
from kernelweave.inspect.certificate import certificate_text
from kernelweave.model_files import save
from kernelweave.report import write_html

__all__ = ["Files", "run_fit"]

TOP_KERNELS = 10
INTERRUPTED_MODEL = Path("kernelweave-interrupted.skops")
_PATH_LENGTH = 20  # values of C that --cv tries


@dataclass(frozen=True)
class Files:
    """What is written, if anything."""

    report: Path | None
    model: Path | None


def run_fit(
    path: Path,
    target: str | None,
    task: str,
    settings: Settings,
    test_size: float,
    files: Files,
    out: Output,
) -> int:
    """Read, fit, score, save; returns the exit code."""
    with out.console.status("reading"):
        data = load_data(path, target, task, dense=needs_names(settings))
        train, test = split_rows(data, test_size, settings.seed)
    out.notes_on(data.about)
    with out.hearing():
        plan = build_model(data, settings, train)
    out.notes_on(plan.about)
    out.line("split", f"{len(train):,} rows to learn from, {len(test):,} held out")
    out.show()
    y_train = None if data.y is None else data.y[train]
    start = time.perf_counter()
    model = plan.model
    estimator = model[-1] if hasattr(model, "steps") else model
    with out.hearing() as heard, _progress(out, estimator.tol, settings) as shown:
        estimator.set_params(callbacks=(shown,))
        model.fit(plan.X[train], y_train)
    seconds = time.perf_counter() - start
    estimator.set_params(callbacks=())  # no part of what was learnt
    out.show()
    if heard.interrupted and files.model is None:
        files = Files(files.report, INTERRUPTED_MODEL.absolute())
    scores = None
    if len(test):
        y_test = None if data.y is None else data.y[test]
        scores = score(np.asarray(model.predict(plan.X[test])), y_test, y_train)
    # First what took long to come by.
    if files.model is not None:
        save(model, files.model, about=_about(data, scores))
    _tell(out, model, scores)
    if files.model is not None:
        out.saved("model", files.model)
    interrupted = heard.interrupted
    if files.report is not None:
        held = (plan.X[test], None if data.y is None else data.y[test]) if len(test) else ()
        title = f"{data.target or 'outliers'} in {data.path.name}"
        about = [*data.about, *plan.about]
        try:
            with out.console.status("drawing the report"):
                write_html(model, files.report, *held, title=title, about=about)
            out.saved("report", files.report)
        except KeyboardInterrupt:
            interrupted = True
            out.warn(_unfinished_report(files))
            files = Files(None, files.model)
    out.document(_document(model, data, scores, files, seconds, interrupted))
    return 130 if interrupted else 0


def _unfinished_report(files: Files) -> str:
    """Say what there is, and what there is not, after Ctrl-C while the report was drawn."""
    kept = "the model was not saved, for there was no --model"
    if files.model is not None:
        kept = f"the model is saved in {files.model}"
    return f"interrupted while the report was drawn: {files.report} was not written; {kept}"


def _progress(out: Output, tol: float, settings: Settings) -> AbstractContextManager[Any]:
    if settings.cv is not None:
        total = (settings.cv + 1) * _PATH_LENGTH
        title = f"choosing C in {settings.cv} folds"
        return PathProgress(out.console, title, total)
    return FitProgress(out.console, "learning the weights", tol, settings.time_limit)


def _tell(out: Output, model: Any, scores: Scores | None) -> None:
    estimator = find_estimator(model)
    ranked = rank_kernels(estimator)
    if scores is not None:
        out.line("held out", scores.text)
    if hasattr(estimator, "C_"):
        out.line("C", f"{estimator.C_:.4g}, score {estimator.best_score_:.4f} in cross-validation")
    out.line("certificate", certificate_text(estimator))
    out.line("kernels", carrying(len(ranked), len(estimator.kernel_names_)))
    out.show()
    out.show(weights_table([(k.name, k.weight) for k in ranked], TOP_KERNELS))
    out.show()


def _certificate(estimator: Any) -> dict[str, Any]:
    names = ("gap", "gap_kind", "objective", "dual_objective", "lower_bound", "converged", "n_iter")
    found = {name: getattr(estimator, f"{name}_", None) for name in names}
    return {name: value for name, value in found.items() if value is not None} | {
        "tol": estimator.tol
    }


def _about(data: Data, scores: Scores | None) -> dict[str, Any]:
    return {
        "data": data.path.name,
        "rows": len(data.rows),
        "n_rows": data.n_rows,
        "columns": None if data.is_table else data.columns,
        "target": data.target,
        "task": data.task,
        "held_out": None if scores is None else scores.numbers,
        "command": shlex.join(["kernelweave", *sys.argv[1:]]),
    }


def _document(
    model: Any, data: Data, scores: Scores | None, files: Files, seconds: float, interrupted: bool
) -> dict[str, Any]:
    estimator = find_estimator(model)
    return {
        "command": "fit",
        "data": str(data.path),
        "target": data.target,
        "task": data.task,
        "model": type(estimator).__name__,
        "C": getattr(estimator, "C_", getattr(estimator, "C", None)),
        "held_out": None if scores is None else scores.numbers,
        "certificate": _certificate(estimator),
        "seconds": seconds,
        "interrupted": interrupted,
        "n_kernels": len(estimator.kernel_names_),
        "kernels": [{"name": k.name, "weight": k.weight} for k in rank_kernels(estimator)],
        "files": {"report": files.report, "model": files.model},
    }
