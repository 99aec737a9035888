"""How good a fit is known to be, in numbers and in words: every text that says so is here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernelweave.inspect.ranking import is_bayesian, split_fits
from kernelweave.inspect.words import KeyNumber, number, percent, plural


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
    primal, dual = _sum(estimator, "objective_"), _sum(estimator, "dual_objective_")
    # The best objective is between the two, so it is furthest away, and smallest, at the dual.
    share = (primal - dual) / abs(dual) if primal * dual > 0 else np.inf
    share = share if primal > dual else 0.0
    within = f"within {percent(share)} of the best"
    small, paragraph = f"proven by the dual problem, tolerance {percent(tol)}", ""
    # Such is the objective of a regression whose targets are met exactly, or of a one-class problem
    # around the origin.
    if max(abs(primal), abs(dual)) <= _sum(estimator, "objective_floor_"):
        text = "an objective of zero"
        known = "the objective is zero as far as float64 can tell, and none can be lower"
    elif not np.isfinite(share):
        text, known = "no bound found", "nothing is proven yet about the best possible objective"
    else:
        text = within if done else f"only {within}"
        known = f"the objective is proven to be within {100 * share:.2g} % of the best possible"
        end = f"was reached {after}."
        if not done:
            end = f"was not reached: the fit ended {after}. More iterations or time would help."
        paragraph = (
            f"The objective {_whose_objective(estimator)}is {number(primal, 6)}, and the dual "
            f"problem proves that no weights and no function have one below {number(dual, 6)}: the "
            f"fit is {within}. The tolerance of {percent(tol)} {end}"
        )
    headline = KeyNumber("Certificate", text, small, state)
    return Verdict(headline, f"gap {met}: {known}", paragraph or f"{after.capitalize()} {known}.")


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
