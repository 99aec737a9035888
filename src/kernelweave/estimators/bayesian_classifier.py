"""Bayesian classification with learnt kernel weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from kernelweave.arrays import Array
from kernelweave.bayes import (
    Labels,
    class_probability,
    log_class_probability,
)
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.bayesian import BaseBayesianMKL
from kernelweave.estimators.targets import known_labels, read_labels
from kernelweave.validation import positive_number, unknown_name


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianMKLClassifier(ClassifierMixin, BaseBayesianMKL):
    r"""Bayesian classifier that learns a combination of kernels, with error bars on everything.

    Bayesian efficient multiple kernel learning (Gönen 2012). For each task t (the one of two
    classes, or one for each class or label) the model is

    .. math::

        a_{ti} &\sim N(0, \lambda_{ti}^{-1}), \qquad
        g_{tki} \sim N\big((K_k a_t)_i, \sigma_g^2\big), \\
        f_{ti} &\sim N\big(\textstyle\sum_k e_k g_{tki} + b_t, 1\big), \qquad
        y_{ti} f_{ti} > \nu,

    with normal priors on the kernel weights e and the intercepts b and gamma priors on all
    precisions. A variational approximation of the posterior is found by updates in closed form,
    each of which raises the lower bound on the evidence.

    Parameters
    ----------
    kernels : str, kernel, family, RBFBatch or list of these, default="default"
        What to combine; see :class:`MKLClassifier`.
    sparsity : {"dense", "sparse"}, default="dense"
        Prior of the kernel weights. "sparse" lets most of them go to zero: kernels whose weight is
        at most a thousandth of the largest are dropped, and not evaluated for new samples.
    margin : float, default=1.0
        Half the width :math:`\nu` of the gap between the classes; 0 is a probit model.
    multi_class : {"shared", "ovr"}, default="shared"
        With more than two classes or with several labels: one set of kernel weights for all, or a
        fit of its own for each.
    max_iter : int, default=200
        Most iterations.
    tol : float, default=5e-4
        The fit ends when an iteration changes the lower bound by less than this for each sample
        (and class or label, if they share weights). 0 is what float64 can resolve.
    normalize : {"trace", "diagonal", "center"}, None or a tuple of them, default="diagonal"
        Normalisation of every kernel, learnt on the training rows.
    sigma_g : float, default=1.0
        Standard deviation :math:`\sigma_g` of the intermediate outputs g. 1 in the paper, 0.1 in
        its author's later programs.
    hyperparameters : dict, Hyperparameters or None, default=None
        Shapes (`alpha_`) and scales (`beta_`) of the gamma priors of the precisions, to replace
        those of `sparsity`: "alpha_lambda", "beta_lambda", "alpha_gamma", "beta_gamma",
        "alpha_omega", "beta_omega".
    unlabeled : object, default=None
        The value of y that marks a sample without a label, such as -1, "unknown" or NaN (which
        stands for every missing value). Such samples are learnt from as well: each must lie on one
        of the two sides of the margin. None: every value of y is a label.
    bank, cache_mb, n_jobs : object, float, int or None
        See :class:`MKLClassifier`.
    random_state : int, RandomState or None, default=None
        Draws the starting point. None always draws the same.
    verbose, callbacks : int, sequence of callables
        See :class:`MKLClassifier`.
    max_time : float or None, default=None
        Most seconds for the fit of one problem, building its kernels included. Where that is too
        short for a first iteration, predictions are a constant with the spread of the prior.
    warm_start_from : path, fitted BayesianMKLClassifier or None, default=None
        Go on with a fit of the same tasks, samples and kernels; see :class:`MKLClassifier`. The
        same fit that was cut short ends with the same posterior as if it had not been. Any other
        one starts from there, and not from what `random_state` draws.

    Attributes
    ----------
    weights_ : ndarray of shape (m,), or (n_tasks, m) for ``multi_class="ovr"``
        Posterior means of the kernel weights. They may be negative: only their products with the
        functions of the kernels mean something. Exactly zero where "sparse" dropped a kernel.
    weights_std_ : ndarray of the shape of `weights_`
        Their posterior standard deviations, those of dropped kernels included.
    intercept_, intercept_std_ : ndarray of shape (n_tasks,)
        Posterior means and standard deviations of the intercepts.
    lower_bound_ : float
        Lower bound on the log evidence (of all fits together for "ovr"). Higher is better between
        models of the same targets.
    n_iter_ : int
    converged_ : bool
    history_ : list of BayesRecord
        Iteration, seconds, lower bound, its change a sample, kernels in use.
    classes_ : ndarray of shape (n_classes,), or (L, 2) for L labels
        The classes in order; for a table of labels 0 and 1, the values of each.
    kernel_names_ : list of str
        One readable name for each kernel.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when X has column names.

    See Also
    --------
    MKLClassifier : Kernel weights by convex optimisation, with a certificate.
    BayesianMKLRegressor : The same model of real outputs.

    References
    ----------
    M. Gönen, "Bayesian efficient multiple kernel learning", ICML 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import BayesianMKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianMKLClassifier().fit(X[::4], y[::4])
    >>> model.score(X[1::4], y[1::4]) > 0.9
    True
    >>> model.weights_.shape, model.weights_std_.shape
    ((7,), (7,))
    >>> mean, std = model.decision_function(X[1:4], return_std=True)
    >>> model.predict_proba(X[1:4]).shape, std.shape
    ((3, 2), (3,))
    """

    margin: float = 1.0
    multi_class: str = "shared"
    unlabeled: Any = None

    def fit(self, X: Any, y: Any) -> BayesianMKLClassifier:
        """Find the posterior of the kernel weights and the decision functions.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,) or (n, L)
            Class labels, or a table of 0 and 1 with a column for each of L labels. With
            `unlabeled`, samples or single entries of the table may be without a label.
        """
        margin = positive_number("margin", self.margin, allow_zero=True)
        if self.multi_class not in ("shared", "ovr"):
            raise unknown_name("multi_class", self.multi_class, ("shared", "ovr"))
        settings = self._settings()
        X = self._check_X(X, reset=True)
        signs, classes = read_labels(y, self.unlabeled)
        check_consistent_length(X, signs.T)
        parts = [signs] if self.multi_class == "shared" else np.split(signs, len(signs))
        self._store(*self._infer(X, [Labels(part, margin) for part in parts], settings))
        self.classes_, self._margin = classes, margin
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        positive_number("the margin", self._margin, allow_zero=True)

    @property
    def _several_labels(self) -> bool:
        return bool(self.classes_.ndim == 2)

    def decision_function(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predictive means of f: above zero for the second class, or for the class of the column.

        Parameters
        ----------
        X : array, CSR matrix, frame or sequences
            New samples.
        return_std : bool, default=False
            Whether to return the standard deviations too. They count the noise of f (which is 1),
            and what is not known of weights, intermediate outputs and functions.

        Returns
        -------
        mean, and std if asked for : ndarray
            Shape (n,) for two classes, (n, n_classes) or (n, L) otherwise.
        """
        if not return_std:
            return self._columns(self._decisions(X))
        mean, std = self._mean_and_std(X)
        return self._columns(mean), self._columns(std)

    def predict_proba(self, X: Any) -> Array:
        r"""Class probabilities, or the probability of each label.

        .. math:: p_t = \frac{\Phi((\mu_t - \nu) / s_t)}
                  {\Phi((\mu_t - \nu) / s_t) + \Phi((-\mu_t - \nu) / s_t)}

        of a task's predictive mean and standard deviation. Those of more than two classes are
        divided by their sum.

        Returns
        -------
        ndarray of shape (n, n_classes), or (n, L) for L labels
        """
        mean, std = self._mean_and_std(X)
        if self._several_labels:
            return class_probability(mean, std, self._margin)
        if mean.shape[1] == 1:
            # Each by itself: 1 - p would lose the digits of a small one.
            both = np.column_stack([-mean, mean])
            return class_probability(both, std, self._margin)
        # Far from all classes every p is too small for a number, but not its logarithm.
        p: Array = softmax(log_class_probability(mean, std, self._margin), axis=1)
        return p

    def predict(self, X: Any) -> Array:
        """Return the most probable class of every sample, or 0 or 1 for every label."""
        check_is_fitted(self)
        if not self._several_labels and len(self.classes_) > 2:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        # The side of zero is the more probable one, whatever the standard deviation.
        positive = self._decisions(X) > 0
        if self._several_labels:
            return positive.astype(self.classes_.dtype)
        return self.classes_[positive[:, 0].astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of right predictions among the samples whose label is known.

        With several labels, a sample counts if all of them are known, and is right if all are.
        """
        if self.unlabeled is None:
            return float(super().score(X, y, sample_weight))
        values, known = known_labels(y, self.unlabeled)
        truth = np.zeros(known.shape, values.dtype)
        truth[known] = values
        rows = np.flatnonzero(known if known.ndim == 1 else known.all(axis=1))
        if not len(rows):
            raise InvalidInputError(
                f"no sample in y has a known label (unlabeled={self.unlabeled!r}); there is "
                "nothing to score."
            )
        weight = None if sample_weight is None else _safe_indexing(sample_weight, rows)
        return float(super().score(_safe_indexing(X, rows), truth[rows], weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
