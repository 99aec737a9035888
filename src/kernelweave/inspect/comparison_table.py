"""What a comparison of solvers found: a row for each, as text, numbers or a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernelweave.inspect.tables import table_of, text_table
from kernelweave.inspect.words import number, plural


class SolverFit(NamedTuple):
    """One fit of one solver on one split.

    Attributes
    ----------
    split : int
    score : float
        On the samples held out.
    seconds, predict_seconds : float
        Of the fit, and of predicting all samples held out.
    gap : float or None
        Of the certificate; None where it would not be one to the optimum of the problem.
    kernels : int
        How many have a weight.
    objective : float or None
        Of the problem, where the solver solves it.
    converged : bool
    """

    split: int
    score: float
    seconds: float
    predict_seconds: float
    gap: float | None
    kernels: int
    objective: float | None
    converged: bool


def _over_fits(what: str, how: Callable[[Any], Any], doc: str) -> Any:
    """A property of a row: what its fits have of it, taken together; None if they have none."""

    def taken_together(row: ComparisonRow) -> Any:
        known = [value for fit in row.fits if (value := getattr(fit, what)) is not None]
        return how(known).item() if known else None

    return property(taken_together, doc=doc)


@dataclass(frozen=True)
class ComparisonRow:
    """One solver: its fits, and what they say together.

    Attributes
    ----------
    solver : str
    fits : tuple of SolverFit
        Those that were done, one for each split.
    error : str or None
        Why there are not more of them.
    """

    solver: str
    fits: tuple[SolverFit, ...]
    error: str | None = None

    score = _over_fits("score", np.mean, "The mean score.")
    score_std = _over_fits("score", np.std, "The standard deviation of the scores.")
    seconds = _over_fits("seconds", np.median, "Seconds of a fit, the median.")
    predict_seconds = _over_fits(
        "predict_seconds", np.median, "Seconds of predicting the samples held out, the median."
    )
    gap = _over_fits("gap", np.max, "The largest relative duality gap.")
    kernels = _over_fits("kernels", np.mean, "Kernels with a weight, the mean.")
    objective = _over_fits("objective", np.mean, "The objective, the mean.")
    converged = _over_fits("converged", np.all, "Whether all fits reached their tolerance.")

    @property
    def scores(self) -> list[float]:
        """The score on each split."""
        return [fit.score for fit in self.fits]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the row, for JSON; what there is not is None."""
        names = ["solver", "score", "score_std", "scores", "seconds", "predict_seconds", "gap"]
        names += ["kernels", "objective", "converged", "error"]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


@dataclass(frozen=True, repr=False)
class Comparison:
    """Solvers on the same splits of the same data, as :func:`kernelweave.compare` returns them.

    Attributes
    ----------
    rows : list of ComparisonRow
        One for each solver, in the order asked for.
    metric : {"accuracy", "R2"}
        What the scores are.
    n_splits, n_train, n_test : int
        How often the samples were split, and into how many.
    n_kernels : int or None
        How many kernels there are; None if nothing was fitted.
    settings : dict of str to str
        What all solvers share: C, loss, regularizer, tolerance, where the estimator has them.
    notes : list of str
        What to know when reading it.
    interrupted : bool
        Whether it was stopped from the keyboard.

    Examples
    --------
    >>> fit = SolverFit(0, 0.95, 0.02, 0.001, 4e-4, 3, 12.5, True)
    >>> rows = [ComparisonRow("silp", (fit,)), ComparisonRow("spicy", (), "no such loss")]
    >>> print(Comparison(rows, "accuracy", 1, 70, 30, 7))
    2 solvers, 1 split: 70 samples to learn from, 30 held out, 7 kernels
    solver  accuracy  seconds  predict      gap  kernels  objective  converged
    silp       0.950     0.02    0.001  4.0e-04        3       12.5        yes
    spicy   no such loss
    """

    rows: list[ComparisonRow]
    metric: str
    n_splits: int
    n_train: int
    n_test: int
    n_kernels: int | None = None
    settings: dict[str, str] | None = None
    notes: Sequence[str] = ()
    interrupted: bool = False

    @property
    def title(self) -> str:
        """What was compared, in one line."""
        kernels = "" if self.n_kernels is None else f", {plural(self.n_kernels, 'kernel')}"
        return (
            f"{plural(len(self.rows), 'solver')}, {plural(self.n_splits, 'split')}: "
            f"{self.n_train} samples to learn from, {self.n_test} held out{kernels}"
        )

    def table(self) -> str:
        """Return the comparison as text: a line for each solver, and notes below."""
        heads = ["solver", self.metric, "seconds", "predict", "gap", "kernels", "objective"]
        shown = [self.title]
        if self.settings:
            shown.append(", ".join(f"{name} {value}" for name, value in self.settings.items()))
        shown += text_table([*heads, "converged"], [*map(_cells, self.rows)])
        return "\n".join([*shown, *(f"* {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and text, ready for JSON."""
        lists = {"rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}
        return {**vars(self), **lists, "settings": dict(self.settings or {})}

    def to_frame(self) -> Any:
        """Return a table with one row for each solver: pandas where installed, else polars."""
        rows = [row.to_dict() for row in self.rows]
        return table_of({name: [row[name] for row in rows] for name in rows[0]}, ["solver"])

    def plot(self, ax: Any = None) -> Any:
        """Draw scores, times and kernels kept; see :func:`kernelweave.plot.compare`."""
        from kernelweave import plot

        return plot.compare(self, ax=ax)

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__


def _cells(row: ComparisonRow) -> list[str]:
    if not row.fits:
        return [row.solver, row.error or "not run"]
    spread = f" +- {row.score_std:.3f}" if len(row.fits) > 1 else ""
    return [
        row.solver,
        f"{row.score:.3f}{spread}",
        number(max(row.seconds, 1e-4), 2),
        number(max(row.predict_seconds, 1e-4), 2),
        "-" if row.gap is None else f"{row.gap:.1e}",
        f"{row.kernels:.1f}".removesuffix(".0"),
        "-" if row.objective is None else f"{row.objective:.5g}",
        "yes" if row.converged else "no",
    ]
