"""What a comparison of solvers found: a row for each, as text, numbers or a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernelweave.inspect.frames import table_of
from kernelweave.inspect.words import two_digits

__all__ = ["Comparison", "ComparisonRow", "SolverFit"]

_NONE = "-"


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

    @property
    def scores(self) -> list[float]:
        """The score on each split."""
        return [fit.score for fit in self.fits]

    @property
    def score(self) -> float | None:
        """Their mean."""
        return float(np.mean(self.scores)) if self.fits else None

    @property
    def score_std(self) -> float | None:
        """Their standard deviation."""
        return float(np.std(self.scores)) if self.fits else None

    @property
    def seconds(self) -> float | None:
        """Seconds of a fit, the median."""
        return self._over(np.median, [fit.seconds for fit in self.fits])

    @property
    def predict_seconds(self) -> float | None:
        """Seconds of predicting the samples held out, the median."""
        return self._over(np.median, [fit.predict_seconds for fit in self.fits])

    @property
    def gap(self) -> float | None:
        """The largest relative duality gap."""
        return self._over(np.max, [fit.gap for fit in self.fits])

    @property
    def kernels(self) -> float | None:
        """Kernels with a weight, the mean."""
        return self._over(np.mean, [fit.kernels for fit in self.fits])

    @property
    def objective(self) -> float | None:
        """The objective, the mean."""
        return self._over(np.mean, [fit.objective for fit in self.fits])

    @property
    def converged(self) -> bool | None:
        """Whether all fits reached their tolerance."""
        return all(fit.converged for fit in self.fits) if self.fits else None

    @staticmethod
    def _over(how: Callable[[Any], Any], values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(how(known)) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the row, for JSON; what there is not is None."""
        numbers = (
            "score",
            "score_std",
            "scores",
            "seconds",
            "predict_seconds",
            "gap",
            "kernels",
            "objective",
            "converged",
            "error",
        )
        return {"solver": self.solver, **{name: _plain(getattr(self, name)) for name in numbers}}


def _plain(value: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return [_plain(v) for v in value] if isinstance(value, list) else value


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
    silp       0.950    0.020   0.0010  4.0e-04        3       12.5        yes
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
        kernels = "" if self.n_kernels is None else f", {_counted(self.n_kernels, 'kernel')}"
        return (
            f"{_counted(len(self.rows), 'solver')}, {_counted(self.n_splits, 'split')}: "
            f"{self.n_train} samples to learn from, {self.n_test} held out{kernels}"
        )

    def table(self) -> str:
        """Return the comparison as text: a line for each solver, and notes below."""
        header = [
            "solver",
            self.metric,
            "seconds",
            "predict",
            "gap",
            "kernels",
            "objective",
            "converged",
        ]
        lines = [header, *(self._cells(row) for row in self.rows)]
        width = [max(len(line[j]) for line in lines if len(line) > j) for j in range(len(header))]
        # The text of an error may run on under the other columns.
        width[1] = max(len(line[1]) for line in lines if len(line) > 2)
        shown = [self.title]
        if self.settings:
            shown.append(", ".join(f"{name} {value}" for name, value in self.settings.items()))
        for line in lines:
            if len(line) == 2:
                shown.append(f"{line[0]:<{width[0]}}  {line[1]}")
                continue
            cells = [f"{cell:>{w}}" for cell, w in zip(line[1:], width[1:], strict=True)]
            shown.append("  ".join([f"{line[0]:<{width[0]}}", *cells]))
        return "\n".join([*shown, *(f"* {note}" for note in self.notes)])

    def _cells(self, row: ComparisonRow) -> list[str]:
        if row.score is None:
            return [row.solver, row.error or "not run"]
        spread = f" +- {row.score_std:.3f}" if len(row.fits) > 1 else ""
        return [
            row.solver,
            f"{row.score:.3f}{spread}",
            _time(row.seconds),
            _time(row.predict_seconds),
            _NONE if row.gap is None else f"{row.gap:.1e}",
            _NONE if row.kernels is None else f"{row.kernels:.1f}".removesuffix(".0"),
            _NONE if row.objective is None else f"{row.objective:.5g}",
            "yes" if row.converged else "no",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and text, ready for JSON."""
        return {
            "metric": self.metric,
            "n_splits": self.n_splits,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "n_kernels": self.n_kernels,
            "settings": dict(self.settings or {}),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
            "interrupted": self.interrupted,
        }

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


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _time(seconds: float | None) -> str:
    return _NONE if seconds is None else two_digits(seconds)
