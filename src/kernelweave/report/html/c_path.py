"""How C was chosen: scores and weights along a path, or the results of a search."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.report.html.svg import SERIES, Axis, Chart, fewer
from kernelweave.report.html.words import count, number, plural, shorten

__all__ = ["path_section", "search_section"]

_ROWS = 12


def path_section(estimator: Any) -> dict[str, Any] | None:
    """Score, kernels and weights against C; None without a path."""
    if not hasattr(estimator, "path_weights_"):
        return None
    Cs, results = estimator.Cs_, estimator.cv_results_
    mean, std = results["mean_test_score"], results["std_test_score"]
    weights = estimator.path_weights_
    by_C = np.abs(weights).mean(axis=1) if weights.ndim == 3 else np.abs(weights)
    used = np.count_nonzero(by_C, axis=1)
    chosen = float(estimator.C_)
    folds = len(estimator.scores_)
    lead = (
        f"Of {len(Cs)} values of C, {number(chosen)} has the best score, "
        f"{number(float(estimator.best_score_), 4)} on average over {plural(folds, 'fold')}. A "
        "larger C fits the training samples more closely, and often with more kernels."
    )
    if estimator.best_index_ in (0, len(Cs) - 1) and len(Cs) > 1:
        end = "smallest" if estimator.best_index_ == 0 else "largest"
        lead += f" It is the {end} that was tried: a better one may lie beyond."
    rows = [
        [number(Cs[i]), number(mean[i], 4), number(std[i], 2), int(used[i])]
        for i in fewer(len(Cs), 25)
    ]
    figures = [
        _score_figure(estimator, mean, std, rows),
        _count_figure(Cs, used, chosen),
        _weights_figure(estimator, by_C, chosen),
    ]
    return {
        "id": "path",
        "title": "How C was chosen",
        "lead": lead,
        "blocks": [{"kind": "figures", "figures": figures}],
    }


def _score_figure(estimator: Any, mean: Any, std: Any, rows: list[Any]) -> dict[str, Any]:
    Cs = estimator.Cs_
    known = np.isfinite(mean)
    chart = Chart(
        Axis.around(Cs, "C", log=True),
        Axis.around([*(mean - std)[known], *(mean + std)[known]], "mean score"),
    )
    chart.band(Cs[known], (mean - std)[known], (mean + std)[known], "s0")
    chart.line(Cs[known], mean[known], "s0")
    tips = [
        f"C = {number(C)}: {number(m, 4)} ± {number(s, 2)}"
        for C, m, s in zip(Cs, mean, std, strict=True)
    ]
    chart.dots(
        Cs[known], mean[known], "s0", tips=[t for t, k in zip(tips, known, strict=True) if k]
    )
    chart.rule(x=float(estimator.C_), text="chosen")
    return {
        "title": "Score against C",
        "svg": chart.render(
            f"Mean cross-validated score against C; best at C = {number(float(estimator.C_))}."
        ),
        "caption": "Mean over the folds; the band is one standard deviation to each side.",
        "table": {"heads": ["C", "mean score", "std", "kernels"], "rows": rows},
    }


def _count_figure(Cs: Any, used: Any, chosen: float) -> dict[str, Any]:
    chart = Chart(Axis.around(Cs, "C", log=True), Axis.around([0, *used], "kernels", zero=True))
    chart.line(Cs, used, "s2", steps=True)
    tips = [f"C = {number(C)}: {plural(int(n), 'kernel')}" for C, n in zip(Cs, used, strict=True)]
    chart.dots(Cs, used, "s2", tips=tips)
    chart.rule(x=chosen, text="chosen")
    ends = f"from {count(used[0])} at the smallest C to {count(used[-1])} at the largest"
    return {
        "title": "Kernels against C",
        "svg": chart.render(f"Number of kernels with a weight against C, {ends}."),
        "caption": f"Kernels with a weight, fitted on all training samples: {ends}.",
        "table": None,
    }


def _weights_figure(estimator: Any, weights: Any, chosen: float) -> dict[str, Any]:
    Cs, peak = estimator.Cs_, weights.max(axis=0)
    shown = np.argsort(-peak, kind="stable")[:SERIES]
    shown = shown[peak[shown] > 0]
    chart = Chart(
        Axis.around(Cs, "C", log=True),
        Axis.around([0, *weights[:, shown].ravel()], "weight", zero=True),
    )
    for i, k in enumerate(shown):
        chart.line(Cs, weights[:, k], f"s{i}")
    chart.rule(x=chosen, text="chosen")
    names = [shorten(estimator.kernel_names_[k], 60) for k in shown]
    rows = [
        [name, number(float(peak[k])), number(float(weights[estimator.best_index_, k]))]
        for name, k in zip(names, shown, strict=True)
    ]
    return {
        "title": "Weights against C",
        "svg": chart.render(f"Weights of the {len(shown)} heaviest kernels against C."),
        "caption": f"The {len(shown)} kernels with the largest weight anywhere on the path.",
        "legend": names,
        "table": {"heads": ["kernel", "largest weight", "weight at chosen C"], "rows": rows},
    }


def search_section(model: Any) -> dict[str, Any] | None:
    """What a search of scikit-learn tried; None if the model is none."""
    results = getattr(model, "cv_results_", None)
    if results is None or not hasattr(model, "best_params_"):
        return None
    name = "mean_test_score" if "mean_test_score" in results else None
    if name is None:
        name = next(key for key in results if key.startswith("mean_test_"))
    mean, std = np.asarray(results[name]), np.asarray(results[name.replace("mean", "std", 1)])
    order = np.argsort(-np.nan_to_num(mean, nan=-np.inf), kind="stable")
    rows = [
        [
            ", ".join(
                f"{key}={shorten(repr(value), 60)}" for key, value in results["params"][i].items()
            ),
            number(float(mean[i]), 4),
            number(float(std[i]), 2),
        ]
        for i in order[:_ROWS]
    ]
    best = ", ".join(
        f"{key}={shorten(repr(value), 60)}" for key, value in model.best_params_.items()
    )
    more = f" Below are the best {_ROWS}." if len(order) > _ROWS else ""
    return {
        "id": "search",
        "title": "How the settings were chosen",
        "lead": f"{type(model).__name__} tried {plural(len(order), 'setting')} in "
        f"{plural(int(getattr(model, 'n_splits_', 0)), 'fold')}; the best is {best}.{more}",
        "blocks": [
            {
                "kind": "table",
                "title": "Settings tried",
                "heads": ["setting", "mean score", "std"],
                "rows": rows,
                "numeric": [1, 2],
            }
        ],
    }
