"""A fitted model in a few lines of plain text."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.describe.learnt import (
    KernelWeight,
    find_estimator,
    is_bayesian,
    objective_of,
    rank_kernels,
    split_fits,
)
from kernelweave.visible_text import visible

__all__ = ["learnt_line", "state_text", "summary_text"]


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
    total = len(estimator.kernel_names_)
    bayesian = is_bayesian(estimator)
    lines = [
        f"{type(estimator).__name__}: {state_text(estimator)}",
        *_quality_lines(estimator),
        f"  {'kernels':<11}{len(kernels)} of {total} have a non-zero weight{_means(estimator)}",
    ]
    shown, rest = kernels[:top], kernels[top:]
    lines += [f"    {_weight(kernel)}  {visible(kernel.name)}" for kernel in shown]
    if rest and bayesian:
        weights = [kernel.weight for kernel in rest]
        lines.append(f"    {len(rest)} more from {min(weights):.4f} to {max(weights):.4f}")
    elif rest:
        weight = sum(kernel.weight for kernel in rest)
        lines.append(f"    {weight:8.4f}  {len(rest)} more")
    return "\n".join(lines)


def learnt_line(model: Any) -> str:
    """Return in one sentence which kernels carry the weight.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> learnt_line(SimpleNamespace(weights_=[0.25, 0.0, 0.75], kernel_names_=["a", "b", "c"]))
    '2 of 3 kernels have weight; the heaviest, c, has 75 % of it.'
    """
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    total = len(estimator.kernel_names_)
    if not kernels:
        return f"None of the {total} kernels has weight."
    if total == 1:
        return f"One kernel: {visible(kernels[0].name)}."
    # Weights of Bayesian models may be negative: their size is what counts.
    share = abs(kernels[0].weight) / sum(abs(kernel.weight) for kernel in kernels)
    have = "has" if len(kernels) == 1 else "have"
    heaviest = f"the heaviest, {visible(kernels[0].name)}, has {100 * share:.0f} % of it"
    if len(kernels) == 1:
        heaviest = f"it is {visible(kernels[0].name)}"
    return f"{len(kernels)} of {total} kernels {have} weight{_means(estimator)}; {heaviest}."


def _means(estimator: Any) -> str:
    rows = np.ndim(estimator.weights_) == 2
    return f" (means over {len(estimator.weights_)} classes)" if rows else ""


def state_text(estimator: Any) -> str:
    """Return in a few words how the fit ended.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> state_text(SimpleNamespace(converged_=True, n_iter_=1))
    'converged after 1 iteration'
    """
    count = int(np.max(estimator.n_iter_))
    iterations = f"{count} iteration" + ("" if count == 1 else "s")
    if not hasattr(estimator, "converged_"):
        # The solver is not ours and has its own warning.
        return f"fitted in {iterations}"
    return f"{'converged' if estimator.converged_ else 'not converged'} after {iterations}"


def _weight(kernel: KernelWeight) -> str:
    return f"{kernel.weight:8.4f}" + ("" if kernel.std is None else f" +- {kernel.std:.4f}")


def _quality_lines(estimator: Any) -> list[str]:
    """What is known of how good the fit is."""
    if is_bayesian(estimator):
        return _bound_lines(estimator)
    return _gap_lines(estimator) if hasattr(estimator, "gap_") else []


def _gap_lines(estimator: Any) -> list[str]:
    tolerance = f", tolerance {estimator.tol:.1e}" if hasattr(estimator, "tol") else ""
    kind = getattr(estimator, "gap_kind_", "duality")
    what = "relative projected gradient" if kind == "projected_gradient" else "relative"
    problem = f" ({objective_of(estimator)})" if objective_of(estimator) else ""
    return [
        f"  objective  {float(np.sum(estimator.objective_)):.6g}{problem}",
        f"  gap        {float(np.max(estimator.gap_)):.1e} ({what}{tolerance})",
    ]


def _bound_lines(estimator: Any) -> list[str]:
    # Of several fits, one for each class, that which changed most.
    change = max(records[-1].change for records in split_fits(estimator.history_))
    bound = float(np.sum(estimator.lower_bound_))
    return [
        f"  bound      {bound:.6g} (lower bound on the log evidence)",
        f"  change     {change:.1e} (a sample, tolerance {estimator.tol:.1e})",
    ]
