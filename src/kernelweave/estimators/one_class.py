"""Novelty and outlier detection with learnt kernel weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OutlierMixin

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.base import BaseMKL, SetUp, Tasks
from kernelweave.estimators.targets import read_sample_weight
from kernelweave.losses import OneClass
from kernelweave.problem import Problem
from kernelweave.regularizers import Regularizer, get_regularizer
from kernelweave.solvers import Limits, Point, Result, Solver
from kernelweave.solvers.solve import certified_exactly
from kernelweave.validation import positive_number

# A sample on the boundary is inside. Its score can differ from the fitted value, a sum in another
# order, by some last digits of float64, so the boundary is that much further out. The certificate
# allows for as much.
_ROUNDING = 2.0**-45
# Objectives below this part of the mean diagonal of the kernels are zero but for rounding.
_ZERO = 1e-7


@dataclass(eq=False, repr=False, kw_only=True)
class MKLOneClass(OutlierMixin, BaseMKL):
    r"""Outlier and novelty detector that learns a combination of kernels: a one-class SVM.

    Solves, to a certified duality gap,

    .. math:: \min_{d \in \mathcal D}\; \min_{f, \rho}\; \frac{1}{\nu n} \sum_i
              \max\big(0, \rho - f(x_i)\big) - \rho + \tfrac12 \sum_k \frac{|f_k|^2}{d_k} + r(d),
              \qquad f = \textstyle\sum_k f_k .

    A sample is inside where :math:`f(x) \ge \rho`. With one kernel this is
    :class:`sklearn.svm.OneClassSVM` in other units: its alphas sum to :math:`\nu n`, ours to one.

    Parameters
    ----------
    kernels : str, kernel, family or list of kernels and families, default="default"
        What to combine; see :class:`MKLClassifier`, and the notes: the weights of kernels that
        differ only in width do not say which width is right.
    nu : float, default=0.5
        Between 0 (not included) and 1: at most this share of the training samples is left outside,
        and at least this share are support vectors. Take it above the share of outliers to be
        expected among them, or the boundary and the weights are made for the outliers.
    regularizer : str or Regularizer, default="simplex"
        "simplex" (sparse weights that sum to one), "lp_ball" (all kernels, the more equal the
        larger p), "entropy", or an object such as ``LpBall(1.33)``. The allowed weights must be a
        bounded set. Under a mere price, such as "l1", all weights are zero or infinite.
    solver, normalize : str or object
        See :class:`MKLClassifier`; "auto" is "spg". Kernels that are centred surround the origin,
        and nothing can be learnt from them.
    tol : float, default=1e-3
        Duality gap to reach, relative to the objective. 0 is what float64 can resolve.
    max_iter, max_time, warm_start : int, float or None, bool
        See :class:`MKLClassifier`.
    warm_start_from : path, fitted MKLOneClass or None, default=None
        A checkpoint or another fit to go on with; see :class:`MKLClassifier`.
    bank, cache_mb, n_jobs, random_state : object, float, int or None, int or None
        See :class:`MKLClassifier`.
    verbose, callbacks : int, sequence of callables
        See :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (m,)
        Kernel weights.
    offset_ : float
        The :math:`\rho` that is taken off `score_samples` to give `decision_function`.
    dual_coef_ : ndarray of shape (1, n_support)
        Alphas of the support vectors, all positive; they sum to one.
    gap_ : float
        Duality gap relative to the objective, at most `tol` when `converged_`:
        ``(objective_ - dual_objective_) / max(abs(objective_), abs(dual_objective_))``.
    kernel_names_, support_, intercept_ : list and ndarrays
        See :class:`MKLClassifier`. The intercept is minus the offset.
    objective_, dual_objective_, gap_kind_, converged_ : floats, str and bool
        See :class:`MKLClassifier`. The objective is not positive.
    n_iter_, history_, n_features_in_, feature_names_in_ : int, list, int, ndarray
        See :class:`MKLClassifier`.

    Notes
    -----
    *What the weights mean.* Without labels nothing tells a useful kernel from a useless one. At the
    optimum the objective is (where r is zero, as on the simplex)

    .. math:: -\tfrac12 \max_{d \in \mathcal D} \min_{\alpha}\; \alpha^\top K(d)\, \alpha,
              \qquad 0 \le \alpha_i \le \tfrac{1}{\nu n},\ \sum_i \alpha_i = 1,

    and :math:`\alpha^\top K \alpha` is the mean similarity of two samples drawn by alpha. So weight
    goes to kernels by which even the least typical samples are alike: views in which the samples
    keep close together. Where no view holds all of them together but several do it between them,
    these share the weight.

    A kernel that finds everything alike always wins. Among Gaussian kernels on the same columns the
    widest one gets all the weight of the simplex, whatever the data; a constant kernel, or one on a
    column that hardly varies, beats it. Combine kernels of comparable width on different columns or
    sources, and leave out columns that say nothing. To blend widths use ``LpBall``, which keeps all
    of them in use, or ``solver="uniform"``; to choose one, look at held-out data.

    *Sums only.* There is no `combination`: the objective falls as a product of kernels gets wider,
    so its best weights are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLOneClass
    >>> from kernelweave.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) * [0.2, 3.0]
    >>> model = MKLOneClass([RBF(width=1).on(0), RBF(width=1).on(1)], nu=0.1).fit(X)
    >>> model.weights_.round(2).tolist()  # the first column holds the samples together
    [1.0, 0.0]
    >>> model.predict([[0.0, 0.0], [3.0, 0.0]]).tolist()
    [1, -1]
    """

    combination: ClassVar[str] = "sum"

    nu: float = 0.5

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> MKLOneClass:
        r"""Learn the kernel weights and the boundary.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples, most of them normal; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : None
            Not looked at.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n,): a sample of weight w counts as w samples,
            :math:`\alpha_i \le w_i / (\nu \sum_j w_j)`; see :meth:`MKLClassifier.fit`.
        """
        nu = self._checked_nu()
        self._check_regularizer()
        X = self._check_X(X, reset=True)
        n = X.shape[0]
        weight = read_sample_weight(fit_params, n)
        weight = weight / weight.max()  # Their sum may overflow; only their ratios count.
        # Divided first, so that the bounds add up to 1 / nu to the last digit or so.
        bound = weight / weight.sum() / nu
        self._fit_tasks(Tasks(X, np.ones((1, n)), bound[None, :], OneClass(), [np.array([0])]))
        return self

    def _checked_nu(self) -> float:
        try:
            nu = positive_number("nu", self.nu)
        except InvalidInputError:
            nu = np.inf
        if nu > 1.0:
            raise InvalidInputError(
                f"nu must be a number above 0 and at most 1, the share of samples that may be left "
                f"outside; got {self.nu!r}."
            )
        return nu

    def _check_regularizer(self) -> None:
        regularizer = get_regularizer(self.regularizer)
        if regularizer.bounded:
            return
        allowed = ", ".join(
            repr(name) for name, cls in sorted(Regularizer.registry.items()) if cls.bounded
        )
        raise InvalidInputError(
            f"regularizer={self.regularizer!r} puts a price on the weights and does not bound "
            "them. The one-class problem has no unit to set against a price, which alone would "
            f"decide their size, zero or infinite as a rule. Allowed: {allowed}, or an object with "
            "bounded = True."
        )

    def _solve(
        self, problem: Problem, solver: Solver, limits: Limits, start: Point | None
    ) -> Result:
        # Of the kernels as they are, not of a bank's: else samples on the boundary may be outside.
        # Where the fit has not converged, that is what it ended with.
        result = super()._solve(problem, solver, limits, start)
        if result.converged:
            result = certified_exactly(problem, solver, limits, result)
        if abs(result.certificate.dual) <= _ZERO * problem.kernel_size:
            warnings.warn(
                "the training samples surround the origin in every kernel, so all scores are zero "
                "and nothing was learnt. Use kernels that are not centred, such as RBF, or a "
                "smaller nu.",
                UserWarning,
                stacklevel=2,
            )
        return result

    def _store(self, made: SetUp, results: list[Result]) -> None:
        super()._store(made, results)
        rho = -float(self.intercept_[0])
        self.offset_ = rho - _ROUNDING * abs(rho)
        self.intercept_ = np.array([-self.offset_])

    def score_samples(self, X: Any) -> Array:
        """Return f at every sample: how like the training samples it is."""
        return self.decision_function(X) + self.offset_

    def decision_function(self, X: Any) -> Array:
        """Return f minus `offset_` at every sample: negative outside the boundary."""
        return self._decisions(X)[:, 0]

    def predict(self, X: Any) -> Array:
        """Return +1 for samples inside the boundary and -1 for outliers."""
        return np.where(self._decisions(X)[:, 0] >= 0, 1, -1)

    def _decision_names(self) -> tuple[tuple[str, ...], str]:
        return ("inside",), "below 0 it is an outlier"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
