"""How the fit went: the gap on its way to the tolerance, and what it proves."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.describe.certificate import bound_text, is_zero, relative_bound
from kernelweave.describe.learnt import is_bayesian, objective_of, split_fits
from kernelweave.report.html.svg import SERIES, Axis, Chart, fewer
from kernelweave.report.html.words import number, percent, plural, seconds

__all__ = ["course_section", "proven", "solving_seconds"]

# Of more points than these a line shows more than dots do.
_DOTS = 60


def solving_seconds(estimator: Any) -> float | None:
    """Seconds of all fits, one or one for each class; None where no time was taken."""
    history = getattr(estimator, "history_", None)
    return sum(own[-1].seconds for own in split_fits(history)) if history else None


def proven(estimator: Any) -> dict[str, str]:
    """What is known about how good the fit is: a badge with its words.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> fit = SimpleNamespace(gap_=2e-4, objective_=1.0, dual_objective_=0.9998, converged_=True)
    >>> proven(fit)["text"]
    'within 0.02 % of the best'
    """
    if is_bayesian(estimator):
        if estimator.converged_:
            return {"state": "good", "text": "lower bound settled", "head": "Inference"}
        return {"state": "bad", "text": "stopped before the bound settled", "head": "Inference"}
    if not hasattr(estimator, "gap_"):
        return {"state": "plain", "text": "none: a baseline", "head": "Certificate"}
    if getattr(estimator, "gap_kind_", "duality") != "duality":
        text = "stationary point" if estimator.converged_ else "not yet stationary"
        return {"state": "plain" if estimator.converged_ else "bad", "text": text, "head": "End"}
    share = relative_bound(estimator)
    text = f"within {percent(share)} of the best" if np.isfinite(share) else "no bound found"
    if is_zero(estimator):
        text = "an objective of zero"
    elif not estimator.converged_ and np.isfinite(share):
        text = f"only {text}"
    return {"state": "good" if estimator.converged_ else "bad", "text": text, "head": "Certificate"}


def course_section(estimator: Any) -> dict[str, Any] | None:
    """Gap or bound against time, and the kernels in use."""
    history = getattr(estimator, "history_", None)
    if not history:
        return None
    fits = split_fits(history)
    bayesian = is_bayesian(estimator)
    blocks = [_bound_figure(fits) if bayesian else _gap_figure(estimator, fits)]
    if len(history) > 2:
        blocks.append(_kernels_figure(fits))
    return {
        "id": "fit",
        "title": "How the fit went",
        "lead": _bound_lead(estimator, fits) if bayesian else _gap_lead(estimator),
        "blocks": [{"kind": "figures", "figures": blocks}],
    }


def _gap_lead(estimator: Any) -> str:
    gap, tol = float(estimator.gap_), float(getattr(estimator, "tol", np.nan))
    n = int(np.max(estimator.n_iter_))
    after = f"after {plural(n, 'iteration')}"
    if getattr(estimator, "gap_kind_", "duality") != "duality":
        end = "reached the tolerance" if estimator.converged_ else "did not reach the tolerance"
        return (
            f"This combination of kernels has no duality gap. The fit {end} {after}: the relative "
            f"projected gradient is {number(gap, 2)} (tolerance {number(tol, 2)}). That makes it a "
            "stationary point, from which no small step leads down, and not a proven optimum."
        )
    share = relative_bound(estimator)
    if is_zero(estimator) or not np.isfinite(share):
        return f"{after.capitalize()} {bound_text(estimator)}."
    objective = " ".join(["The objective", objective_of(estimator)]).strip()
    bound = (
        f"{objective} is {number(float(estimator.objective_), 6)}, and the dual problem proves "
        f"that no weights and no function have one below "
        f"{number(float(estimator.dual_objective_), 6)}: the fit is within {percent(share)} of the "
        "best."
    )
    if estimator.converged_:
        return f"{bound} The tolerance of {percent(tol)} was reached {after}."
    return (
        f"{bound} The tolerance of {percent(tol)} was not reached: the fit ended {after}. More "
        "iterations or time would make it better."
    )


def _gap_figure(estimator: Any, fits: list[list[Any]]) -> dict[str, Any]:
    duality = getattr(estimator, "gap_kind_", "duality") == "duality"
    what = "duality gap" if duality else "projected gradient"
    every = [max(r.gap, np.finfo(float).eps) for own in fits for r in own if np.isfinite(r.gap)]
    tol = getattr(estimator, "tol", None)
    longest = max(own[-1].seconds for own in fits)
    chart = Chart(
        Axis.around([0.0, longest or 1e-3], "seconds of solving", zero=True),
        Axis.around([*every, *([tol] if tol else [])], f"relative {what}", log=True),
    )
    rows = []
    for i, own in enumerate(fits[:SERIES]):
        known = [r for r in own if np.isfinite(r.gap)]
        gaps = np.maximum([r.gap for r in known], np.finfo(float).eps)
        times = np.array([r.seconds for r in known])
        keep = fewer(len(known))
        if not len(keep):
            continue
        # A fit keeps its best point: this is what it would return if it stopped here.
        best = np.minimum.accumulate(gaps) if duality else gaps
        tips = [
            f"iteration {known[j].iteration}, {seconds(times[j])}: {number(gaps[j], 2)}"
            for j in keep
        ]
        chart.line(times[keep], best[keep], f"s{i}", steps=duality)
        chart.dots(times[keep], gaps[keep], f"s{i} cloud", tips=tips, radius=2.4)
        rows += [
            [known[j].iteration, seconds(times[j]), number(gaps[j], 2), known[j].active_kernels]
            for j in keep[fewer(len(keep), 12)]
        ]
    if tol:
        chart.rule(y=float(tol), text=f"tolerance {number(float(tol), 2)}")
    last = number(float(estimator.gap_), 2)
    several = f" One line for each of {len(fits)} fits." if len(fits) > 1 else ""
    return {
        "title": f"Relative {what} against time",
        "svg": chart.render(f"Relative {what} against seconds of solving; it ends at {last}."),
        "caption": (
            "Dots are single iterations; the line is the best so far."
            if duality
            else "Dots are single iterations. The gradient need not fall at every step."
        )
        + several,
        "table": {"heads": ["iteration", "time", what, "kernels"], "rows": rows},
    }


def _kernels_figure(fits: list[list[Any]]) -> dict[str, Any]:
    most = max(r.active_kernels for own in fits for r in own)
    longest = max(own[-1].seconds for own in fits)
    chart = Chart(
        Axis.around([0.0, longest or 1e-3], "seconds of solving", zero=True),
        Axis.around([0.0, most], "kernels in use", zero=True),
    )
    for i, own in enumerate(fits[:SERIES]):
        keep = fewer(len(own))
        times = [own[j].seconds for j in keep]
        used = [own[j].active_kernels for j in keep]
        chart.line(times, used, f"s{i}", steps=True)
        tips = [f"{seconds(t)}: {plural(u, 'kernel')}" for t, u in zip(times, used, strict=True)]
        if len(own) <= _DOTS:
            chart.dots(times, used, f"s{i}", tips=tips, radius=2.2)
    first, last = fits[0][0].active_kernels, fits[-1][-1].active_kernels
    return {
        "title": "Kernels in use",
        "svg": chart.render(f"Kernels with a weight against seconds: from {first} to {last}."),
        "caption": f"How many kernels had a weight: {first} at first, {last} at the end.",
        "table": None,
    }


def _bound_lead(estimator: Any, fits: list[list[Any]]) -> str:
    change = max(abs(own[-1].change) for own in fits)
    end = "has settled" if estimator.converged_ else "was still moving when the fit ended"
    return (
        "A Bayesian fit raises a lower bound on the log evidence of the data. It "
        f"{end} after {plural(int(np.max(estimator.n_iter_)), 'iteration')}: it is "
        f"{number(float(np.sum(estimator.lower_bound_)), 6)}, and the last iteration changed it by "
        f"{number(change, 2)} a sample (tolerance {number(float(estimator.tol), 2)}). Between "
        "models of the same targets, the higher bound is the better one."
    )


def _bound_figure(fits: list[list[Any]]) -> dict[str, Any]:
    every = [r.lower_bound for own in fits for r in own if np.isfinite(r.lower_bound)]
    longest = max(own[-1].seconds for own in fits)
    chart = Chart(
        Axis.around([0.0, longest or 1e-3], "seconds of solving", zero=True),
        Axis.around(every, "lower bound on the log evidence"),
    )
    rows = []
    for i, own in enumerate(fits[:SERIES]):
        keep = fewer(len(own))
        times = [own[j].seconds for j in keep]
        bounds = [own[j].lower_bound for j in keep]
        tips = [
            f"iteration {own[j].iteration}, {seconds(own[j].seconds)}: "
            f"{number(own[j].lower_bound, 5)}"
            for j in keep
        ]
        chart.line(times, bounds, f"s{i}")
        chart.dots(times, bounds, f"s{i}", tips=tips, radius=2.2)
        rows += [
            [own[j].iteration, seconds(own[j].seconds), number(own[j].lower_bound, 6)]
            for j in keep[fewer(len(keep), 12)]
        ]
    several = f" One line for each of {len(fits)} fits." if len(fits) > 1 else ""
    return {
        "title": "Lower bound against time",
        "svg": chart.render(
            f"Lower bound on the log evidence against seconds; it ends at {number(every[-1], 6)}."
        ),
        "caption": "Every update raises the bound." + several,
        "table": {"heads": ["iteration", "time", "lower bound"], "rows": rows},
    }
