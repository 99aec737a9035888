"""How the fit went, and how C and other settings were chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave import plot
from kernelweave.inspect.certificate import measure_of, verdict
from kernelweave.inspect.ranking import is_bayesian, split_fits
from kernelweave.inspect.words import number, plural, seconds, shorten
from kernelweave.plot.fits import kernels_in_use
from kernelweave.plot.style import new_axes
from kernelweave.report.blocks import Block, figure, figures, panel, section, some_of, table

_ROWS = 12
_LINES = 7


def course_section(estimator: Any) -> Block | None:
    """Gap or bound against time, and the kernels in use."""
    history = getattr(estimator, "history_", None)
    if not history:
        return None
    fits = split_fits(history)
    if is_bayesian(estimator):
        what, caption = "lower bound", "Every update raises the bound."
    else:
        what = f"relative {measure_of(estimator)}"
        caption = "Dots are single iterations; the line is the best so far."
        if estimator.gap_kind_ != "duality":
            caption = "The gradient need not fall at every step."
    if len(fits) > 1:
        caption += f" One line for each of {len(fits)} fits."
    rows = [
        [
            record.iteration,
            seconds(record.seconds),
            number(record.lower_bound, 6) if is_bayesian(estimator) else number(record.gap, 2),
            record.active_kernels,
        ]
        for records in fits[:_LINES]
        for record in (records[i] for i in some_of(len(records), _ROWS))
    ]
    listed = {"heads": ["iteration", "time", what, "kernels"], "rows": rows}
    title, curve = f"{what.capitalize()} against time", plot.convergence(estimator, panel())
    drawn = [figure(title, curve, caption, listed)]
    if len(history) > 2:
        first, last = fits[0][0].active_kernels, fits[-1][-1].active_kernels
        caption = f"How many kernels had a weight: {first} at first, {last} at the end."
        drawn.append(figure("Kernels in use", kernels_in_use(estimator, panel()), caption))
    return section("fit", "How the fit went", verdict(estimator).paragraph, figures(*drawn))


def path_section(estimator: Any) -> Block | None:
    """Score, kernels and weights against C; None without a path."""
    if not hasattr(estimator, "path_weights_"):
        return None
    Cs, results = estimator.Cs_, estimator.cv_results_
    mean, std = results["mean_test_score"], results["std_test_score"]
    weights = np.abs(estimator.path_weights_)
    weights = weights.mean(axis=1) if weights.ndim == 3 else weights
    used = np.count_nonzero(weights, axis=1)
    chosen, folds = number(float(estimator.C_)), len(estimator.scores_)
    lead = (
        f"Of {len(Cs)} values of C, {chosen} has the best score, "
        f"{number(float(estimator.best_score_), 4)} on average over {plural(folds, 'fold')}. A "
        "larger C fits the training samples more closely, and often with more kernels."
    )
    if estimator.best_index_ in (0, len(Cs) - 1) and len(Cs) > 1:
        end = "smallest" if estimator.best_index_ == 0 else "largest"
        lead += f" It is the {end} that was tried: a better one may lie beyond."
    rows = [
        [number(Cs[i]), number(mean[i], 4), number(std[i], 2), int(used[i])]
        for i in some_of(len(Cs), 25)
    ]
    peak = weights.max(axis=0)
    shown = [k for k in np.argsort(-peak, kind="stable")[:_LINES] if peak[k] > 0]
    heaviest = [
        [
            shorten(estimator.kernel_names_[k], 60),
            number(float(peak[k])),
            number(float(weights[estimator.best_index_, k])),
        ]
        for k in shown
    ]
    score, above = panel(), new_axes(8.2, 3.6)
    plot.path(estimator, (new_axes(1, 1), score), _LINES)
    plot.path(estimator, above, _LINES)
    below = figure(
        "Score against C",
        score,
        "Mean over the folds; the band is one standard deviation to each side.",
        {"heads": ["C", "mean score", "std", "kernels"], "rows": rows},
    )
    curves = figure(
        "Weights against C",
        above,
        f"The {len(shown)} kernels with the largest weight anywhere on the path. Above, how many "
        f"kernels have a weight: from {used[0]:,} at the smallest C to {used[-1]:,} at "
        "the largest.",
        {"heads": ["kernel", "largest weight", "weight at chosen C"], "rows": heaviest},
        wide=True,
    )
    return section("path", "How C was chosen", lead, figures(below, curves))


def search_section(model: Any) -> Block | None:
    """What a search of scikit-learn tried; None if the model is none."""
    results = getattr(model, "cv_results_", None)
    if results is None or not hasattr(model, "best_params_"):
        return None
    # With several metrics each has its own columns.
    name = next(key for key in results if key.startswith("mean_test_"))
    mean, std = np.asarray(results[name]), np.asarray(results[name.replace("mean", "std", 1)])
    order = np.argsort(-np.nan_to_num(mean, nan=-np.inf), kind="stable")
    rows = [
        [_setting(results["params"][i]), number(float(mean[i]), 4), number(float(std[i]), 2)]
        for i in order[:_ROWS]
    ]
    more = f" Below are the best {_ROWS}." if len(order) > _ROWS else ""
    return section(
        "search",
        "How the settings were chosen",
        f"{type(model).__name__} tried {plural(len(order), 'setting')} in "
        f"{plural(int(getattr(model, 'n_splits_', 0)), 'fold')}; the best is "
        f"{_setting(model.best_params_)}.{more}",
        table("Settings tried", ["setting", "mean score", "std"], rows, [1, 2]),
    )


def _setting(params: Block) -> str:
    return ", ".join(f"{key}={shorten(repr(value), 60)}" for key, value in params.items())
