"""Classification with learnt kernel weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin

from kernelweave.arrays import Array
from kernelweave.estimators.base import BaseMKL, Tasks
from kernelweave.estimators.targets import one_versus_rest, read_classes
from kernelweave.losses import Loss, get_loss
from kernelweave.validation import positive_number, unknown_name


@dataclass(eq=False, repr=False, kw_only=True)
class MKLClassifier(ClassifierMixin, BaseMKL):
    r"""Classifier that learns a combination of kernels together with the decision function.

    Solves, to a certified relative duality gap,

    .. math:: \min_{d \in \mathcal D}\; \min_{f, b}\; \sum_i \ell\big(y_i, \textstyle\sum_k f_k(x_i)
              + b\big) + \tfrac12 \sum_k \frac{|f_k|^2}{d_k} + r(d),

    or its counterpart for another combination of kernels than a sum, to a stationary point.

    Parameters
    ----------
    kernels : str, kernel, family, RBFBatch or list of these, default="default"
        What to combine. Names: "default", "simplemkl", "spicymkl", "mwumkl", "features" (one
        squared distance for each column), "rbf", "linear", "polynomial". The default family
        standardises the features and takes a linear, a quadratic and five Gaussian kernels (widths
        from a quarter to four times the square root of the number of features).
    C : float, default=1.0
        Weight of the loss.
    loss : str or Loss, default="hinge"
        "hinge", "squared_hinge", "logistic", "smooth_hinge", or an object.
    regularizer : str or Regularizer, default="simplex"
        "simplex" (sparse weights that sum to one), "lp_ball", "l1", "squared_lp", "elastic_net",
        "block_norm" (groups of kernels), "entropy", "log_det", or an object such as
        ``LpBall(1.33)``.
    combination : {"sum", "product", "polynomial_mixture"} or Combination, default="sum"
        How the kernels become one. "product" is :math:`\exp(-\sum_k d_k D_k)`, with a distance
        for each kernel of the form :math:`\exp(-D)`; ``kernels="default"`` then means one squared
        distance for each standardised feature.
    solver : str or Solver, default="auto"
        "active-set", "silp", "silp-chunking", "spicy", "spg", "pgd", "mwu", "uniform" and
        "align" (equal weights, and weights by alignment with the labels: the baselines), "auto",
        or an object such as ``SPG()``.
    normalize : {"trace", "diagonal", "center"}, None or a tuple of them, default="trace"
        Normalisation of every kernel, learnt on the training rows. "trace" scales to mean
        diagonal 1, so that C means what it means for an SVM.
    tol : float, default=1e-3
        Relative duality gap to reach; where there is none, relative projected gradient. 0 is what
        float64 can resolve.
    max_iter : int, default=1000
        Most iterations over the weights.
    multi_class : {"shared", "ovr"}, default="shared"
        With more than two classes: one set of weights learnt on the sum of the one-versus-rest
        objectives, or one set per class.
    class_weight : dict, "balanced" or None, default=None
        Factor on C for each class.
    bank : {"auto", "dense", "lazy", "factored", "sparse", "positional"} or object, default="auto"
        How the kernel matrices are kept; see :func:`kernelweave.bank.build_bank`. For a product
        "auto" forms K(d) up to 5,000 samples, "lazy" up to 2,000.
    cache_mb : float, default=1000
        Megabytes for kernel matrices or cached rows; with ``bank="lazy"`` a fit takes no more than
        that and some numbers for each kernel and sample.
    n_jobs : int or None, default=None
        Threads; None means all cores. Passes over the kernels give the same bits for any number.
    random_state : int, RandomState or None, default=None
        Draws the rows on which ``bank="auto"`` probes kernel ranks.
    verbose : int, default=0
        1 prints progress about once a second, 2 at every iteration.
    callbacks : sequence of callables, default=()
        Each is called with the newest record of `history_`; one that returns True ends the fit.
        A :class:`Checkpoint` among them writes down where the fit stands.
    max_time : float or None, default=None
        Most seconds for the fit of one problem, building its kernels included. Where that is too
        short for them or for a first step, the model is the best constant.
    warm_start : bool, default=False
        Start from the solution of the last call to `fit`, if it had as many samples and kernels:
        for a sequence of values of C, say.
    warm_start_from : path, fitted MKLClassifier or None, default=None
        Go on with a fit of the same classes, samples and kernels: the path of a
        :class:`Checkpoint`, or the estimator. The same fit that was cut short goes on where it was:
        `history_` has the records of this call, whose iterations (of `max_iter` in all) and seconds
        count on; `max_time` begins anew. With other settings (C, loss, regularizer, solver, y) it
        is where the fit starts. With `warm_start` it is for the first call to `fit` only.

    Attributes
    ----------
    weights_ : ndarray of shape (m,), or (n_classes, m) for ``multi_class="ovr"``
        Kernel weights. On the simplex they sum to one.
    kernel_names_ : list of str
        One readable name for each kernel.
    dual_coef_ : ndarray of shape (n_tasks, n_support)
        Signed dual coefficients of the support vectors; one task for two classes.
    support_ : ndarray of shape (n_support,)
        Indices of the support vectors among the training rows.
    intercept_ : ndarray of shape (n_tasks,)
    objective_, dual_objective_ : float
        Objective of the fit, or a little above it, and a lower bound on the best one possible.
    objective_floor_ : float
        1e-12 of the objective of the best constant: one below cannot be told from zero.
    gap_ : float
        Relative duality gap, at most `tol` when `converged_`: ``(objective_ - dual_objective_) /
        max(abs(objective_), abs(dual_objective_))``, or zero where both are below
        `objective_floor_`; the largest over classes for ``multi_class="ovr"``. It is the same in
        any units of kernels, C and targets.
    gap_kind_ : {"duality", "projected_gradient"}
        What `gap_` is. A sum of kernels has a duality gap; other combinations (and the log det)
        make the problem non-convex, and `gap_` says how far from stationary the weights are.
    converged_ : bool
    n_iter_ : int
    history_ : list of Record
        Iteration, seconds, primal, dual, gap, active kernels, inner iterations, inner solves.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when X has column names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MKLClassifier("simplemkl").fit(X[::2], y[::2])
    >>> len(model.weights_), bool(model.gap_ <= 1e-3)
    (403, True)
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    """

    C: float = 1.0
    loss: str | Loss = "hinge"
    combination: Any = "sum"
    multi_class: str = "shared"
    class_weight: Any = None

    def fit(self, X: Any, y: Any, **fit_params: Any) -> MKLClassifier:
        """Learn the kernel weights and the decision function.

        Parameters
        ----------
        X : array, CSR matrix, pandas or polars frame of shape (n, n_features), or n sequences
            Training samples; for precomputed kernels a column of
            :func:`~kernelweave.sample_ids`.
        y : array-like of shape (n,)
            Class labels.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n,): factor on C for each sample. It is taken
            as a keyword because `transform` has one column for each training row, so a fit with
            weights cannot equal a fit with repeated rows in every output, as scikit-learn
            requires of a `sample_weight` in the signature.
        """
        C = positive_number("C", self.C)
        self._fit_tasks(self._tasks(X, y, fit_params), C)
        return self

    def _tasks(self, X: Any, y: Any, fit_params: dict[str, Any]) -> Tasks:
        """Check what was given; one task for two classes, else one for each class."""
        names = "'hinge', 'squared_hinge', 'logistic' and 'smooth_hinge'"
        loss = self._checked_loss("classification", names)
        if self.multi_class not in ("shared", "ovr"):
            raise unknown_name("multi_class", self.multi_class, ("shared", "ovr"))
        X = self._check_X(X, reset=True)
        name = type(self).__name__
        self.classes_, codes, weight = read_classes(name, X, y, self.class_weight, fit_params)
        targets = one_versus_rest(codes, len(self.classes_))
        together = self.multi_class == "shared" or len(targets) == 1
        every = np.arange(len(targets))
        groups = [every] if together else [every[t : t + 1] for t in every]
        return Tasks(X, targets, np.tile(weight, (len(targets), 1)), loss, groups)

    def decision_function(self, X: Any) -> Array:
        """Signed distances: shape (n,) for two classes, (n, n_classes) otherwise."""
        return self._columns(self._decisions(X))

    def predict(self, X: Any) -> Array:
        """Return the most likely class of every sample."""
        return self._likeliest(self._decisions(X))

    @property
    def predict_proba(self) -> Any:
        """Class probabilities, for the logistic loss; shape (n, n_classes)."""
        if get_loss(self.loss).name != "logistic":
            raise AttributeError(
                f"predict_proba needs loss='logistic'; this model has loss={self.loss!r}. Wrap it "
                "in sklearn.calibration.CalibratedClassifierCV to get probabilities."
            )
        return self._predict_proba

    def _predict_proba(self, X: Any) -> Array:
        p = expit(self._decisions(X))
        if p.shape[1] == 1:
            return np.column_stack([1 - p[:, 0], p[:, 0]])
        return p / p.sum(axis=1, keepdims=True)
