"""Bayesian regression with learnt kernel weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from kernelweave.arrays import Array
from kernelweave.bayes import Outputs
from kernelweave.estimators.bayesian import BaseBayesianMKL
from kernelweave.estimators.targets import RAW, require_target, standardize
from kernelweave.validation import require_array, require_kind


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianMKLRegressor(RegressorMixin, BaseBayesianMKL):
    r"""Bayesian regressor that learns a combination of kernels, with error bars on everything.

    The model of :class:`BayesianMKLClassifier` with outputs that are observed: for each output t

    .. math::

        a_{ti} \sim N(0, \lambda_{ti}^{-1}), \quad
        g_{tki} \sim N\big((K_k a_t)_i, \sigma_g^2\big), \quad
        y_{ti} \sim N\big(\textstyle\sum_k e_k g_{tki} + b_t, \upsilon_t^{-1}\big),

    with normal priors on the kernel weights e, which all outputs share, and on the intercepts b,
    and gamma priors on all precisions, that of the noise included.

    Parameters
    ----------
    kernels : str, kernel, family, RBFBatch or list of these, default="default"
        What to combine; see :class:`MKLClassifier`.
    sparsity, max_iter, tol, normalize, sigma_g : str, int, float, str or tuple, float
        See :class:`BayesianMKLClassifier`.
    hyperparameters : dict, Hyperparameters or None, default=None
        See :class:`BayesianMKLClassifier`; "alpha_upsilon" and "beta_upsilon" are those of the
        precision of the noise.
    normalize_y : bool, default=True
        Whether to fit outputs that are shifted and scaled to mean 0 and variance 1 (the priors
        are made for numbers of that size). Predictions are in units of y all the same.
    bank, cache_mb, n_jobs, random_state : object, float, int or None, int or None
        See :class:`BayesianMKLClassifier`.
    verbose, callbacks, max_time : int, sequence of callables, float or None
        See :class:`BayesianMKLClassifier`.
    warm_start_from : path, fitted BayesianMKLRegressor or None, default=None
        A checkpoint or another fit to go on with; see :class:`BayesianMKLClassifier`.

    Attributes
    ----------
    weights_, weights_std_ : ndarray of shape (m,)
        Posterior means and standard deviations of the kernel weights; see
        :class:`BayesianMKLClassifier`. All outputs share them, so they have no unit of y.
    intercept_, intercept_std_ : ndarray of shape (n_outputs,)
        Of the intercepts, in units of y.
    noise_std_ : ndarray of shape (n_outputs,)
        Learnt standard deviation of the noise of each output, in units of y.
    lower_bound_ : float
        Lower bound on the log evidence, of the outputs as they were fitted (see `normalize_y`).
    n_iter_, converged_, history_, kernel_names_ : int, bool, lists
        See :class:`BayesianMKLClassifier`.
    n_features_in_, feature_names_in_ : int, ndarray
        See :class:`BayesianMKLClassifier`.

    See Also
    --------
    MKLRegressor : Kernel weights by convex optimisation, with a certificate.
    BayesianMKLClassifier : The same model of classes.

    References
    ----------
    M. Gönen, "Bayesian efficient multiple kernel learning", ICML 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import BayesianMKLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> model = BayesianMKLRegressor().fit(X, y)
    >>> mean, std = model.predict([[1.5], [100.0]], return_std=True)
    >>> mean.shape, std.shape
    ((2,), (2,))
    >>> model.score(X, y) > 0.9
    True
    """

    normalize_y: bool = True

    def fit(self, X: Any, y: Any) -> BayesianMKLRegressor:
        """Find the posterior of the kernel weights, the functions and the noise.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,) or (n, n_outputs)
            Targets.
        """
        settings = self._settings()
        X = self._check_X(X, reset=True)
        require_target(type(self).__name__, y)
        # Numbers that overflow when they are checked or standardised are refused below.
        with np.errstate(over="ignore", invalid="ignore"):
            target = check_array(
                y, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y"
            )
            check_consistent_length(X, target)
            table = target[:, None] if target.ndim == 1 else target
            outputs = [
                standardize(column, np.ones(len(column))) if self.normalize_y else (column, RAW)
                for column in table.T
            ]
        fitted = np.array([column for column, _ in outputs])
        shift, scale = np.array([units for _, units in outputs]).T.copy()
        self._require_finite(shift, scale)
        kernel_set, (posterior,) = self._infer(X, [Outputs(fitted)], settings)
        self._shift, self._scale, self._one_output = shift, scale, target.ndim == 1
        self._store(kernel_set, [posterior])
        self.intercept_ = shift + scale * posterior.b_mean
        self.intercept_std_ = scale * posterior.b_std
        self.noise_std_ = scale * np.sqrt(posterior.noise_variance)
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        n_outputs = len(self.intercept_)
        require_array("the shift of the outputs", self._shift, (n_outputs,))
        require_array("the scale of the outputs", self._scale, (n_outputs,))
        require_array("noise_std_", self.noise_std_, (n_outputs,), low=0.0)
        require_kind("whether there is one output", self._one_output, (bool, np.bool_))

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the predictive mean of every sample.

        Parameters
        ----------
        X : array, CSR matrix, frame or sequences
            New samples.
        return_std : bool, default=False
            Whether to return the standard deviations of new observations too: noise, and what is
            not known of weights, intermediate outputs and functions.

        Returns
        -------
        mean, and std if asked for : ndarray
            Of the dimensions of y: (n,), or (n, n_outputs).
        """
        if not return_std:
            return self._columns(self._decisions(X))
        mean, std = self._mean_and_std(X)
        return self._columns(self._shift + self._scale * mean), self._columns(self._scale * std)

    @property
    def _one_value(self) -> bool:
        return bool(self._one_output)

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        if self._one_output:
            return ("prediction",), "the prediction"
        outputs = tuple(f"output {t}" for t in range(len(self.intercept_)))
        return outputs, "a prediction for each output; the largest is shown"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
