"""A fitted model in a few lines of plain text."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.report.learnt import find_estimator, rank_kernels

__all__ = ["summary_text"]


def summary_text(model: Any, top: int = 10) -> str:
    r"""Describe a fitted model: objective, certificate, kernels kept, heaviest weights.

    The gap is the relative duality gap :math:`(P - D) / \max(1, |P|)` of the final weights: the
    objective is at most that far above the best one possible. Where a problem has none (products of
    kernels), the line says that it is the relative projected gradient.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, or a pipeline or search that ends in one
        Fitted.
    top : int, default=10
        How many kernels to list; the rest are added up in one line.

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
    state = "converged" if estimator.converged_ else "not converged"
    tolerance = f", tolerance {estimator.tol:.1e}" if hasattr(estimator, "tol") else ""
    kind = getattr(estimator, "gap_kind_", "duality")
    what = "relative projected gradient" if kind == "projected_gradient" else "relative"
    lines = [
        f"{type(estimator).__name__}: {state} after {int(np.max(estimator.n_iter_))} iterations",
        f"  objective  {float(np.sum(estimator.objective_)):.6g}",
        f"  gap        {float(np.max(estimator.gap_)):.1e} ({what}{tolerance})",
        f"  kernels    {len(kernels)} of {total} have a non-zero weight",
    ]
    shown = kernels[:top]
    width = max((len(kernel.name) for kernel in shown), default=0)
    lines += [f"    {kernel.weight:8.4f}  {kernel.name:<{width}}".rstrip() for kernel in shown]
    rest = kernels[top:]
    if rest:
        weight = sum(kernel.weight for kernel in rest)
        lines.append(f"    {weight:8.4f}  {len(rest)} more")
    return "\n".join(lines)
