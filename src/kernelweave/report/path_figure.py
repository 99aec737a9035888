"""The figure of a path under its first name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelweave.plot.c_path import path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_path"]


def plot_path(model: Any, top: int = 8, figure: Figure | None = None) -> Figure:
    """Draw the kernel weights along the path of C, and the cross-validated score below them.

    The same as :func:`kernelweave.plot.path`, which takes axes and returns them.

    Parameters
    ----------
    model : MKLClassifierCV, MKLRegressorCV, or a pipeline that ends in one
        Fitted.
    top : int, default=8
        How many kernels to draw in colour and name.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new one (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifierCV
    >>> from kernelweave.report import plot_path
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = plot_path(MKLClassifierCV(Cs=4, cv=3).fit(X, y))
    >>> [ax.get_xscale() for ax in figure.axes]
    ['log', 'log']
    """
    if figure is None:
        return path(model, top=top)[0].figure
    panels = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0])
    return path(model, panels, top)[0].figure
