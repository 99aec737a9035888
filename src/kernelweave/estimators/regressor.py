"""Regression with learnt kernel weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_consistent_length

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.base import BaseMKL, SetUp, Tasks
from kernelweave.estimators.targets import (
    RAW,
    check_loss_of_residuals,
    read_sample_weight,
    require_target,
    standardize,
)
from kernelweave.losses import EpsilonInsensitive, Loss
from kernelweave.solvers import Result
from kernelweave.validation import positive_number, require_kind


@dataclass(eq=False, repr=False, kw_only=True)
class MKLRegressor(RegressorMixin, BaseMKL):
    r"""Regressor that learns a combination of kernels together with the function.

    Same problem, parameters and attributes as :class:`MKLClassifier`, with a regression loss. The
    targets are standardised inside the fit, so that neither their units nor a shift matter: a fit
    to ``a * y + b`` predicts a times as much plus b, with the same kernel weights.

    Parameters
    ----------
    kernels : str, kernel, family or list of kernels and families, default="default"
        What to combine; see :class:`MKLClassifier`.
    C : float, default=1.0
        Weight of the loss of the standardised targets; see `target_scale`.
    loss : str or Loss, default="epsilon_insensitive"
        "epsilon_insensitive", "squared", or an object, which sees the standardised targets too:
        the width of ``EpsilonInsensitive(0.3)`` is 0.3 standard deviations of y.
    epsilon : float, default=0.1
        Half width of the tube without loss, in standard deviations of y (epsilon-insensitive loss
        by name); in units of y with ``target_scale=None``.
    target_scale : {"standardize", None}, default="standardize"
        What `C`, `epsilon` and `loss` refer to. "standardize" subtracts the mean of the training
        targets and divides by their standard deviation, both weighted by `sample_weight`; constant
        targets are only shifted. None fits the targets as they are: for a `C` and an `epsilon`
        in units of y, as those of :class:`sklearn.svm.SVR` are, and for a loss that does not
        depend on the target minus the prediction alone, such as one of counts.
    regularizer, combination, solver, normalize : str or object
        See :class:`MKLClassifier`.
    tol, max_iter, max_time, warm_start : float, int, float or None, bool
        See :class:`MKLClassifier`.
    warm_start_from : path, fitted MKLRegressor or None, default=None
        A checkpoint or another fit to go on with; see :class:`MKLClassifier`.
    bank, cache_mb, n_jobs, random_state : object, float, int or None, int or None
        See :class:`MKLClassifier`.
    verbose, callbacks : int, sequence of callables
        See :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (m,)
        Kernel weights.
    dual_coef_ : ndarray of shape (1, n_support)
        Coefficients of the support vectors, in units of y.
    intercept_ : ndarray of shape (1,)
        In units of y.
    target_shift_, target_scale_ : float
        What was subtracted from the targets, and what they were then divided by; 0 and 1 with
        ``target_scale=None``.
    kernel_names_, support_ : list and ndarray
        See :class:`MKLClassifier`.
    objective_, dual_objective_ : float
        Upper and lower bound on the optimum of the problem that was solved, that of the
        standardised targets; see the notes.
    gap_, gap_kind_, converged_ : float, str and bool
        See :class:`MKLClassifier`. The gap is relative, and so has no unit.
    n_iter_, history_, n_features_in_, feature_names_in_ : int, list, int, ndarray
        See :class:`MKLClassifier`. The objectives in `history_` are in the unit of `objective_`.

    Notes
    -----
    *The function.* In a sum of kernels a prediction is, in units of y,

    .. math:: \sum_k d_k \sum_j K_k(x, x_j)\, c_j + b

    with ``weights_`` d, ``dual_coef_`` c of the support vectors :math:`x_j` and ``intercept_`` b.

    *The certificate.* The bounds can be recomputed from the attributes. With s the
    ``target_shift_``, u the ``target_scale_`` and :math:`w_i` the weight of a sample, let

    .. math:: t_i = \frac{y_i - s}{u}, \quad z_i = \frac{\mathrm{predict}(x_i) - s}{u}, \quad
              \alpha = \frac{c}{u}, \quad q_k = \alpha^\top K_k\, \alpha, \quad
              |f_k| = d_k \sqrt{q_k} .

    Then ``objective_`` is :math:`\sum_i \ell(t_i, z_i) + \Omega(|f_1|, \dots, |f_m|)` and
    ``dual_objective_`` is :math:`-\sum_i \ell^*(-\alpha_i) - \max_d \big(\tfrac12 \sum_k d_k q_k -
    r(d)\big)`, with losses of weight :math:`C w_i`, both with `C` and `epsilon` as they were given.
    For the epsilon-insensitive loss on the simplex these are

    .. math:: C \sum_i w_i \max(0, |t_i - z_i| - \varepsilon)
              + \tfrac12 \Big(\sum_k |f_k|\Big)^2
              \quad\text{and}\quad
              \sum_i \big(\alpha_i t_i - \varepsilon |\alpha_i|\big) - \tfrac12 \max_k q_k .

    Both attributes count against the fit what kernels in single precision or low rank leave open,
    so they may lie a little further apart. Where a solver knew dual variables that prove more than
    those of the function, ``dual_objective_`` is theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLRegressor
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = MKLRegressor(C=10).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.9
    True

    The units of y change nothing but the units of the answers:

    >>> other = MKLRegressor(C=10).fit(X, 1e-4 * np.sin(X[:, 0]) + 7)
    >>> np.allclose(other.predict(X), 1e-4 * model.predict(X) + 7, rtol=0, atol=1e-8)
    True
    """

    C: float = 1.0
    loss: str | Loss = "epsilon_insensitive"
    epsilon: float = 0.1
    target_scale: str | None = "standardize"
    combination: Any = "sum"

    def fit(self, X: Any, y: Any, **fit_params: Any) -> MKLRegressor:
        """Learn the kernel weights and the function.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,)
            Targets.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n,): factor on C for each sample, and its
            weight in the mean and the standard deviation of the targets; see
            :meth:`MKLClassifier.fit`.
        """
        C = positive_number("C", self.C)
        self._fit_tasks(self._tasks(X, y, fit_params), C)
        return self

    def _tasks(self, X: Any, y: Any, fit_params: dict[str, Any]) -> Tasks:
        """Check what was given; one task."""
        loss = self._regression_loss()
        X = self._check_X(X, reset=True)
        require_target(type(self).__name__, y)
        target = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64)
        check_consistent_length(X, target)
        weight, units = read_sample_weight(fit_params, len(target)), RAW
        if self.target_scale is not None:
            target, units = standardize(target, weight)
        spread = float(np.ptp(target))
        if isinstance(loss, EpsilonInsensitive) and 0 < spread <= 2 * loss.epsilon:
            warnings.warn(
                f"all targets lie within epsilon={loss.epsilon:g} of one value (they span "
                f"{spread:.3g}), so a constant has no loss and nothing is learnt. Use a smaller "
                "epsilon, or target_scale='standardize', under which epsilon is in standard "
                "deviations of y.",
                UserWarning,
                stacklevel=3,
            )
        return Tasks(X, target[None, :], weight[None, :], loss, [np.array([0])], units)

    def _regression_loss(self) -> Loss:
        """Check what decides the loss, and of what it is one."""
        scale = self.target_scale
        if scale is not None and not (isinstance(scale, str) and scale == "standardize"):
            raise InvalidInputError(
                "target_scale must be 'standardize' (C and epsilon refer to targets of mean 0 and "
                "standard deviation 1) or None (they refer to the targets as they are); got "
                f"{scale!r}."
            )
        params = {}
        if self.loss == "epsilon_insensitive":
            params["epsilon"] = positive_number("epsilon", self.epsilon, allow_zero=True)
        loss = self._checked_loss("regression", "'epsilon_insensitive' and 'squared'", **params)
        if scale is not None:
            check_loss_of_residuals(loss)
        return loss

    def _store(self, made: SetUp, results: list[Result]) -> None:
        super()._store(made, results)
        self.target_shift_, self.target_scale_ = made.units

    def _check_fitted(self) -> None:
        super()._check_fitted()
        require_kind("target_shift_", self.target_shift_, Real)
        positive_number("target_scale_", self.target_scale_)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Files and pickles of before `target_scale` are of models of raw targets.
        older: dict[str, Any] = {"target_scale": None}
        if "weights_" in state:
            older |= {"target_shift_": 0.0, "target_scale_": 1.0}
        super().__setstate__(older | state)

    def predict(self, X: Any) -> Array:
        """Return the fitted function at every sample, in units of y."""
        return self._decisions(X)[:, 0]

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        return ("prediction",), "the prediction"
