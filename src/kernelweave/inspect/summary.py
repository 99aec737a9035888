"""A fitted model in a few lines: as plain text, and as HTML for a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import estimator_html_repr

from kernelweave.errors import visible
from kernelweave.inspect.certificate import quality_lines, state_text
from kernelweave.inspect.ranking import (
    KernelWeight,
    Ranking,
    find_estimator,
    lighter,
    rank_kernels,
)
from kernelweave.inspect.words import shorten

_KERNELS_SHOWN = 8


def summary_text(model: Any, top: int = 10) -> str:
    r"""Describe a fitted model: how good, how sure of it, kernels kept, heaviest weights.

    The gap is the relative duality gap :math:`(P - D) / \max(|P|, |D|)` of the final weights, with
    the best objective between the dual value D and the objective P. Where a problem has none
    (products of kernels), the line says that it is the relative projected gradient. The objective
    of a regressor is that of its standardised targets, unless it has ``target_scale=None``.

    A Bayesian model has neither. It has the lower bound on the log evidence of the data, with its
    change a sample in the last iteration, and each weight has a standard deviation.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, BayesianMKLClassifier, BayesianMKLRegressor, ...
        Fitted; or a pipeline or search that ends in one.
    top : int, default=10
        How many kernels to list; the rest are added up in one line. Weights that may be negative
        are not added up: the line has the smallest and the largest.

    Returns
    -------
    str
        Lines without a final newline.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import RBF, Linear
    >>> from kernelweave.report import summary_text
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> print(summary_text(model).splitlines()[0].split(":")[0])
    MKLClassifier
    """
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    have = f"{len(kernels)} of {len(estimator.kernel_names_)} have a non-zero weight"
    lines = [f"{type(estimator).__name__}: {state_text(estimator)}"]
    known = [*quality_lines(estimator), ("kernels", have + _means(estimator))]
    lines += [f"  {label:<11}{text}" for label, text in known]
    for kernel in kernels[:top]:
        spread = "" if kernel.std is None else f" +- {kernel.std:.4f}"
        lines.append(f"    {kernel.weight:8.4f}{spread}  {visible(kernel.name)}")
    if rest := kernels[top:]:
        signed = rest[0].std is not None
        low, high = lighter([kernel.weight for kernel in rest], signed)
        if not signed:
            lines.append(f"    {high:8.4f}  {len(rest)} more")
        else:
            lines.append(f"    {len(rest)} more from {low:.4f} to {high:.4f}")
    return "\n".join(lines)


def learnt_line(model: Any) -> str:
    """Return in one sentence which kernels carry the weight.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> learnt_line(SimpleNamespace(weights_=[0.25, 0.0, 0.75], kernel_names_=["a", "b", "c"]))
    '2 of 3 kernels have weight; the heaviest, c, has 75 % of it.'
    """
    found = Ranking.of(model)
    count, total = len(found.used), found.total
    if not count:
        return f"None of the {total} kernels has weight."
    heaviest = visible(shorten(found.estimator.kernel_names_[found.order[0]], 80))
    if total == 1:
        return f"One kernel: {heaviest}."
    # Weights of Bayesian models may be negative: their size is what counts.
    share = 100 * found.shares[found.order[0]]
    what = f"the heaviest, {heaviest}, has {share:.0f} % of it"
    if count == 1:
        what = f"it is {heaviest}"
    have = "has" if count == 1 else "have"
    return f"{count} of {total} kernels {have} weight{_means(found.estimator)}; {what}."


def _means(estimator: Any) -> str:
    rows = np.ndim(estimator.weights_) == 2
    return f" (means over {len(estimator.weights_)} classes)" if rows else ""


def html_repr(estimator: Any) -> str:
    """Return scikit-learn's diagram of an estimator and, once it is fitted, what it has learnt.

    Parameters
    ----------
    estimator : estimator of kernelweave
        Fitted or not.

    Returns
    -------
    str
        HTML that needs nothing else, for light and dark pages.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> "Learnt:" in html_repr(MKLClassifier()), "Learnt:" in html_repr(MKLClassifier().fit(X, y))
    (False, True)
    """
    diagram = str(estimator_html_repr(estimator))
    if not hasattr(estimator, "weights_"):
        return diagram
    kernels = rank_kernels(estimator)
    shown, rest = kernels[:_KERNELS_SHOWN], kernels[_KERNELS_SHOWN:]
    most = max((abs(kernel.weight) for kernel in shown), default=1.0) or 1.0
    rows = "".join(_row(kernel, abs(kernel.weight) / most) for kernel in shown)
    if rest:
        total = sum(abs(kernel.weight) for kernel in rest)
        rows += (
            f'<tr><td class="kw-number">{total:.4f}</td><td class="kw-bars"></td>'
            f"<th>{len(rest)} more</th></tr>"
        )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    state = escape(state_text(estimator))
    if hasattr(estimator, "converged_"):
        mark, kind = ("✓", "kw-ok") if estimator.converged_ else ("⚠", "kw-warn")
        state = f'<span class="{kind}">{mark} {state}</span>'
    style = Path(__file__).with_name("notebook.css").read_text(encoding="utf-8")
    quality = [f"{label} {text}" for label, text in quality_lines(estimator)]
    return (
        f'{diagram}<div class="kw-learnt" role="group" aria-label="What was learnt">'
        f"<style>{style}</style>"
        f"<p><strong>Learnt:</strong> {escape(learnt_line(estimator))}</p>{table}"
        f"<p>{', '.join([state, *map(escape, quality)])}</p></div>"
    )


def _row(kernel: KernelWeight, share: float) -> str:
    name = escape(kernel.name)
    number, spread = f"{kernel.weight:.4f}", ""
    if kernel.std is not None:
        number, spread = f"{number} ± {kernel.std:.4f}", " kw-std"
    minus = " kw-minus" if kernel.weight < 0 else ""
    return (
        f'<tr><td class="kw-number{spread}">{number}</td><td class="kw-bars">'
        f'<span class="kw-bar{minus}" style="width: {100 * share:.1f}%"></span></td>'
        f'<th scope="row" title="{name}">{name}</th></tr>'
    )
