"""MKLOneClass: a one-class SVM whose kernel is learnt, with scikit-learn's outlier API."""

from __future__ import annotations

import inspect
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from same_numbers import AFTER_A_FIT, assert_same_numbers
from scipy import sparse
from sklearn.base import clone, is_outlier_detector
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM
from sklearn.utils import get_tags
from thinned import thinned

import kernelweave
from kernelweave import MKLOneClass, sample_ids
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear, from_matrices
from kernelweave.plot import fit_figure
from kernelweave.regularizers import Entropy, LpBall, Regularizer, Simplex
from kernelweave.regularizers.fixed import Fixed
from kernelweave.report import summary_text

N = 30
VIEWS = [RBF(width=1.0).on(j) for j in range(4)]


@pytest.fixture(scope="module")
def blob():
    rng = np.random.default_rng(0)
    return rng.normal(size=(150, 4)) * [0.6, 0.8, 1.0, 2.0]


def matrices(seed=0):
    rng = np.random.default_rng(seed)
    return [RBF(width=1.0)(rng.normal(size=(N, 2))) for _ in range(3)] + [
        A @ A.T / 3 + 0.3 for A in (rng.normal(size=(N, 3)), rng.normal(size=(N, 40)) / 3)
    ]


def test_signature():
    parameters = inspect.signature(MKLOneClass).parameters
    expected = {
        "kernels": "default", "nu": 0.5, "regularizer": "simplex", "solver": "auto",
        "normalize": "trace", "tol": 1e-3, "max_iter": 1000, "bank": "auto", "cache_mb": 1000,
        "n_jobs": None, "random_state": None, "verbose": 0, "callbacks": (), "max_time": None,
        "warm_start": False, "warm_start_from": None,
    }  # fmt: skip
    assert {name: p.default for name, p in parameters.items()} == expected
    assert kernelweave.MKLOneClass is kernelweave.estimators.MKLOneClass


# One kernel: the one-class SVM that everybody knows


@pytest.mark.parametrize("gamma", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("nu", [0.033, 0.21, 0.701])
def test_one_kernel_is_a_one_class_svm(blob, nu, gamma):
    model = MKLOneClass(RBF(gamma=gamma), nu=nu, normalize=None, tol=1e-8).fit(blob)
    svm = OneClassSVM(gamma=gamma, nu=nu, tol=1e-10).fit(blob)
    total = nu * len(blob)  # what its alphas sum to; ours sum to one
    assert model.dual_coef_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(total * model.offset_, svm.offset_[0], rtol=1e-5)
    new = np.random.default_rng(1).normal(size=(60, 4))
    for X in (blob, new):
        np.testing.assert_allclose(
            total * model.decision_function(X), svm.decision_function(X), atol=1e-5 * total
        )
        np.testing.assert_allclose(
            total * model.score_samples(X), svm.score_samples(X), atol=1e-5 * total
        )


def test_one_precomputed_kernel_is_a_one_class_svm():
    K = matrices()[4]
    ids = sample_ids(N)
    model = MKLOneClass(from_matrices([K]), nu=0.21, normalize=None, tol=1e-8).fit(ids)
    svm = OneClassSVM(kernel="precomputed", nu=0.21, tol=1e-10).fit(K)
    np.testing.assert_allclose(
        0.21 * N * model.decision_function(ids), svm.decision_function(K), atol=1e-5
    )


def test_a_narrow_kernel_is_solved_as_well_as_a_wide_one(blob):
    """Its objective is near 1/n, where a gap of 1e-3 would say nothing unless it is relative."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MKLOneClass(RBF(gamma=10.0), nu=0.21, normalize=None).fit(blob)
    assert -0.01 < model.objective_ < 0
    svm = OneClassSVM(gamma=10.0, nu=0.21, tol=1e-10).fit(blob)
    total = 0.21 * len(blob)
    np.testing.assert_allclose(total * model.offset_, svm.offset_[0], rtol=1e-2)
    np.testing.assert_allclose(
        total * model.score_samples(blob), svm.score_samples(blob), rtol=3e-2
    )
    relative = (model.objective_ - model.dual_objective_) / abs(model.dual_objective_)
    assert model.gap_ == pytest.approx(relative)
    assert model.gap_ <= 1e-3 and model.converged_


# nu and sample weights


@pytest.mark.parametrize(
    ("nu", "bank"), thinned([0.05, 0.1, 0.3, 0.5, 0.8], ["dense", "lazy", "factored"])
)
def test_nu_bounds_the_shares_of_outliers_and_of_support_vectors(blob, nu, bank):
    model = MKLOneClass(VIEWS, nu=nu, bank=bank).fit(blob)
    outside = np.mean(model.predict(blob) == -1)
    assert nu - 0.05 <= outside <= nu + 1e-12
    assert len(model.support_) >= nu * len(blob) - 1e-9
    assert model.dual_coef_.max() <= 1 / (nu * len(blob)) * (1 + 1e-9)


def test_nu_of_one_and_a_tiny_nu(blob):
    everything = MKLOneClass(VIEWS, nu=1).fit(blob)
    np.testing.assert_allclose(everything.dual_coef_, 1 / len(blob))
    nothing = MKLOneClass(VIEWS, nu=1e-6, tol=1e-5).fit(blob)
    assert (nothing.predict(blob) == 1).all()


@pytest.mark.parametrize("nu", [0, -0.1, 1.01, 7, np.nan, np.inf, "0.5", None, True])
def test_bad_nu(blob, nu):
    with pytest.raises(InvalidInputError, match="nu must be a number above 0 and at most 1"):
        MKLOneClass(nu=nu).fit(blob)


@pytest.mark.parametrize("regularizer", ["simplex", "lp_ball"])
def test_integer_weights_are_repeated_rows(blob, regularizer):
    weight = np.random.default_rng(0).integers(0, 4, size=len(blob))
    options = {"nu": 0.2, "tol": 1e-7, "regularizer": regularizer}
    weighted = MKLOneClass(VIEWS, **options).fit(blob, sample_weight=weight)
    repeated = MKLOneClass(VIEWS, **options).fit(np.repeat(blob, weight, axis=0))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-5)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, atol=1e-3)
    np.testing.assert_allclose(
        weighted.decision_function(blob), repeated.decision_function(blob), atol=1e-4
    )
    assert not set(weighted.support_) & set(np.flatnonzero(weight == 0))


def test_weighted_samples_are_those_of_a_one_class_svm(blob):
    weight = np.random.default_rng(0).uniform(0.0, 3.0, size=len(blob))
    model = MKLOneClass(RBF(gamma=0.5), nu=0.2, tol=1e-8).fit(blob, sample_weight=weight)
    svm = OneClassSVM(gamma=0.5, nu=0.2, tol=1e-10).fit(blob, sample_weight=weight)
    np.testing.assert_allclose(
        0.2 * weight.sum() * model.decision_function(blob), svm.decision_function(blob), atol=1e-3
    )
    scaled = MKLOneClass(RBF(gamma=0.5), nu=0.2, tol=1e-8).fit(blob, sample_weight=100 * weight)
    np.testing.assert_allclose(scaled.offset_, model.offset_, rtol=1e-6)


# Several kernels: the optimum


def referee(Ks, nu, regularizer):
    """The primal written out for cvxpy: objective, weights, decision values."""
    roots = []
    for K in Ks:
        values, vectors = np.linalg.eigh(K)
        keep = values > 1e-10
        roots.append(vectors[:, keep] * np.sqrt(values[keep]))
    w = [cp.Variable(L.shape[1]) for L in roots]
    d = cp.Variable(len(Ks), nonneg=True)
    rho = cp.Variable()
    f = sum(L @ v for L, v in zip(roots, w, strict=True))
    terms = [cp.sum(cp.pos(rho - f)) / (nu * N) - rho]
    rules = []
    if isinstance(regularizer, Simplex):  # by norms: |f_k|^2 / d_k has no value at zero weights
        terms.append(0.5 * cp.square(sum(cp.norm(v, 2) for v in w)))
    else:
        terms.append(0.5 * sum(cp.quad_over_lin(v, d[k]) for k, v in enumerate(w)))
        if isinstance(regularizer, LpBall):
            rules = [cp.pnorm(d, regularizer.p, approx=False) <= 1]
        elif isinstance(regularizer, Entropy):
            rules = [cp.sum(d) == 1]
            terms.append(regularizer.weight * (np.log(len(Ks)) - cp.sum(cp.entr(d))))
        else:
            rules = [d == regularizer.weights]
    problem = cp.Problem(cp.Minimize(sum(terms)), rules)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10)
    weights = d.value
    if isinstance(regularizer, Simplex):
        norms = np.array([np.linalg.norm(v.value) for v in w])
        weights = norms / norms.sum()
    return problem.value, weights, f.value - rho.value


CASES = [
    *((Simplex(), solver) for solver in ("active-set", "spg", "pgd")),
    *((LpBall(p), solver) for p in (1.2, 2.0) for solver in ("spg", "pgd")),
    (Entropy(0.1), "spg"),
    (Entropy(0.1), "pgd"),
    (Fixed([0.1, 0.2, 0.3, 0.4, 0.0]), "spg"),
]


@pytest.mark.parametrize(("regularizer", "solver"), CASES, ids=str)
@pytest.mark.parametrize("nu", [0.11, 0.43])
def test_same_optimum_as_a_convex_solver(regularizer, solver, nu):
    Ks = matrices()
    value, weights, decisions = referee(Ks, nu, regularizer)
    ids = sample_ids(N)
    model = MKLOneClass(
        from_matrices(Ks), nu=nu, regularizer=regularizer, solver=solver, normalize=None, tol=1e-7
    ).fit(ids)
    assert model.converged_ and model.gap_kind_ == "duality"
    assert model.objective_ == pytest.approx(value, rel=2e-6)
    assert model.dual_objective_ <= value * (1 - 2e-6)
    np.testing.assert_allclose(model.weights_, weights, atol=3e-3)
    np.testing.assert_allclose(
        model.decision_function(ids), decisions, atol=5e-3 * np.abs(decisions).max()
    )


def test_equal_weights_are_one_kernel(blob):
    uniform = MKLOneClass(VIEWS, nu=0.2, solver="uniform", tol=1e-7).fit(blob)
    assert uniform.weights_.tolist() == [0.25] * 4
    K = np.mean([kernel(blob) for kernel in VIEWS], axis=0)
    alone = MKLOneClass(from_matrices([K]), nu=0.2, tol=1e-7).fit(sample_ids(len(blob)))
    assert uniform.objective_ == pytest.approx(alone.objective_, rel=1e-6)
    assert MKLOneClass(VIEWS, nu=0.2).fit(blob).objective_ < uniform.objective_


@pytest.mark.parametrize("scale", [1e-8, 1e-2, 1e6])
@pytest.mark.parametrize("price", [None, 0.1])
def test_the_unit_of_the_kernels_does_not_matter(scale, price):
    Ks, ids = matrices(), sample_ids(N)
    options = {"nu": 0.3, "normalize": None, "tol": 1e-5}
    first, second = Simplex(), Simplex()
    if price is not None:  # it is in the unit of the objective, which is that of the kernels
        first, second = Entropy(price), Entropy(scale * price)
    plain = MKLOneClass(from_matrices(Ks), regularizer=first, **options).fit(ids)
    Ks = [scale * K for K in Ks]
    scaled = MKLOneClass(from_matrices(Ks), regularizer=second, **options).fit(ids)
    assert scaled.converged_ and scaled.gap_ <= 1e-5
    assert scaled.objective_ == pytest.approx(scale * plain.objective_, rel=2e-5)
    np.testing.assert_allclose(scaled.weights_, plain.weights_, atol=0.01)


# Which regularizers


ALL = [reg for cls in Regularizer.registry.values() for reg in cls.examples()]


@pytest.mark.parametrize("regularizer", ALL, ids=repr)
def test_bounded_says_whether_the_allowed_weights_are_bounded(regularizer):
    if regularizer.name == "log_det":  # its value needs kernels; all d >= 0 are allowed
        assert regularizer.orthant and not regularizer.bounded
        return
    if regularizer.name == "block_norm":
        regularizer.groups = 2
    large = 1e6 * regularizer.start(6)
    assert np.isinf(regularizer.value(large)) == regularizer.bounded
    assert Fixed([1.0]).bounded and not Regularizer.bounded


@pytest.mark.parametrize(
    "regularizer", [name for name, cls in Regularizer.registry.items() if not cls.bounded]
)
def test_prices_without_a_bound_are_refused(blob, regularizer):
    with pytest.raises(InvalidInputError, match="'entropy', 'lp_ball', 'simplex'") as error:
        MKLOneClass(VIEWS, regularizer=regularizer).fit(blob)
    assert repr(regularizer) in str(error.value)


def test_there_is_no_combination_to_choose():
    with pytest.raises(TypeError, match="combination"):
        MKLOneClass(combination="product")
    assert "combination" not in MKLOneClass().get_params()


# What the weights mean


def test_weight_goes_to_the_view_that_holds_the_samples_together():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 5))
    X[:, 2] = rng.normal(scale=0.2, size=200)
    model = MKLOneClass([RBF(width=0.7).on(j) for j in range(5)], nu=0.1).fit(X)
    assert model.weights_[2] > 0.95


def test_views_that_complete_each_other_share_the_weight():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(300, 5))
    X[np.arange(300), rng.integers(2, size=300)] = rng.normal(scale=0.15, size=300)
    model = MKLOneClass([RBF(width=0.7).on(j) for j in range(5)], nu=0.1).fit(X)
    assert model.weights_[:2].min() > 0.35
    assert model.weights_[:2].sum() > 0.95
    cross = np.zeros((3, 5))
    cross[:, :2] = [[2.0, 0.0], [0.0, -2.0], [2.0, 2.0]]
    assert model.predict(cross).tolist() == [1, 1, -1]


def test_the_widest_gaussian_takes_all_of_the_simplex(blob):
    widths = [RBF(width=w) for w in (0.3, 1.0, 5.0, 2.0)]
    assert MKLOneClass(widths, nu=0.2).fit(blob).weights_.round(3).tolist() == [0, 0, 1, 0]
    assert (MKLOneClass(widths, nu=0.2, regularizer="lp_ball").fit(blob).weights_ > 0.01).all()


# Kernels with nothing in them


def test_a_constant_kernel_finds_everything_normal(blob):
    ids = sample_ids(N)
    model = MKLOneClass(from_matrices([np.ones((N, N)), matrices()[0]])).fit(ids)
    assert model.weights_.round(6).tolist() == [1, 0]
    assert (model.predict(ids) == 1).all()
    same = np.ones((40, 3))
    assert (MKLOneClass().fit_predict(same) == 1).all()
    assert MKLOneClass().fit(same[:1]).predict(same[:1]).tolist() == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"kernels": [RBF(width=1.0), RBF(width=3.0)], "normalize": ("center", "trace")},
        {"kernels": Linear().on(slice(0, 5), StandardScaler())},
        {"kernels": "linear", "regularizer": "lp_ball", "solver": "spg"},
    ],
    ids=str,
)
def test_samples_around_the_origin_give_a_warning_and_zeros(options):
    X = np.random.default_rng(0).normal(size=(300, 5))
    X -= X.mean(axis=0)
    with pytest.warns(UserWarning, match="surround the origin") as caught:
        model = MKLOneClass(**options).fit(X)
    assert not [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert model.converged_ and model.gap_ == 0.0 and len(model.history_) <= 60
    assert np.abs(model.score_samples(X)).max() < 1e-2


def test_a_zero_kernel(blob):
    zero = from_matrices([np.zeros((N, N))])
    with pytest.warns(UserWarning, match="surround the origin"):
        model = MKLOneClass(zero, normalize=None).fit(sample_ids(N))
    assert (model.predict(sample_ids(N)) == 1).all()


# scikit-learn


def test_outlier_api(blob):
    model = MKLOneClass(VIEWS, nu=0.1)
    assert is_outlier_detector(model)
    assert not get_tags(model).target_tags.required
    labels = model.fit_predict(blob, np.arange(len(blob)))
    assert set(labels) == {-1, 1}
    decisions = model.decision_function(blob)
    np.testing.assert_array_equal(labels, np.where(decisions >= 0, 1, -1))
    np.testing.assert_allclose(model.score_samples(blob) - model.offset_, decisions)
    assert isinstance(model.offset_, float)
    assert model.intercept_.tolist() == [-model.offset_]
    # Far away from everything no kernel has anything to say.
    np.testing.assert_allclose(model.score_samples(np.full((1, 4), 1e3)), 0.0, atol=1e-12)
    copy = pickle.loads(pickle.dumps(model))
    assert_same_numbers(copy.decision_function(blob), decisions)
    assert_same_numbers(clone(model).fit(blob).decision_function(blob), decisions, AFTER_A_FIT)


def test_the_learnt_kernel_serves_others(blob):
    model = MKLOneClass(VIEWS, nu=0.2, tol=1e-7, regularizer=LpBall(2.0)).fit(blob)
    assert model.transform(blob[:5]).shape == (5, len(blob))
    svm = OneClassSVM(kernel=model.as_kernel(), nu=0.2, tol=1e-9).fit(blob)
    np.testing.assert_allclose(
        0.2 * len(blob) * model.decision_function(blob), svm.decision_function(blob), atol=2e-3
    )
    chain = make_pipeline(model, OneClassSVM(kernel="precomputed", nu=0.2, tol=1e-9)).fit(blob)
    np.testing.assert_allclose(
        chain.decision_function(blob), svm.decision_function(blob), atol=1e-3
    )


def test_frames_sparse_matrices_and_precomputed_ids(blob):
    plain = MKLOneClass(VIEWS, nu=0.2).fit(blob)
    frame = pd.DataFrame(blob, columns=list("abcd"))
    named = MKLOneClass([RBF(width=1.0).on([c]) for c in "abcd"], nu=0.2).fit(frame)
    np.testing.assert_allclose(named.decision_function(frame), plain.decision_function(blob))
    assert named.feature_names_in_.tolist() == list("abcd")
    csr = MKLOneClass([RBF(width=1.0), RBF(width=2.0)]).fit(sparse.csr_array(blob))
    assert csr.predict(sparse.csr_array(blob)).shape == (len(blob),)


def test_reports(blob):
    model = MKLOneClass(VIEWS, nu=0.1, regularizer="lp_ball").fit(blob)
    text = summary_text(model)
    assert text.startswith("MKLOneClass: converged after")
    assert "4 of 4" in text and f"{model.gap_:.1e}" in text
    figure = fit_figure(make_pipeline(StandardScaler(), MKLOneClass(nu=0.1)).fit(blob))
    curve = figure.axes[1].lines[0].get_ydata()
    assert min(curve) <= 1e-3


def test_unknown_fit_arguments_are_named(blob):
    with pytest.raises(TypeError, match="unexpected arguments"):
        MKLOneClass().fit(blob, weight=1)
