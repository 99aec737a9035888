"""Where a decision value comes from: a step for each kernel."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.explanation import Explanation
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    Axes,
    bars,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    write,
)

# Numbers are written over the line at zero.
_OVER_ZERO: Any = {"bbox": {"fc": "white", "ec": "none", "pad": 0.5}, "zorder": 3}
# Room for them on the right, as a share of the width.
_FOR_NUMBERS = 0.14


def contributions(
    explanation: Explanation,
    sample: int | None = 0,
    ax: Axes | None = None,
    top: int = 12,
    *,
    output: int | str | None = None,
) -> Axes:
    """Draw how the kernels add up to a decision value, or how much each matters over all samples.

    Parameters
    ----------
    explanation : Explanation
        What ``model.explain(X)`` returned, or a grouped one such as
        ``model.explain(X).by("view")``.
    sample : int or None, default=0
        Which of its samples; None for the mean size of the contributions over all of them.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    top : int, default=12
        How many kernels to show, those that add most; the others become one step.
    output : int or str, optional
        Which of several decision values (classes, outputs), by number or name. By default the
        largest one of the sample; without a sample, their mean.

    Returns
    -------
    matplotlib.axes.Axes
        For one sample steps from the intercept to the decision value, one below the other: steps
        up are blue, steps down vermillion and hatched. For all samples bars.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier, plot
    >>> from kernelweave.kernels import RBF, Linear
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)], regularizer="lp_ball").fit(X, y)
    >>> ax = plot.contributions(model.explain(X[:3]), sample=1)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['intercept', 'rbf(width=1)', 'linear', 'decision value']
    """
    check_top(top)
    n, several = len(explanation), explanation.values.ndim == 3
    if sample is None:
        which = explanation.place_of(output) if several and output is not None else None
        chosen = explanation.values if which is None else explanation.values[:, which]
        steps = np.abs(chosen).reshape(-1, chosen.shape[-1]).mean(axis=0)
        title = f"{n} sample{'' if n == 1 else 's'}"
    else:
        if not isinstance(sample, Integral) or not -n <= sample < n:
            raise InvalidInputError(
                f"sample must be None or a number from 0 to {n - 1}; got {sample!r}."
            )
        steps, baseline, _, which = explanation.parts_of(sample, output)
        title = f"sample {explanation.samples[sample % n]}"
    if several and which is not None:
        title += f", {explanation.outputs[which]}"
    order = np.argsort(-np.abs(steps), kind="stable")
    # One step for a single kernel more says less than the kernel itself.
    top = top + 1 if len(order) == top + 1 else top
    labels = [shorten(explanation.kernel_names[k]) for k in order[:top]]
    sizes = list(steps[order[:top]])
    if len(order) > top:
        labels.append(f"{len(order) - top} more together")
        sizes.append(steps[order[top:]].sum())
    if sample is None:
        ax = ax or new_axes(6.4, max(1.8, 0.9 + 0.27 * len(labels)))
        colours = [BLUE if row < top else GREY for row in range(len(sizes))]
        bars(ax, labels, sizes, [f"{size:.3f}" for size in sizes], colours, **_OVER_ZERO)
        ax.set_xlim(0.0, (1.0 + _FOR_NUMBERS) * (max(sizes, default=0.0) or 1.0))
        ax.set_xlabel("mean size of the contribution")
    else:
        labels = ["intercept", *labels, "decision value"]
        ax = ax or new_axes(6.8, max(1.8, 1.0 + 0.27 * len(labels)))
        _draw_steps(ax, [baseline, *sizes])
        rows_with_names(ax, labels)
        ax.set_xlabel("decision value")
    ax.set_title(title, fontsize=11)
    tidy(ax)
    ax.spines["left"].set_visible(False)
    return ax


def _draw_steps(ax: Axes, steps: list[float]) -> None:
    """Draw each step from where the one before ended, and below them their sum from zero."""
    ends = np.cumsum(steps)
    low, high = min(0.0, *ends), max(0.0, *ends)
    starts = [0.0, *ends[:-1], 0.0]
    for row, (start, size) in enumerate(zip(starts, [*steps, ends[-1]], strict=True)):
        own = 0 < row < len(steps)
        colour = (VERMILLION if size < 0 else BLUE) if own else GREY
        hatch = "////" if own and size < 0 else None
        how: Any = {"height": 0.66, "edgecolor": "white", "lw": 0, "hatch": hatch}
        ax.barh(row, size, left=start, color=colour, **how)
        end = start + size
        if row < len(steps):
            ax.plot([end, end], [row - 0.33, row + 1.33], color=GREY, lw=0.7, zorder=0.8)
        text = f"{size:+.3f}" if own else f"{size:.3f}"
        write(ax, text, (max(start, end), row), (4, 0), **_OVER_ZERO)
    ax.axvline(0.0, color=BLACK, lw=0.8, zorder=0.5)
    width = high - low or 1.0
    ax.set_xlim(low - 0.03 * width, high + _FOR_NUMBERS * width)
