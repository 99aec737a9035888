"""Weights and convergence of a fit side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelweave.describe.learnt import find_estimator, rank_kernels
from kernelweave.plot.gap_curve import convergence
from kernelweave.plot.kernel_weights import weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["fit_figure"]


def fit_figure(model: Any, top: int = 20) -> Figure:
    """Draw the weights and the convergence of a fitted model side by side.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, or a pipeline or search that ends in one
        Fitted.
    top : int, default=20
        How many kernels to show.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig("fit.png")``; a notebook shows it by itself.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import RBF, Linear
    >>> from kernelweave.plot import fit_figure
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> len(fit_figure(model).axes)
    2
    """
    from matplotlib.figure import Figure

    estimator = find_estimator(model)
    bars = min(top + 1, len(rank_kernels(estimator)))
    figure = Figure(figsize=(11.0, max(3.6, 1.0 + 0.27 * bars)), layout="constrained")
    left, right = figure.subplots(1, 2)
    weights(estimator, ax=left, top=top)
    convergence(estimator, ax=right)
    return figure
