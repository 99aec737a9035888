"""Regression with learnt kernel weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_consistent_length

from kernelweave.errors import InvalidInputError
from kernelweave.estimators.base import BaseMKL, Tasks
from kernelweave.losses import Loss, get_loss
from kernelweave.problem import Array
from kernelweave.validation import positive_number

__all__ = ["MKLRegressor"]


class MKLRegressor(RegressorMixin, BaseMKL):
    """Regressor that learns a combination of kernels together with the function.

    Same problem, parameters and attributes as :class:`MKLClassifier`, with a regression loss.

    Parameters
    ----------
    kernels : str, kernel, family or list of kernels and families, default="default"
        What to combine; see :class:`MKLClassifier`.
    C : float, default=1.0
        Weight of the loss.
    loss : str or Loss, default="epsilon_insensitive"
        "epsilon_insensitive", "squared", or an object.
    epsilon : float, default=0.1
        Half width of the tube without loss, in units of y (epsilon-insensitive loss by name).
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
    kernel_names_, dual_coef_, support_, intercept_ : list and ndarrays
        See :class:`MKLClassifier`.
    objective_, dual_objective_, gap_, gap_kind_, converged_ : floats, str and bool
        See :class:`MKLClassifier`.
    n_iter_, history_, n_features_in_, feature_names_in_ : int, list, int, ndarray
        See :class:`MKLClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLRegressor
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = MKLRegressor(C=10).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.9
    True
    """

    def __init__(
        self,
        kernels: Any = "default",
        *,
        C: float = 1.0,
        loss: str | Loss = "epsilon_insensitive",
        epsilon: float = 0.1,
        regularizer: Any = "simplex",
        combination: Any = "sum",
        solver: Any = "auto",
        normalize: Any = "trace",
        tol: float = 1e-3,
        max_iter: int = 1000,
        bank: Any = "auto",
        cache_mb: float = 1000,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Any] = (),
        max_time: float | None = None,
        warm_start: bool = False,
        warm_start_from: Any = None,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.regularizer = regularizer
        self.combination = combination
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.bank = bank
        self.cache_mb = cache_mb
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.max_time = max_time
        self.warm_start = warm_start
        self.warm_start_from = warm_start_from

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
            ``sample_weight``, array-like of shape (n,): factor on C for each sample; see
            :meth:`MKLClassifier.fit`.
        """
        C = positive_number("C", self.C)
        self._fit_tasks(self._tasks(X, y, fit_params), C)
        return self

    def _tasks(self, X: Any, y: Any, fit_params: dict[str, Any]) -> Tasks:
        """Check what was given; one task."""
        loss = self._regression_loss()
        X = self._check_X(X, reset=True)
        if y is None:
            raise InvalidInputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        target = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64)
        check_consistent_length(X, target)
        weight = self._check_weights(fit_params, len(target))
        return Tasks(X, target[None, :], weight[None, :], loss, [np.array([0])])

    def _regression_loss(self) -> Loss:
        params = {}
        if self.loss == "epsilon_insensitive":
            params["epsilon"] = positive_number("epsilon", self.epsilon, allow_zero=True)
        loss = get_loss(self.loss, **params)
        if loss.task != "regression":
            raise InvalidInputError(
                f"loss={self.loss!r} is for {loss.task.replace('_', '-')}; a regressor takes "
                "'epsilon_insensitive' or 'squared'."
            )
        return loss

    def predict(self, X: Any) -> Array:
        """Return the fitted function at every sample."""
        return self._decisions(X)[:, 0]

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        return ("prediction",), "the prediction"
