"""Estimators that say what they have learnt: `explain`, `summary`, and what notebooks show."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave.describe.explanation import Explanation, sample_names
from kernelweave.describe.kernel_info import describe_kernels
from kernelweave.describe.notebook import html_repr
from kernelweave.describe.summary import summary_text
from kernelweave.estimators.decisions import Parts

__all__ = ["SelfExplaining"]


class SelfExplaining:
    """What every estimator can say of itself.

    A subclass writes `_parts` and, if its decision values are not those of classes,
    `_decision_names`.
    """

    def explain(self, X: Any) -> Explanation:
        r"""Take the decision values of samples apart: what does each kernel add?

        In a weighted sum of kernels, kernel k adds
        :math:`f_k(x) = d_k \sum_j \alpha_j K_k(x_j, x)`, and the decision value is
        :math:`\sum_k f_k(x) + b`. Other combinations are shared out as Aumann and Shapley do
        (:meth:`Combination.shares <kernelweave.combine.Combination.shares>`): every weight grows
        from nothing at the same pace, and a kernel is given what its own growth adds. Kernels of
        weight zero are never evaluated.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame, or sequences
            New samples.

        Returns
        -------
        Explanation
            Its contributions and its baseline sum to `decision_function`, or to `predict` of a
            regressor. ``explanation.by("view")`` adds up views.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from kernelweave import MKLClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MKLClassifier().fit(X, y)
        >>> model.explain(X[:2])
        <Explanation of 2 samples by 3 kernels, 3 values each>
        """
        check_is_fitted(self)
        table = self._check_X(X, reset=False)  # type: ignore[attr-defined]
        with self._threads():  # type: ignore[attr-defined]
            values, kernels, constant = self._parts(table)
        infos = tuple(describe_kernels(self, kernels))
        decision = values.sum(axis=-1) + constant
        baseline: Any = constant
        if self._one_value:
            values, decision, baseline = values[:, 0], decision[:, 0], float(constant[0])
        outputs, meaning = self._decision_names()
        return Explanation(
            values=values,
            baseline=baseline,
            decision=decision,
            kernel_names=tuple(info.name for info in infos),
            kernels=kernels,
            infos=infos,
            outputs=outputs,
            meaning=meaning,
            samples=sample_names(X, len(values)),
        )

    def _parts(self, X: Any) -> Parts:
        """Contributions to the decision values of checked samples, intercepts in `constant`."""
        raise NotImplementedError

    @property
    def _one_value(self) -> bool:
        """Whether a sample has a single decision value, which is then no row of a table."""
        return len(self.intercept_) == 1  # type: ignore[attr-defined]

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        """Names of the decision values, and what they mean."""
        classes: Any = self.classes_  # type: ignore[attr-defined]
        if np.ndim(classes) == 2:
            labels = tuple(f"label {t}" for t in range(len(classes)))
            return labels, "a value for each label: above 0 the sample has it"
        names = tuple(str(name) for name in classes)
        if len(names) == 2:
            return names[1:], f"above 0 speaks for {names[1]}, below 0 for {names[0]}"
        return names, "a value for each class: the largest wins, and is shown"

    def summary(self, top: int = 10) -> None:
        """Print what was learnt: how good, how sure of it, the heaviest kernels.

        :func:`~kernelweave.report.summary_text` returns the same lines.

        Parameters
        ----------
        top : int, default=10
            How many kernels to list.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from kernelweave import MKLClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> MKLClassifier("linear").fit(X, y).summary()  # doctest: +ELLIPSIS
        MKLClassifier: converged after 1 iteration
          objective  ...
          gap        ... (relative, tolerance 1.0e-03)
          kernels    1 of 1 have a non-zero weight
              1.0000  linear
        """
        print(summary_text(self, top))

    # What notebooks show. scikit-learn decides whether it is a diagram or text.

    def _repr_html_inner(self) -> str:
        return html_repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = html_repr(self)
        return bundle
