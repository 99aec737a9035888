"""SILP, the wrapper: the same optimum as SPG on all kinds of problems, or an honest warning."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

import kernelweave.solvers.bundle as bundle
from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.bank import DenseBank, FactoredBank, LazyBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers import SILP, SPG, Limits, solve
from kernelweave.solvers.cuts import CutLP

LOSSES = ["hinge", "logistic", "squared", "epsilon_insensitive", "one_class"]
SMOOTH_OR_NOT = [*LOSSES, "squared_hinge", "smooth_hinge"]
SPARSE = [Simplex(), L1(0.7)]
CURVED = [LpBall(2.0), ElasticNet(1.0, 0.5), Entropy(0.5), BlockNorm(2, 2.0, 0.7), SquaredLp(2.0)]


def matrices(n=24, m=6, seed=0):
    rng = np.random.default_rng(seed)
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(n, 2 + k)) for k in range(m))]


def make(name, regularizer, n=24, m=6, C=(0.5, 2.0), n_tasks=1, seed=0, Ks=None):
    rng = np.random.default_rng(seed)
    Ks = matrices(n, m, seed) if Ks is None else Ks
    n = len(Ks[0])
    loss = get_loss(name)
    y = rng.normal(size=(n_tasks, n)) + Ks[0] @ rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weights = rng.uniform(*C, size=y.shape)
    if name == "one_class":
        weights = np.full(y.shape, 1.0 / (0.4 * n))
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, weights, loss, regularizer, WeightedSum())


def allowed(name, regularizer):
    return name != "one_class" or regularizer.bounded


def pairs(names, regularizers):
    return [(name, reg) for name in names for reg in regularizers if allowed(name, reg)]


def fit_honestly(problem, solver=None, **limits):
    """Fit, and check that the result is sound and that it says the truth about itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = solve(problem, solver or SILP(), Limits(**limits))
    told = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert len(caught) == len(told) == (0 if result.converged else 1)
    certificate = result.certificate
    assert np.isfinite(result.d).all() and np.isfinite(result.alpha).all()
    assert np.isfinite([certificate.primal, certificate.dual, certificate.gap]).all()
    assert result.d.min() >= 0
    assert result.converged == (certificate.gap <= limits["tol"])
    assert certificate.dual <= certificate.primal + 1e-9 * max(1.0, abs(certificate.primal))
    return result


def bracketed(result, reference):
    """Whether two certificates leave room for a common optimum."""
    slack = 1e-9 * max(1.0, abs(reference.certificate.primal))
    one, other = result.certificate, reference.certificate
    return one.dual <= other.primal + slack and other.dual <= one.primal + slack


# The same optimum


@pytest.mark.parametrize(("name", "regularizer"), pairs(LOSSES, SPARSE), ids=str)
def test_plain_stabilised_and_spg_agree(name, regularizer):
    problem = make(name, regularizer)
    reference = fit_honestly(problem, SPG(), tol=1e-6, max_iter=5000)
    plain = fit_honestly(problem, SILP(stabilise=False), tol=1e-5, max_iter=2000)
    level = fit_honestly(problem, tol=1e-5)
    assert plain.converged and level.converged and reference.converged
    for result in (plain, level):
        assert bracketed(result, reference)
        np.testing.assert_allclose(result.d, reference.d, atol=0.02 * max(1, reference.d.max()))
    assert len(level.history) <= len(plain.history)


@pytest.mark.parametrize("name", ["hinge", "squared", "one_class"])
def test_the_master_never_falls_and_never_passes_the_optimum(monkeypatch, name):
    """On the simplex, where idle rows are dropped but never one that matters."""
    problem = make(name, Simplex(), n=40, m=12)
    optimum = solve(problem, SILP(), Limits(tol=1e-8)).certificate.primal
    values, solved = [], CutLP.solve

    def watched(self, limit=1.0):
        found = solved(self, limit)
        values.append(found.value)
        return found

    monkeypatch.setattr(CutLP, "solve", watched)
    for stabilise in (True, False):
        values.clear()
        result = solve(problem, SILP(stabilise), Limits(tol=1e-5, max_iter=2000))
        slack = 2e-6 * max(1.0, abs(optimum))
        # While steps over the curvature do well there is no master.
        assert result.converged and (stabilise or len(values) >= 3)
        if not values:
            continue
        assert np.all(np.diff(values) >= -slack) and max(values) <= optimum + slack
        # And the certificate knows at least as much as the best master.
        assert max(record.dual for record in result.history) >= max(values) - slack


# Programs without an answer


def no_program(self, limit):
    return False, np.empty(0), np.empty(0)


def no_level(*args):
    return None


@pytest.mark.parametrize("missing", ["program", "level", "both"])
@pytest.mark.parametrize(("name", "regularizer"), pairs(["logistic", "one_class"], SPARSE), ids=str)
def test_steps_go_on_without_a_program(monkeypatch, name, regularizer, missing):
    problem = make(name, regularizer)
    reference = solve(problem, SPG(), Limits(tol=1e-6, max_iter=5000))
    if missing != "level":
        monkeypatch.setattr(CutLP, "_run", no_program)
    if missing != "program":
        monkeypatch.setattr(bundle, "nearest_below", no_level)
    result = fit_honestly(problem, tol=1e-5)
    assert result.converged and bracketed(result, reference)


@pytest.mark.parametrize("regularizer", SPARSE, ids=repr)
@pytest.mark.parametrize("name", ["hinge", "squared"])
def test_plain_cutting_planes_without_highs_end_honestly(monkeypatch, name, regularizer):
    """Only closed-form steps are left, which never enter a kernel again but never ascend."""
    problem = make(name, regularizer)
    reference = solve(problem, SPG(), Limits(tol=1e-6, max_iter=5000))
    monkeypatch.setattr(CutLP, "_run", no_program)
    result = fit_honestly(problem, SILP(stabilise=False), tol=1e-3, max_iter=500)
    assert result.converged and bracketed(result, reference)
    values = [record.primal for record in result.history]
    assert values[-1] < values[0]
    few = fit_honestly(problem, SILP(stabilise=False), tol=1e-9, max_iter=20)
    assert bracketed(few, reference)


def test_highs_that_fails_now_and_then_changes_nothing(monkeypatch):
    problem = make("hinge", Simplex(), n=40, m=12)
    reference = solve(problem, SILP(stabilise=False), Limits(tol=1e-5, max_iter=2000))
    run, calls = CutLP._run, []

    def moody(self, limit):
        calls.append(1)
        right = run(self, limit)
        return (True, np.full_like(right[1], np.nan), right[2]) if len(calls) % 3 == 0 else right

    monkeypatch.setattr(CutLP, "_run", moody)
    result = fit_honestly(problem, SILP(stabilise=False), tol=1e-5, max_iter=2000)
    assert result.converged and bracketed(result, reference)


# Problems that are no fun


def zero_kernel(Ks):
    return [*Ks[:-1], np.zeros_like(Ks[0])]


def duplicates(Ks):
    return [Ks[0], Ks[0], Ks[1], Ks[1], Ks[1], Ks[2]]


def only_zeros(Ks):
    return [np.zeros_like(Ks[0])] * 6


def constant_kernels(Ks):
    return [np.ones_like(Ks[0])] * 6


@pytest.mark.parametrize("change", [zero_kernel, duplicates, only_zeros, constant_kernels])
@pytest.mark.parametrize(("name", "regularizer"), pairs(LOSSES, [*SPARSE, LpBall(2.0)]), ids=str)
def test_odd_kernels(name, regularizer, change):
    problem = make(name, regularizer, Ks=change(matrices()))
    result = fit_honestly(problem, tol=1e-5)
    assert result.converged
    if change is duplicates:
        plain = replace(problem, bank=DenseBank().from_matrices(matrices()[:3]))
        if not isinstance(regularizer, LpBall):
            assert bracketed(result, solve(plain, SILP(), Limits(tol=1e-5)))


@pytest.mark.parametrize(("name", "regularizer"), pairs(LOSSES, [*SPARSE, *CURVED]), ids=str)
def test_few_kernels_and_few_samples(name, regularizer):
    tiny = make(name, regularizer, n=4)
    assert fit_honestly(tiny, tol=1e-5).converged
    if not isinstance(regularizer, BlockNorm):
        single = make(name, regularizer, m=1)
        result = fit_honestly(single, tol=1e-7)
        assert result.converged
        assert bracketed(result, solve(single, SPG(), Limits(tol=1e-6, max_iter=3000)))


@pytest.mark.parametrize(
    ("name", "regularizer", "C"),
    thinned(
        ["hinge", "logistic", "squared", "epsilon_insensitive"],
        [*SPARSE, *CURVED],
        [1e-6, 1e6, 1e-2],
        keep=3,
    ),
    ids=str,
)
def test_extreme_loss_weights(name, regularizer, C):
    """With a small C all alpha are at their bounds, and only the price bends the objective.

    With a large one the last digits of the decision values count a million times.
    """
    result = fit_honestly(make(name, regularizer, C=(C, C)), tol=1e-5)
    assert result.certificate.gap <= (1e-5 if C < 1 else 1e-3)


@pytest.mark.parametrize(
    "problem",
    [
        # Far from the first weights, where a master's value is no bound.
        make("hinge", L1(1e-3), n=30, m=8, C=(0.1, 0.1)),
        make("logistic", L1(1e-4), n=30, m=8, C=(1.0, 1.0)),
        # Where rough alphas made distances count ever more.
        make("squared_hinge", Simplex(), n=30, m=30, seed=2),
        make("logistic", Simplex(), n=30, m=20, C=(10, 50)),
        # Where no alpha is free.
        make("epsilon_insensitive", ElasticNet(1.0, 0.6), m=20, C=(0.01, 0.05)),
        make("epsilon_insensitive", BlockNorm(2, 2.0, 0.7), m=20, C=(0.01, 0.05)),
    ],
    ids=lambda problem: f"{problem.loss}-{problem.regularizer}",
)
def test_problems_that_get_other_steps_stuck(problem):
    result = fit_honestly(problem, tol=1e-6)
    assert result.converged and len(result.history) < 60


def test_sizes_for_which_a_closed_form_step_promises_far_too_much():
    """Up to 1e12, where float64 cannot tell the last digits: the certificate counts those too."""
    Ks = [10.0 ** (4 * k - 8) * K for k, K in enumerate(matrices())]
    result = fit_honestly(make("squared", LpBall(2.0), Ks=Ks), tol=1e-6)
    certificate = result.certificate
    # How much is lost depends on the processor, that nothing else is in the way does not.
    assert certificate.gap - certificate.approximation <= certificate.approximation
    assert 1e-6 < certificate.gap <= 100 * certificate.rounding < 10
    assert len(result.history) < 300


def test_plain_cutting_planes_far_from_the_first_weights():
    problem = make("hinge", L1(1e-3), n=30, m=8, C=(0.1, 0.1))
    plain = fit_honestly(problem, SILP(stabilise=False), tol=1e-6, max_iter=300)
    assert plain.converged and bracketed(plain, solve(problem, SILP(), Limits(tol=1e-6)))


def small_gaussians(n, m, seed):
    """Gaussian kernels of random widths on one to three of 20 features, and labels."""
    X, y = make_classification(
        n, n_features=20, n_informative=6, n_redundant=4, flip_y=0.05, random_state=seed
    )
    X, rng = (X - X.mean(axis=0)) / X.std(axis=0), np.random.default_rng(seed)
    Ks = []
    for _ in range(m):
        own = X[:, rng.choice(20, size=rng.integers(1, 4), replace=False)]
        width = 2.0 ** rng.uniform(-2, 4) * own.shape[1]
        Ks.append(np.exp(-np.sum((own[:, None] - own[None]) ** 2, axis=2) / width))
    return Ks, np.where(y > 0, 1.0, -1.0)[None]


@pytest.mark.parametrize("name", ["hinge", "epsilon_insensitive"])
@pytest.mark.parametrize("seed", [1, 5, 7])
def test_plain_cutting_planes_end_by_their_own_rule(name, seed):
    """Some gave up at 5e-4: alpha was made as exact as could be for what an old one owed."""
    Ks, y = small_gaussians(190, 40, seed)
    problem = replace(make(name, Simplex(), Ks=Ks), y=y, C=np.ones_like(y))
    assert fit_honestly(problem, SILP(stabilise=False), tol=1e-5, max_iter=1000).converged


@pytest.mark.parametrize("regularizer", [*SPARSE, LpBall(2.0)], ids=repr)
def test_plain_cutting_planes_start_at_equal_weights(regularizer):
    Ks, y = small_gaussians(40, 70, seed=0)
    problem = replace(make("hinge", regularizer, Ks=Ks), y=y, C=np.ones_like(y))
    first = fit_honestly(problem, SILP(stabilise=False), tol=1e-9, max_iter=0)
    assert first.d[0] > 0 and np.ptp(first.d) == 0


@pytest.mark.parametrize(("name", "regularizer"), pairs(SMOOTH_OR_NOT, SPARSE), ids=str)
def test_to_eight_digits(name, regularizer):
    result = fit_honestly(make(name, regularizer), tol=1e-8)
    assert result.converged


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0)], ids=repr)
@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_what_rounding_forbids_is_given_up_in_time(name, regularizer):
    problem = make(name, regularizer, n=40, m=12, C=(50.0, 200.0))
    result = fit_honestly(problem, tol=1e-18)
    assert result.reason == "stuck" and len(result.history) < 200
    assert result.certificate.gap < 1e-7


@pytest.mark.parametrize("name", ["squared", "epsilon_insensitive"])
@pytest.mark.parametrize("regularizer", [*SPARSE, LpBall(2.0), ElasticNet(1.0, 0.5)], ids=repr)
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_constant_target(name, regularizer, value):
    problem = make(name, regularizer)
    problem = replace(problem, y=np.full_like(problem.y, value))
    result = fit_honestly(problem, tol=1e-6)
    assert result.converged
    assert result.certificate.primal == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("regularizer", [*SPARSE, LpBall(2.0)], ids=repr)
@pytest.mark.parametrize("name", ["hinge", "logistic", "squared"])
def test_samples_of_weight_zero_do_not_matter(name, regularizer):
    problem = make(name, regularizer)
    kept = np.arange(problem.n) % 3 != 0
    zeros = replace(problem, C=np.where(kept, problem.C, 0.0))
    result = fit_honestly(zeros, tol=1e-6)
    assert result.converged and not result.alpha[:, ~kept].any()
    Ks = [K[np.ix_(kept, kept)] for K in matrices()]
    few = replace(
        problem,
        bank=DenseBank().from_matrices(Ks),
        y=problem.y[:, kept],
        C=problem.C[:, kept],
    )
    assert bracketed(result, solve(few, SILP(), Limits(tol=1e-6)))


# Banks


@pytest.fixture(scope="module")
def kernels():
    X, y = load_breast_cancer(return_X_y=True)
    specs = [RBF(width=w) for w in (2.0, 20.0, 200.0)] + [Linear().on(0), RBF(width=3.0).on(1)]
    return ComputedOperator.build(specs, X[:150]), np.where(y[:150] > 0, 1.0, -1.0)[None]


def stacked(kernels):
    parts = [[2, 0], [1, 4], [3]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-9)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


BANKS = {
    "factored": FactoredBank(1e-9).build,
    "coarse": FactoredBank(1e-2).build,
    "lazy": LazyBank().build,
    "stacked": stacked,
}


@pytest.mark.parametrize(
    ("bank", "name", "formed"), thinned(BANKS, ["hinge", "logistic"], [True, False])
)
def test_every_bank_gives_the_dense_optimum(kernels, bank, name, formed):
    """With and without a combined matrix; a coarse bank is refined, a rough one confirmed."""
    kernel_set, y = kernels
    C = np.full(y.shape, 2.0)
    dense = DenseBank().build(kernel_set)
    exact = Problem(dense, y, C, get_loss(name), Simplex(), WeightedSum())
    reference = solve(exact, SILP(), Limits(tol=1e-6))
    other = BANKS[bank](kernel_set)
    if not formed:
        other.matrix_limit = 0
    result = fit_honestly(exact.with_bank(other), tol=1e-4)
    assert result.converged and bracketed(result, reference)


# From the estimators


def test_classes_that_share_their_weights():
    X, y = load_iris(return_X_y=True)
    reference = MKLClassifier("simplemkl", solver="spg", tol=1e-5).fit(X, y)
    model = MKLClassifier("simplemkl", solver="silp", tol=1e-5).fit(X, y)
    assert model.converged_ and model.weights_.shape == reference.weights_.shape
    assert model.objective_ == pytest.approx(reference.objective_, rel=2e-5)
    own = MKLClassifier("simplemkl", solver="silp", multi_class="ovr").fit(X, y)
    assert own.converged_ and own.weights_.shape[0] == 3


def test_a_path_of_C_by_warm_starts():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::6], y[::6]
    warm = MKLClassifier("simplemkl", solver="silp", warm_start=True, tol=1e-4)
    solves = {"warm": 0, "cold": 0}
    # Near each other: far apart, a warm start may take as many steps as a cold one.
    for C in (1.0, 1.1, 1.2, 1.3):
        warm.set_params(C=C).fit(X, y)
        cold = MKLClassifier("simplemkl", solver="silp", C=C, tol=1e-4).fit(X, y)
        assert warm.converged_ and cold.converged_
        assert warm.objective_ == pytest.approx(cold.objective_, rel=3e-4)
        solves["warm"] += warm.history_[-1].inner_iterations
        solves["cold"] += cold.history_[-1].inner_iterations
    assert solves["warm"] < solves["cold"]


def test_regression_and_one_class():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:120], y[:120] / y.std()
    for loss in ("epsilon_insensitive", "squared"):
        model = MKLRegressor("simplemkl", loss=loss, solver="silp").fit(X, y)
        other = MKLRegressor("simplemkl", loss=loss, solver="active-set").fit(X, y)
        assert model.converged_
        assert model.objective_ == pytest.approx(other.objective_, rel=2e-3)
    kernels = [RBF(width=1.0).on(k) for k in range(5)]
    one = MKLOneClass(kernels, nu=0.2, solver="silp", tol=1e-4).fit(X)
    other = MKLOneClass(kernels, nu=0.2, solver="spg", tol=1e-4).fit(X)
    assert one.converged_
    assert one.objective_ == pytest.approx(other.objective_, rel=3e-4)


def test_sample_weights_count_as_copies():
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:60], y[:60]
    weight = np.arange(60) % 3
    kernels = [RBF(width=30.0), RBF(width=300.0), RBF(width=3.0).on(0)]
    model = MKLClassifier(kernels, solver="silp", tol=1e-6, normalize=None)
    weighted = model.fit(X, y, sample_weight=weight).objective_
    rows = np.repeat(np.arange(60), weight)
    assert weighted == pytest.approx(model.fit(X[rows], y[rows]).objective_, rel=1e-5)


# Stopping


def test_limits_are_kept_and_said():
    problem = make("hinge", Simplex(), n=40, m=12)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = solve(problem, SILP(), Limits(tol=1e-9, max_iter=2))
    assert len(short.history) == 3 and short.reason == "max_iter"
    with pytest.warns(ConvergenceWarning, match="max_time"):
        quick = solve(problem, SILP(), Limits(tol=1e-9, max_time=1e-9))
    assert len(quick.history) == 1
    reference = solve(problem, SILP(), Limits(tol=1e-6))
    assert bracketed(short, reference) and bracketed(quick, reference)


def test_a_callback_and_ctrl_c_end_a_fit_with_the_best_so_far():
    problem = make("logistic", Simplex(), n=40, m=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = solve(
            problem, SILP(), Limits(tol=1e-9, callbacks=[lambda record: record.iteration == 2])
        )
    assert stopped.reason == "callback" and len(stopped.history) == 3

    def interrupt(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="best point so far"):
        result = solve(problem, SILP(), Limits(tol=1e-9, callbacks=[interrupt]))
    assert result.reason == "interrupted" and not result.converged
    assert result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6)


def test_ctrl_c_in_a_step_keeps_the_witness(monkeypatch):
    """The certificate taken at the end is as good as the one shown on the way."""
    problem = make("hinge", Simplex(), n=40, m=12)
    propose, calls = bundle.CuttingPlanes.propose, []

    def interrupted(self, gap):
        calls.append(gap)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return propose(self, gap)

    monkeypatch.setattr(bundle.CuttingPlanes, "propose", interrupted)
    with pytest.warns(InterruptedFitWarning):
        result = solve(problem, SILP(), Limits(tol=1e-9))
    assert result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6)


def test_what_is_not_supported_is_refused_with_what_is():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidInputError, match=r"silp.*combination='sum'.*spg"):
        MKLClassifier(solver="silp", combination="product", regularizer="l1").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"'simplex', 'l1'.*LogDet"):
        MKLClassifier("rbf", solver="silp", regularizer="log_det").fit(X, y)


def test_given_weights_are_kept():
    fixed = Fixed([0.5, 0.0, 0.2, 0.1, 0.1, 0.1])
    result = fit_honestly(make("hinge", fixed), tol=1e-6)
    assert result.converged
    np.testing.assert_array_equal(result.d, fixed.weights)
