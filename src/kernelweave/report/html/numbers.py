"""Held-out samples of a regressor: how far off, where, and how sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.describe.learnt import is_bayesian
from kernelweave.report.html.heldout import HeldOut, Part, number_block
from kernelweave.report.html.intervals import bootstrap, resamples
from kernelweave.report.html.svg import Axis, Chart, fewer
from kernelweave.report.html.words import count, number, plural

__all__ = ["number_part"]

Floats = NDArray[np.float64]

# Points of a cloud; more of them hide each other. Outputs that have figures.
_POINTS = 400
_OUTPUTS = 3


def number_part(estimator: Any, held: HeldOut) -> Part:
    """What the held-out samples say of a regressor."""
    truth = np.asarray(held.y, dtype=float)
    std = None
    if is_bayesian(estimator):
        predicted, std = (np.asarray(part) for part in estimator.predict(held.X, return_std=True))
        std = std.reshape(held.n, -1)
    else:
        predicted = np.asarray(estimator.predict(held.X), dtype=float)
    truth, predicted = truth.reshape(held.n, -1), predicted.reshape(held.n, -1)
    drawn = resamples(held.n)
    several = truth.shape[1] > 1
    blocks: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    notes: list[str] = []
    for t in range(truth.shape[1]):
        of = f" of output {t}" if several else ""
        found = _numbers(truth[:, t], predicted[:, t], drawn, of)
        if t < _OUTPUTS:
            blocks.append({"kind": "numbers", "numbers": found})
            own = None if std is None else std[:, t]
            figures += _figures(truth[:, t], predicted[:, t], own, of)
    if truth.shape[1] > _OUTPUTS:
        notes.append(f"Shown are the first {_OUTPUTS} of {truth.shape[1]} outputs.")
    if held.n > _POINTS:
        notes.append(f"Figures show {_POINTS} of {count(held.n)} samples.")
    if np.ptp(truth, axis=0).min() == 0:
        notes.append(
            "All held-out samples have the same target, so there is no variance to explain and R² "
            "is not defined."
        )
    off = np.abs(truth - predicted).mean(axis=0)
    constant = np.abs(truth - truth.mean(axis=0)).mean(axis=0)
    sentence = (
        f"On {plural(held.n, 'held-out sample')} predictions are off by {number(float(off[0]))} on "
        f"average; predicting the mean of them all is off by {number(float(constant[0]))}."
    )
    if several:
        ratio = number(float(np.mean(off / np.maximum(constant, 1e-300))))
        sentence = (
            f"On {plural(held.n, 'held-out sample')} predictions of {truth.shape[1]} outputs are "
            f"off by {ratio} times as much as their means."
        )
    head = _numbers(truth[:, 0], predicted[:, 0], drawn, "")[0]
    headline = {
        "head": f"Held-out {head['head']}",
        "text": head["text"],
        "small": f"95 % interval {head['interval']}" if head["interval"] else "",
    }
    if several:
        headline["head"] += " of output 0"
    blocks += [{"kind": "figures", "figures": figures}, {"kind": "notes", "notes": notes}]
    return Part(sentence, headline, blocks)


def _numbers(truth: Floats, predicted: Floats, drawn: Floats, of: str) -> list[dict[str, str]]:
    error = truth - predicted

    def explained(w: Floats) -> Floats:
        total = w.sum(axis=1)
        mean = w @ truth / total
        spread = w @ truth**2 - total * mean**2
        # Rounding leaves a little where there is nothing.
        nothing = spread <= 1e-12 * (w @ truth**2)
        return 1.0 - w @ error**2 / np.where(nothing, np.nan, spread)

    every = np.ones((1, len(truth)))
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = float(explained(every)[0])
    out = []
    if np.isfinite(r2):
        small = "share of the variance explained" + of
        out.append(number_block("R²", r2, bootstrap(explained, drawn), small, number))
    mae, rmse = float(np.abs(error).mean()), float(np.sqrt(np.mean(error**2)))
    ends = bootstrap(lambda w: w @ np.abs(error) / w.sum(axis=1), drawn)
    out.append(
        number_block("Mean absolute error", mae, ends, "off by so much on average" + of, number)
    )
    ends = bootstrap(lambda w: np.sqrt(w @ error**2 / w.sum(axis=1)), drawn)
    small = "root of the mean square" + of
    out.append(number_block("Root mean squared error", rmse, ends, small, number))
    return out


def _figures(truth: Floats, predicted: Floats, std: Floats | None, of: str) -> list[dict[str, Any]]:
    # Every so many, in the order of the predictions, so that both ends are there.
    keep = np.argsort(predicted, kind="stable")[fewer(len(truth), _POINTS)]
    error = truth - predicted
    both = Axis.around([*truth, *predicted], "")
    clouds = Chart(
        Axis(both.low, both.high, "predicted"), Axis(both.low, both.high, "true"), height=320
    )
    clouds.diagonal()
    rest = Chart(
        Axis.around(predicted, "predicted"),
        Axis.around([*error, 0.0], "true − predicted"),
        height=320,
    )
    rest.rule(y=0.0, kind="faint")
    tips = [
        f"predicted {number(predicted[i])}, true {number(truth[i])}"
        + ("" if std is None else f", ± {number(2 * float(std[i]), 2)}")
        for i in keep
    ]
    if std is not None:
        rest.band(predicted[keep], -2 * std[keep], 2 * std[keep], "s0")
    clouds.dots(predicted[keep], truth[keep], "s0 cloud", tips=tips)
    rest.dots(predicted[keep], error[keep], "s0 cloud", tips=tips)
    r = (
        float(np.corrcoef(truth, predicted)[0, 1])
        if np.ptp(truth) and np.ptp(predicted)
        else np.nan
    )
    near = "" if not np.isfinite(r) else f" Correlation {number(r)}."
    some = keep[fewer(len(keep), 12)]
    table = {
        "heads": ["predicted", "true", "true − predicted"],
        "rows": [[number(predicted[i]), number(truth[i]), number(error[i])] for i in some],
    }
    quartiles = [number(float(q)) for q in np.quantile(error, [0.25, 0.5, 0.75])]
    band = "" if std is None else " The band is two predictive standard deviations to each side."
    return [
        {
            "title": f"Predicted against true{of}",
            "svg": clouds.render(f"True against predicted values{of}.{near}"),
            "caption": f"On the dashed line, predictions are right.{near}",
            "table": table,
        },
        {
            "title": f"Residuals{of}",
            "svg": rest.render(
                f"True minus predicted against predicted values{of}; quartiles "
                f"{', '.join(quartiles)}."
            ),
            "caption": f"Half of them are between {quartiles[0]} and {quartiles[2]}.{band}",
            "table": None,
        },
    ]
