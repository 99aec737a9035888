"""`kernelweave compare`: several solvers on the same splits of one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.cli.build import Settings, build_model, needs_names
from kernelweave.cli.data import load_data
from kernelweave.cli.output import Output
from kernelweave.cli.progress import CountProgress
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.comparison import compare
from kernelweave.plot import compare as draw_comparison

__all__ = ["run_compare"]


def run_compare(
    path: Path,
    target: str | None,
    task: str,
    solvers: Sequence[str],
    settings: Settings,
    test_size: float,
    n_splits: int,
    figure: Path,
    out: Output,
) -> int:
    """Fit every solver on every split, print one table, draw one figure; returns the exit code."""
    if task == "outlier":
        raise InvalidInputError("compare scores predictions, and --task outlier has none to score.")
    with out.console.status("reading"):
        data = load_data(path, target, task, dense=needs_names(settings))
    out.notes_on(data.about)
    with out.hearing():
        # Encoded once: a split may lack a value that the kernels of all rows know.
        plan = build_model(data, settings, np.arange(len(data.rows)), encoded=True)
    out.notes_on(plan.about)
    out.show()
    bar = CountProgress(out.console, f"{len(solvers)} solvers", len(solvers) * n_splits)
    with bar, out.hearing():
        done = compare(
            plan.X,
            data.y,
            solvers=tuple(solvers),
            estimator=plan.model,
            test_size=test_size,
            n_splits=n_splits,
            random_state=settings.seed,
            time_limit=settings.time_limit,
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
