"""Where a decision value comes from: a step for each kernel."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from kernelweave.arrays import Index
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    GREY,
    VERMILLION,
    Axes,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    write,
)
from kernelweave.problem import Array
from kernelweave.validation import unknown_name

__all__ = ["contributions"]

# Numbers are written over the line at zero.
_OVER_ZERO: Any = {"bbox": {"fc": "white", "ec": "none", "pad": 0.5}, "zorder": 3}


def contributions(
    explanation: Any,
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
    values = np.asarray(explanation.values, dtype=float)
    # An axis for the decision values, also where there is one only.
    values = values[:, None, :] if values.ndim == 2 else values
    which = _output(explanation, values.shape[1], output)
    if sample is None:
        chosen = slice(None) if which is None else slice(which, which + 1)
        sizes = np.abs(values[:, chosen]).mean(axis=(0, 1))
        return _draw_sizes(ax, explanation, sizes, top, which)
    n = len(values)
    if not isinstance(sample, Integral) or not -n <= sample < n:
        raise InvalidInputError(
            f"sample must be None or a number from 0 to {n - 1}; got {sample!r}."
        )
    place = int(sample) % n
    decisions = np.atleast_1d(np.asarray(explanation.decision, dtype=float)[place])
    which = int(decisions.argmax()) if which is None else which
    baseline = np.broadcast_to(explanation.baseline, decisions.shape)[which]
    steps = values[place, which]
    title = f"sample {_name(explanation, 'samples', place)}"
    if len(decisions) > 1:
        title += f", {_name(explanation, 'outputs', which)}"
    return _draw_steps(ax, explanation.kernel_names, steps, float(baseline), top, title)


def _output(explanation: Any, count: int, output: Any) -> int | None:
    """The number of the decision value asked for."""
    if output is None:
        return 0 if count == 1 else None
    names = [_name(explanation, "outputs", t) for t in range(count)]
    if isinstance(output, Integral) and 0 <= int(output) < count:
        return int(output)
    if str(output) not in names:
        raise unknown_name("output", output, names)
    return names.index(str(output))


def _name(explanation: Any, what: str, place: int) -> str:
    names = getattr(explanation, what, ())
    return str(names[place]) if len(names) > place else str(place)


def _split(sizes: Array, top: int) -> tuple[Index, Index]:
    """The largest, and the others."""
    order = np.argsort(-np.abs(sizes), kind="stable")
    # One step for a single kernel more says less than the kernel itself.
    top = top + 1 if len(order) == top + 1 else top
    return order[:top], order[top:]


def _draw_steps(
    ax: Axes | None, names: Any, steps: Array, baseline: float, top: int, title: str
) -> Axes:
    shown, rest = _split(steps, top)
    labels = ["intercept", *(shorten(str(names[k])) for k in shown)]
    sizes = [baseline, *steps[shown]]
    if len(rest):
        labels.append(f"{len(rest)} more together")
        sizes.append(steps[rest].sum())
    ends = np.cumsum(sizes)
    starts = ends - sizes
    total = baseline + float(steps.sum())
    labels.append("decision value")
    ax = ax or new_axes(6.8, max(1.8, 1.0 + 0.27 * len(labels)))
    last = len(labels) - 1
    for row, (start, size) in enumerate(zip([*starts, 0.0], [*sizes, total], strict=True)):
        down = size < 0
        own = row not in (0, last)
        colour = (VERMILLION if down else BLUE) if own else GREY
        drawn = ax.barh(row, size, left=start, height=0.66, color=colour, edgecolor="white", lw=0)
        if down and own:
            drawn[0].set_hatch("////")
        end = start + size
        if row < last:
            ax.plot([end, end], [row - 0.33, row + 1.33], color=GREY, lw=0.7, zorder=0.8)
        text = f"{size:+.3f}" if own else f"{size:.3f}"
        write(ax, text, (max(start, end), row), (4, 0), **_OVER_ZERO)
    ax.axvline(0.0, color=BLACK, lw=0.8, zorder=0.5)
    _keep_room(ax, min(0.0, *ends), max(0.0, *ends))
    ax.set_xlabel("decision value")
    return _finish(ax, labels, title)


def _draw_sizes(
    ax: Axes | None, explanation: Any, sizes: Array, top: int, which: int | None
) -> Axes:
    shown, rest = _split(sizes, top)
    labels = [shorten(str(explanation.kernel_names[k])) for k in shown]
    colours = [BLUE] * len(shown)
    lengths = list(sizes[shown])
    if len(rest):
        labels.append(f"{len(rest)} more together")
        lengths.append(sizes[rest].sum())
        colours.append(GREY)
    ax = ax or new_axes(6.4, max(1.8, 0.9 + 0.27 * len(labels)))
    ax.barh(np.arange(len(labels)), lengths, color=colours, height=0.72)
    for row, length in enumerate(lengths):
        write(ax, f"{length:.3f}", (length, row), (4, 0), **_OVER_ZERO)
    _keep_room(ax, 0.0, max(lengths, default=0.0))
    ax.set_xlim(left=0)
    ax.set_xlabel("mean size of the contribution")
    count = len(explanation.values)
    title = f"{count} sample{'' if count == 1 else 's'}"
    if which is not None and np.ndim(explanation.values) == 3:
        title += f", {_name(explanation, 'outputs', which)}"
    return _finish(ax, labels, title)


def _keep_room(ax: Axes, low: float, high: float) -> None:
    """Leave room for the numbers on the right."""
    width = high - low or 1.0
    ax.set_xlim(low - 0.03 * width, high + 0.14 * width)


def _finish(ax: Axes, labels: list[str], title: str) -> Axes:
    rows_with_names(ax, labels)
    ax.set_title(title, fontsize=11)
    tidy(ax)
    ax.spines["left"].set_visible(False)
    return ax
