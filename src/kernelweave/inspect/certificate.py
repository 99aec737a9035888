"""How good a fit is known to be, in numbers and in words: every text that says so is here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelweave.inspect.ranking import is_bayesian, split_fits
from kernelweave.inspect.words import KeyNumber, number, percent, plural


def is_zero(estimator: Any) -> bool:
    """Whether the objective of a fit cannot be told from zero in float64.

    Such is that of a regression whose targets are met exactly, or of a one-class problem around the
    origin.
    """
    size = max(abs(_sum(estimator, "objective_")), abs(_sum(estimator, "dual_objective_")))
    return size <= _sum(estimator, "objective_floor_")


def relative_bound(estimator: Any) -> float:
    """By which part of the best objective that of a fit may be above it; infinite if unknown.

    The best objective is between the dual and the primal one, so it is furthest away, and smallest,
    at the dual.
    """
    primal, dual = _sum(estimator, "objective_"), _sum(estimator, "dual_objective_")
    if primal <= dual:
        return 0.0
    return (primal - dual) / abs(dual) if primal * dual > 0 else np.inf


def bound_text(estimator: Any) -> str:
    """Say how near to the best possible the objective of a fit is proven to be.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> bound_text(SimpleNamespace(objective_=1.0, dual_objective_=0.9995))
    'the objective is proven to be within 0.05 % of the best possible'
    """
    if is_zero(estimator):
        return "the objective is zero as far as float64 can tell, and none can be lower"
    share = relative_bound(estimator)
    if not np.isfinite(share):
        return "nothing is proven yet about the best possible objective"
    return f"the objective is proven to be within {100 * share:.2g} % of the best possible"


def measure_of(estimator: Any) -> str:
    """Return what the gap of a convex fit is: of products of kernels no duality gap is known."""
    duality = getattr(estimator, "gap_kind_", "duality") == "duality"
    return "duality gap" if duality else "projected gradient"


def state_text(estimator: Any) -> str:
    """Return in a few words how the fit ended."""
    iterations = plural(int(np.max(estimator.n_iter_)), "iteration")
    if not hasattr(estimator, "converged_"):
        # The solver is not ours and has its own warning.
        return f"fitted in {iterations}"
    return f"{'converged' if estimator.converged_ else 'not converged'} after {iterations}"


def quality_lines(estimator: Any) -> list[tuple[str, str]]:
    """Return labels and texts of what is known of how good a fit is, for a summary."""
    if is_bayesian(estimator):
        bound, change = _bound(estimator)
        return [
            ("bound", f"{bound:.6g} (lower bound on the log evidence)"),
            ("change", f"{change:.1e} (a sample, tolerance {estimator.tol:.1e})"),
        ]
    if not hasattr(estimator, "gap_"):
        return []
    tolerance = f", tolerance {estimator.tol:.1e}" if hasattr(estimator, "tol") else ""
    duality = measure_of(estimator) == "duality gap"
    what = "relative" if duality else "relative projected gradient"
    of = _whose_objective(estimator).strip()
    return [
        ("objective", f"{_sum(estimator, 'objective_'):.6g}" + (f" ({of})" if of else "")),
        ("gap", f"{float(np.max(estimator.gap_)):.1e} ({what}{tolerance})"),
    ]


class Verdict(NamedTuple):
    """How a fit ended and what that proves: as a headline, in one line and in a paragraph."""

    headline: KeyNumber
    line: str
    paragraph: str


def verdict(estimator: Any) -> Verdict:
    """Say how far a fit is from the best one possible, and what proves it."""
    if not (is_bayesian(estimator) or hasattr(estimator, "gap_")):
        return Verdict(KeyNumber("Certificate", "none: a baseline"), "", "")
    done, tol = bool(estimator.converged_), float(estimator.tol)
    state = "good" if done else "bad"
    after = f"after {plural(int(np.max(estimator.n_iter_)), 'iteration')}"
    if is_bayesian(estimator):
        bound, change = _bound(estimator)
        text = "lower bound settled" if done else "stopped before the bound settled"
        end = "has settled" if done else "was still moving when the fit ended"
        return Verdict(
            KeyNumber("Inference", text, state=state),
            f"lower bound on the log evidence {bound:.6g}, which "
            f"{'has settled' if done else 'still rises'}",
            f"A Bayesian fit raises a lower bound on the log evidence of the data. It {end} "
            f"{after}: it is {number(bound, 6)}, and the last iteration changed it by "
            f"{number(change, 2)} a sample (tolerance {number(tol, 2)}). Between models of the "
            "same targets, the higher bound is the better one.",
        )
    asked = f"the tolerance {tol:.0e}" if tol else "what float64 can resolve"
    met = f"{estimator.gap_:.1e} {'reaches' if done else 'does not reach'} {asked}"
    if measure_of(estimator) != "duality gap":
        text = "stationary point" if done else "not yet stationary"
        end = "reached the tolerance" if done else "did not reach the tolerance"
        state = "plain" if done else "bad"
        return Verdict(
            KeyNumber("End", text, "not a proven optimum", state),
            f"relative projected gradient {met}: a stationary point, which may not be the best one",
            f"This combination of kernels has no duality gap. The fit {end} {after}: the relative "
            f"projected gradient is {number(float(estimator.gap_), 2)} (tolerance "
            f"{number(tol, 2)}). That makes it a stationary point, from which no small step leads "
            "down, and not a proven optimum.",
        )
    share = relative_bound(estimator)
    within = f"within {percent(share)} of the best"
    end = f"was reached {after}."
    if not done:
        end = f"was not reached: the fit ended {after}. More iterations or time would help."
    text = within if done else f"only {within}"
    primal, dual = float(estimator.objective_), float(estimator.dual_objective_)
    paragraph = (
        f"The objective {_whose_objective(estimator)}is {number(primal, 6)}, and the dual problem "
        "proves that no weights and no function have one below "
        f"{number(dual, 6)}: the fit is {within}. The tolerance of {percent(tol)} {end}"
    )
    if is_zero(estimator) or not np.isfinite(share):
        text = "an objective of zero" if is_zero(estimator) else "no bound found"
        paragraph = f"{after.capitalize()} {bound_text(estimator)}."
    small = f"proven by the dual problem, tolerance {percent(tol)}"
    line = f"gap {met}: {bound_text(estimator)}"
    return Verdict(KeyNumber("Certificate", text, small, state), line, paragraph)


def _whose_objective(estimator: Any) -> str:
    """What the objective is the objective of, if not of the targets given."""
    standardised = getattr(estimator, "target_scale", None) is not None
    return "of the standardised targets " if standardised else ""


def _bound(estimator: Any) -> tuple[float, float]:
    """The lower bound, and its change in the last iteration; of several fits the largest."""
    change = max(abs(records[-1].change) for records in split_fits(estimator.history_))
    return _sum(estimator, "lower_bound_"), change


def _sum(estimator: Any, name: str) -> float:
    return float(np.sum(getattr(estimator, name, 0.0)))
