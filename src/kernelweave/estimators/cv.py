"""Estimators that choose C themselves, by cross-validation along a path."""

from __future__ import annotations

from dataclasses import dataclass

from kernelweave.estimators.classifier import MKLClassifier
from kernelweave.estimators.path_cv import PathCV
from kernelweave.estimators.regressor import MKLRegressor


@dataclass(eq=False, repr=False, kw_only=True)
class MKLClassifierCV(PathCV, MKLClassifier):
    r"""Classifier with learnt kernel weights that chooses C by cross-validation along a path.

    The kernels are computed once for each fold, not once for each C, and each fit starts from the
    solution for the C before it. Values of C are the same in all folds.

    Parameters
    ----------
    kernels : str, kernel, family, RBFBatch or list of these, default="default"
        What to combine; see :class:`MKLClassifier`.
    Cs : int or sequence of float, default=20
        The values of C, or how many. A number is spaced evenly in log C, from where the first
        kernel enters up to `C_ratio` times that; see the notes.
    C_ratio : float, default=1000
        The largest C over the smallest, where `Cs` is a number.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; an integer means stratified folds without shuffling.
    scoring : str, callable or None, default=None
        What to maximise, as in scikit-learn; None is the accuracy. Probabilities
        ("neg_log_loss") need ``loss="logistic"``.
    loss, regularizer, combination, solver, normalize : str or object
        See :class:`MKLClassifier`.
    tol, max_iter, max_time : float, int, float or None
        Of every single fit; see :class:`MKLClassifier`. `max_time` does not limit the whole: there
        is one fit for each fold and each C, and one more for each C on all samples. The time in
        which kernels are built, once for a fold, is not counted.
    multi_class, class_weight : str; dict, "balanced" or None
        See :class:`MKLClassifier`. "balanced" is taken anew in every fold.
    bank, cache_mb, random_state : object, float, int or None
        See :class:`MKLClassifier`. Folds that run at the same time each have a bank of their own.
    n_jobs : int or None, default=None
        Threads; None means all cores. They work on different folds. The number changes nothing but
        the time.
    verbose : int, default=0
        1 prints a line for every fold, 2 for every fit, 3 and 4 also what the fits print with
        1 and 2.
    callbacks : sequence of callables, default=()
        See :class:`MKLClassifier`; called in every fit, from the threads that the folds run in. No
        :class:`Checkpoint`: that is for a single fit.

    Attributes
    ----------
    C_ : float
        The C with the best mean score; the smaller one where two are equal.
    Cs_ : ndarray of shape (n_Cs,)
        The values of C, increasing.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the test parts of the folds.
    best_score_, best_index_ : float, int
        Mean score at `C_`, and its place in `Cs_`.
    cv_results_ : dict of arrays of length n_Cs
        As that of ``GridSearchCV``, for ``pandas.DataFrame``: ``param_C``, ``split0_test_score``
        and so on, ``mean_test_score``, ``std_test_score``, ``rank_test_score``, ``mean_fit_time``
        (seconds from the solution before, without the kernels), ``max_gap`` (over the folds),
        ``mean_n_kernels``.
    path_weights_ : ndarray of shape (n_Cs, m), or (n_Cs, n_classes, m) for ``multi_class="ovr"``
        Kernel weights along the path on all samples; :func:`~kernelweave.report.plot_path` draws
        them.
    path_gaps_ : ndarray of shape (n_Cs,)
        Their relative duality gaps.
    weights_, kernel_names_, dual_coef_, support_, intercept_ : ndarrays and list
        Of the model for `C_` on all samples; see :class:`MKLClassifier`.
    objective_, dual_objective_, gap_, gap_kind_, converged_ : floats, str and bool
        See :class:`MKLClassifier`.
    n_iter_, history_, classes_ : int, list, ndarray
        See :class:`MKLClassifier`.
    n_features_in_, feature_names_in_ : int, ndarray
        See :class:`MKLClassifier`.

    Notes
    -----
    The smallest C comes from all the samples given to `fit`, in closed form. Under "l1", the
    elastic net or the block norm all weights are zero up to some C
    (:func:`~kernelweave.solvers.entry_factor`), and that is where the path starts. Under
    "simplex", "lp_ball" and others some kernel always has weight; there the path starts where the
    best kernel moves the decision values by half a unit, the margin being one
    (:func:`~kernelweave.solvers.path.first_factor`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MKLClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MKLClassifierCV(Cs=5, cv=3).fit(X[::2], y[::2])
    >>> model.scores_.shape, model.path_weights_.shape
    ((3, 5), (5, 7))
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    """

    _plain = MKLClassifier


@dataclass(eq=False, repr=False, kw_only=True)
class MKLRegressorCV(PathCV, MKLRegressor):
    """Regressor with learnt kernel weights that chooses C by cross-validation along a path.

    Same parameters and attributes as :class:`MKLClassifierCV`, with a regression loss. Targets are
    standardised as in :class:`MKLRegressor`, in every fold by those of its training part; scores
    are those of predictions in units of y.

    Parameters
    ----------
    kernels : str, kernel, family or list of kernels and families, default="default"
        What to combine; see :class:`MKLClassifier`.
    Cs, C_ratio : int or sequence of float, float
        The values of C, which refer to the standardised targets; see :class:`MKLClassifierCV`. The
        best kernel moves the function by half of the targets' mean deviation at the smallest C,
        where some kernel always has weight.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; an integer means consecutive folds without shuffling.
    scoring : str, callable or None, default=None
        What to maximise, as in scikit-learn; None is R squared.
    loss, epsilon, target_scale : str or Loss, float, str or None
        See :class:`MKLRegressor`.
    regularizer, combination, solver, normalize : str or object
        See :class:`MKLClassifier`.
    tol, max_iter, max_time : float, int, float or None
        Of every single fit; see :class:`MKLClassifierCV`.
    bank, cache_mb, n_jobs, random_state : object, float, int or None, int or None
        See :class:`MKLClassifierCV`.
    verbose, callbacks : int, sequence of callables
        See :class:`MKLClassifierCV`.

    Attributes
    ----------
    C_, Cs_, scores_, best_score_, best_index_, cv_results_ : float, ndarrays, float, int, dict
        See :class:`MKLClassifierCV`.
    path_weights_, path_gaps_ : ndarrays
        See :class:`MKLClassifierCV`.
    weights_, kernel_names_, dual_coef_, support_, intercept_ : ndarrays and list
        Of the model for `C_` on all samples; see :class:`MKLRegressor`.
    target_shift_, target_scale_ : float
        Of all samples; see :class:`MKLRegressor`.
    objective_, dual_objective_, gap_, gap_kind_, converged_ : floats, str and bool
        See :class:`MKLRegressor`.
    n_iter_, history_, n_features_in_, feature_names_in_ : int, list, int, ndarray
        See :class:`MKLClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import KFold
    >>> from kernelweave import MKLRegressorCV
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> rng = np.random.default_rng(0)
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> model = MKLRegressorCV(Cs=[0.1, 1.0, 10.0], cv=KFold(5, shuffle=True, random_state=0))
    >>> model.fit(X, y).best_score_ > 0.9
    True
    """

    _plain = MKLRegressor
