"""How good a model is on samples it has not seen, beside what guessing would give."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mean_absolute_error, r2_score

__all__ = ["Scores", "score"]


class Scores(NamedTuple):
    """Numbers by name, and a line that says them."""

    numbers: dict[str, float]
    text: str


def score(predicted: NDArray[Any], y: NDArray[Any] | None, y_train: NDArray[Any] | None) -> Scores:
    """Compare predictions with the truth, and that with a guess from the training targets.

    There are no targets in outlier detection.
    """
    n = len(predicted)
    if y is None or y_train is None:
        outside = int(np.sum(predicted == -1))
        return Scores(
            {"samples": n, "outside": outside / n},
            f"{100 * outside / n:.1f} % of {n:,} samples are called outliers ({outside:,})",
        )
    if y.dtype.kind == "f":
        r2 = float(r2_score(y, predicted, force_finite=False)) if np.ptp(y) > 0 else float("nan")
        absolute = float(mean_absolute_error(y, predicted))
        guess = float(np.mean(np.abs(y - np.median(y_train))))
        return Scores(
            {"samples": n, "r2": r2, "mean_absolute_error": absolute, "guess": guess},
            f"R2 {r2:.3f}; errors of {absolute:.4g} on average over {n:,} samples (the median "
            f"alone: {guess:.4g})",
        )
    right = int(np.sum(predicted == y))
    classes, counts = np.unique(y_train, return_counts=True)
    guess = float(np.mean(y == classes[counts.argmax()]))
    return Scores(
        {"samples": n, "accuracy": right / n, "guess": guess},
        f"{100 * right / n:.1f} % right ({right:,} of {n:,}; the commonest class alone gives "
        f"{100 * guess:.1f} %)",
    )
