"""A map of which kernels say the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.inspect.alignment import Alignment, kernel_alignment
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import BLACK, GREY, Axes, colour_bar, heat_map, new_axes
from kernelweave.plot.svg import with_tips

# Up to so many kernels the numbers are written into the map, and so many have a name.
_WITH_NUMBERS = 12
_WITH_NAMES = 60
# Only rounding puts positive semi-definite kernels below zero.
_ROUNDING = 1e-6


def alignment(model: Any, ax: Axes | None = None) -> Axes:
    """Draw how much every two kernels resemble each other, those alike side by side.

    Parameters
    ----------
    model : fitted estimator, pipeline, search, or Alignment
        What :func:`~kernelweave.inspect.kernel_alignment` takes (its kernels with a
        weight, at most the 30 heaviest), or what it returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.axes.Axes
        A square for each pair, the darker the more alike. The order is that of a tree of
        similar kernels. A kernel that is constant is hatched: it has no alignment. Numbers are
        written in up to 12 kernels, names up to 60.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier, plot
    >>> from kernelweave.kernels import RBF, Linear
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)], regularizer="lp_ball").fit(X, y)
    >>> [label.get_text() for label in plot.alignment(model).get_yticklabels()]
    ['linear', 'rbf(width=1)']
    """
    from matplotlib.patches import Rectangle

    found = model if isinstance(model, Alignment) else kernel_alignment(model)
    order = found.order()
    values = found.values[np.ix_(order, order)]
    names = [shorten(found.names[k], 36) for k in order]
    count = len(names)
    if ax is None:
        side = float(np.clip(0.34 * count, 1.9, 7.0))
        room = 0.075 * max((len(name) for name in names), default=0) if count <= _WITH_NAMES else 0
        ax = new_axes(side + room + 1.2, side + 0.55 * room + 0.6)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if not count:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_title("no kernel has a weight", fontsize=11)
        return ax
    signed = bool(np.nanmin(values, initial=0.0) < -_ROUNDING)
    edges = np.arange(count + 1) - 0.5
    image = heat_map(ax, edges, np.ma.masked_invalid(values), signed, most=1.0)
    ax.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), aspect="equal")
    full = [shorten(found.names[k], 90) for k in order]
    texts = (f"{a}\n{b}" for a in full for b in full)
    values_of = zip(texts, values.ravel(), strict=True)
    with_tips(image, [f"{pair}\nalignment {value:.2f}" for pair, value in values_of])
    for i, j in np.argwhere(np.isnan(values)):
        # These pairs have no alignment.
        how: Any = {"fc": "#f2f2f2", "ec": GREY, "lw": 0, "hatch": "////"}
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **how))
    if count <= _WITH_NUMBERS:
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=BLACK)
    named = np.arange(count if count <= _WITH_NAMES else 0)
    small: Any = {"fontsize": 8 if count <= 30 else 6}
    ax.set_yticks(named, names[: len(named)], **small)
    ax.set_xticks(
        named, names[: len(named)], rotation=45, ha="right", rotation_mode="anchor", **small
    )
    if not len(named):
        ax.set_ylabel(f"{count} kernels")
    title = f"alignment on {found.n_samples} samples"
    if found.n_left_out:
        title += f", {found.n_left_out} lighter kernels left out"
    ax.set_title(title, fontsize=11)
    colour_bar(ax, image, shrink=0.8, aspect=18, pad=0.03)
    return ax
