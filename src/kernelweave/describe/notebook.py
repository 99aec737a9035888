"""What a notebook shows of a fitted estimator: scikit-learn's diagram, and what was learnt."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from sklearn.utils import estimator_html_repr

from kernelweave.describe.learnt import KernelWeight, is_bayesian, rank_kernels, split_fits
from kernelweave.describe.summary import learnt_line, state_text

__all__ = ["html_repr"]

_KERNELS_SHOWN = 8

# Text takes the colour of the page, so that it can be read on any; the bars have one for light and
# one for dark pages, which notebooks announce each in its own way.
_RULES = """
.kw-learnt { LIGHT
  color: inherit; font: 13px/1.45 system-ui, sans-serif; max-width: 52em; margin: 0.4em 0 0;
  padding: 0.5em 0.8em; border: 1px solid rgba(128, 128, 128, 0.45); border-radius: 6px; }
.kw-learnt p { margin: 0 0 0.4em; }
.kw-learnt p:last-child { margin: 0.4em 0 0; }
.kw-learnt table { border-collapse: collapse; border: 0; margin: 0; width: 100%;
  table-layout: fixed; font-size: inherit; color: inherit; }
.kw-learnt tr, .kw-learnt td, .kw-learnt th { background: none; border: 0; padding: 1px 0.5em 1px 0;
  font-weight: normal; text-align: left; color: inherit; }
.kw-learnt th { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.kw-learnt .kw-number { width: 5em; text-align: right; font-variant-numeric: tabular-nums; }
.kw-learnt .kw-number.kw-std { width: 10em; }
.kw-learnt .kw-bars { width: 30%; }
.kw-learnt .kw-bar { display: block; height: 0.8em; min-width: 1px; border-radius: 2px;
  background: var(--kw-bar); }
.kw-learnt .kw-bar.kw-minus { background: var(--kw-minus); }
.kw-learnt .kw-ok { color: var(--kw-ok); } .kw-learnt .kw-warn { color: var(--kw-warn); }
@media (prefers-color-scheme: dark) { .kw-learnt { DARK } }
[data-jp-theme-light="true"] .kw-learnt, [data-theme="light"] .kw-learnt,
.vscode-light .kw-learnt, html[theme="light"] .kw-learnt { LIGHT }
[data-jp-theme-light="false"] .kw-learnt, [data-theme="dark"] .kw-learnt,
.vscode-dark .kw-learnt, html[theme="dark"] .kw-learnt { DARK }
"""
_STYLE = _RULES.replace(
    "LIGHT", "--kw-bar: #0072b2; --kw-minus: #d55e00; --kw-ok: #00795a; --kw-warn: #b34700;"
).replace("DARK", "--kw-bar: #56b4e9; --kw-minus: #e69f00; --kw-ok: #4cc9a0; --kw-warn: #f0a35e;")


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
    return diagram + _panel(estimator)


def _panel(estimator: Any) -> str:
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
    return (
        f'<div class="kw-learnt" role="group" aria-label="What was learnt"><style>{_STYLE}</style>'
        f"<p><strong>Learnt:</strong> {escape(learnt_line(estimator))}</p>{table}"
        f"<p>{_certificate(estimator)}</p></div>"
    )


def _row(kernel: KernelWeight, share: float) -> str:
    name = escape(kernel.name)
    number = f"{kernel.weight:.4f}" + ("" if kernel.std is None else f" ± {kernel.std:.4f}")
    spread = "" if kernel.std is None else " kw-std"
    minus = " kw-minus" if kernel.weight < 0 else ""
    bar = f'<span class="kw-bar{minus}" style="width: {100 * share:.1f}%"></span>'
    return (
        f'<tr><td class="kw-number{spread}">{number}</td><td class="kw-bars">{bar}</td>'
        f'<th scope="row" title="{name}">{name}</th></tr>'
    )


def _certificate(estimator: Any) -> str:
    """How good the fit is known to be, in one line."""
    state = escape(state_text(estimator))
    if hasattr(estimator, "converged_"):
        good = bool(estimator.converged_)
        mark, kind = ("✓", "kw-ok") if good else ("⚠", "kw-warn")
        state = f'<span class="{kind}">{mark} {state}</span>'
    if is_bayesian(estimator):
        change = max(records[-1].change for records in split_fits(estimator.history_))
        bound = float(np.sum(estimator.lower_bound_))
        return (
            f"{state}: lower bound on the log evidence {bound:.6g}, last change {change:.1e} a "
            f"sample (tolerance {estimator.tol:.1e})"
        )
    if not hasattr(estimator, "gap_"):
        return state
    gradient = estimator.gap_kind_ == "projected_gradient"
    what = "relative projected gradient" if gradient else "relative duality gap"
    return f"{state}: {what} {estimator.gap_:.1e} (tolerance {estimator.tol:.1e})"
