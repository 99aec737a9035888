"""Bayesian MKL equals the model written out, factor by factor and update by update."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from bemkl_literal import (
    ONES,
    UPDATES,
    Problem,
    lower_bound,
    predict,
    predictive_variance,
    start,
)
from same_numbers import AFTER_A_FIT, assert_same_numbers
from thinned import thinned

from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.bayes import (
    BayesRecord,
    Ensemble,
    Hyperparameters,
    Labels,
    Outputs,
    Posterior,
    Settings,
    infer,
    sum_of_squares,
)
from kernelweave.bayes.matrices import ThinMatrix
from kernelweave.compiled.threads import use_threads
from kernelweave.kernels import RBF, Linear, Polynomial
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.solvers import Limits

SPARSE = {"alpha_omega": 1e-10, "beta_omega": 1e10}
SKEWED = {name: float(value) for value, name in zip(np.linspace(0.6, 2.0, 8), ONES, strict=True)}
# Name: T, then what differs from labels, margin 1, sigma_g = 1 and all priors 1.
VARIANTS = {
    "binary": (1, {}),
    "classes": (3, dict(sigma_g=0.6, priors=SKEWED)),
    "unlabelled": (2, dict(unknown=0.4)),
    "no-margin": (1, dict(margin=0.0, unknown=0.3)),
    "sparse": (2, dict(priors=SPARSE)),
    "output": (1, dict(regression=True)),
    "outputs": (3, dict(regression=True, sigma_g=1.7, priors=SKEWED)),
    "sparse-outputs": (2, dict(regression=True, priors=SPARSE)),
}


def points(n, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(n, columns))


def dense_bank(n, m):
    kernels = [RBF(width=0.5 + 0.2 * k).on(k % 3) for k in range(m)]
    return DenseBank().build(ComputedOperator.build(kernels, points(n, 3), normalize="diagonal"))


def thin_kernels(n, m):
    columns = [[k % 4, (k + 1 + k // 4) % 4] for k in range(m)]
    kernels = [
        Linear().on(own) if k % 2 else Polynomial(2).on(k % 4) for k, own in enumerate(columns)
    ]
    return ComputedOperator.build(kernels, points(n, 4), normalize="trace")


def factored_bank(n, m):
    return FactoredBank(1e-12).build(thin_kernels(n, m))


def stacked_bank(n, m):
    kernels, cut = thin_kernels(n, m), m // 2
    members = [np.arange(cut, m), np.arange(cut)]
    plans = [FactoredBank(1e-12), DenseBank()]
    parts = [plan.build(kernels.select(own)) for plan, own in zip(plans, members, strict=True)]
    return StackedOperator(parts, members)


def stacked_factors(n, m):
    kernels = thin_kernels(n, m)
    members = [np.arange(0, m, 2), np.arange(1, m, 2)]
    parts = [FactoredBank(1e-12).build(kernels.select(own)) for own in members]
    return StackedOperator(parts, members)


def make(bank, variant, seed=0):
    """The library's targets and settings, and the same problem for the referee."""
    n_tasks, options = VARIANTS[variant]
    options = dict(options)
    rng = np.random.default_rng(seed)
    K = bank.block(np.arange(bank.n)).astype(np.float64)
    signal = np.einsum("kij,tj->ti", K[: max(1, bank.m // 2)], rng.normal(size=(n_tasks, bank.n)))
    signal = signal / signal.std(axis=1, keepdims=True) + 0.3 * rng.normal(size=signal.shape)
    unknown = rng.random(signal.shape) < options.pop("unknown", 0.0)
    regression = options.get("regression", False)
    y = signal if regression else np.where(unknown, 0.0, np.sign(signal))
    changed = options.pop("priors", {})
    problem = Problem(K, y, priors={**ONES, **changed}, **options)
    targets = Outputs(y) if regression else Labels(y, problem.margin)
    return targets, Settings(Hyperparameters(**changed), problem.sigma_g), problem


def literal_start(problem, ensemble):
    drawn = np.zeros((*problem.y.shape[:1], len(problem.K) + 1, problem.y.shape[1]))
    G = ensemble.outputs.mean.transpose(1, 0, 2)
    return start(problem, drawn, f=ensemble.targets.mean, G=G)


def literal_name(problem, name):
    last = "upsilon" if problem.regression else "f"
    return last if name == "targets" else name


def same(got, expected, rtol, what):
    """To `rtol` of the largest entry."""
    scale = max(float(np.abs(expected).max()), 1e-30)
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=rtol * scale, err_msg=what)


def sample_covariance(ensemble, t, n):
    parts = ensemble.samples.covariance().of_tasks()[t].signed_roots(np.eye(n))
    return sum(sign * Y @ Y.T for sign, Y in parts)


def compare(ensemble, problem, state, rtol):
    T, m, n = problem.shape
    weights = ensemble.weights
    for name, gamma in (
        ("lambda", ensemble.lam),
        ("gamma", ensemble.gamma),
        ("omega", ensemble.omega),
    ):
        same(gamma.shape, getattr(state, f"{name}_shape"), rtol, name)
        # Of very different sizes with the sparse prior: entry by entry.
        np.testing.assert_allclose(gamma.scale, getattr(state, f"{name}_scale"), rtol=10 * rtol)
    same(ensemble.samples.mean, state.a_mean, rtol, "mean of a")
    same(ensemble.samples.variance, np.diagonal(state.a_cov, axis1=1, axis2=2), rtol, "var of a")
    same(ensemble.outputs.mean.transpose(1, 0, 2), state.G_mean, rtol, "mean of G")
    for t in range(T):
        same(sample_covariance(ensemble, t, n), state.a_cov[t], rtol, "covariance of a")
        covariance = ensemble.outputs.covariances[ensemble.outputs.levels[t]]
        same(covariance.apply(np.eye(m)), state.G_cov[t], rtol, "cov of G")
    same(weights.e_mean, state.be_mean[T:], rtol, "mean of e")
    same(weights.b_mean, state.be_mean[:T], rtol, "mean of b")
    same(weights.covariance.apply(np.eye(m)), state.be_cov[T:, T:], rtol, "cov of e")
    same(weights.e_variance, np.diag(state.be_cov)[T:], rtol, "variance of e")
    same(weights.b_variance, np.diag(state.be_cov)[:T], rtol, "variance of b")
    same(weights.covariance_be, state.be_cov[:T, T:], rtol, "covariance of b and e")
    if problem.regression:
        same(ensemble.targets.precision, state.upsilon_shape * state.upsilon_scale, rtol, "upsilon")


def assert_follows(bank, variant, iterations, rtol=1e-9, slack=1e-11, seed=0):
    """Both implementations side by side; every factor and the bound after every update."""
    targets, settings, problem = make(bank, variant, seed)
    ensemble = Ensemble(bank, targets, settings, seed)
    state = literal_start(problem, ensemble)
    bound = -np.inf
    for iteration in range(iterations):
        for name in Ensemble.UPDATES:
            ensemble.update(name)
            state = UPDATES[literal_name(problem, name)](problem, state)
            if iteration == 0 and name != "targets":
                continue  # The start is no state of the factors: nothing to compare yet.
            now = ensemble.lower_bound()
            assert now == pytest.approx(lower_bound(problem, state), rel=rtol), (iteration, name)
            assert now >= bound - slack * abs(now), (iteration, name)
            bound = now
        compare(ensemble, problem, state, rtol)
    return ensemble, problem, state


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_samples_than_kernels(variant):
    assert_follows(dense_bank(14, 4), variant, 5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_kernels_than_samples(variant):
    assert_follows(dense_bank(6, 15), variant, 5)


@pytest.mark.parametrize("variant", ["binary", "classes", "unlabelled", "sparse", "output"])
def test_many_more_kernels_than_samples(variant):
    """Where the matrices of the kernel weights are a diagonal and few columns, nearly all kept."""
    n = 5 if VARIANTS[variant][0] == 1 else 3
    bank = dense_bank(n, 24 * n * VARIANTS[variant][0])
    ensemble, _, _ = assert_follows(bank, variant, 4, rtol=1e-7)
    assert isinstance(ensemble.weights.precision, ThinMatrix)


@pytest.mark.parametrize("variant", ["binary", "sparse", "output"])
def test_columns_left_out_hardly_count(variant):
    ensemble, _, _ = assert_follows(dense_bank(5, 120), variant, 14, rtol=1e-4, slack=1e-7)
    assert isinstance(ensemble.weights.precision, ThinMatrix)


def test_columns_that_stop_being_few():
    """At this ratio the columns of the second iteration are too many to stay thin."""
    ensemble, _, _ = assert_follows(dense_bank(8, 50), "binary", 5)
    assert not isinstance(ensemble.weights.precision, ThinMatrix)


def test_an_update_again_when_the_columns_have_stopped_being_few():
    """Then the precision is in full while the covariances of q(G) are still thin."""
    bank = dense_bank(8, 50)
    ensemble = Ensemble(bank, *make(bank, "binary")[:2], 0)
    while isinstance(ensemble.weights.precision, ThinMatrix):
        ensemble.iterate()
    assert isinstance(ensemble.outputs.covariances[0], ThinMatrix)
    before = ensemble.lower_bound()
    for name in ("omega", "be", "targets", "lambda", "a", "G"):
        ensemble.update(name)
        after = ensemble.lower_bound()
        assert after >= before - 1e-11 * abs(before)
        before = after


def test_updates_between_iterations_count():
    """The samples' factors are found ahead, from q(G); another q(G) asks for others."""
    bank = dense_bank(12, 4)
    plain, mixed = (Ensemble(bank, *make(bank, "binary")[:2], 0) for _ in range(2))
    with use_threads(2):
        mixed.iterate()
        mixed.update("G")
        mixed.iterate()
    for name in (*plain.UPDATES, "G", *plain.UPDATES):
        plain.update(name)
    assert mixed.lower_bound() == plain.lower_bound()


@pytest.mark.parametrize(
    ("bank", "variant"),
    thinned([factored_bank, stacked_bank, stacked_factors], ["classes", "outputs", "sparse"]),
)
def test_factored_and_stacked_banks(bank, variant):
    assert_follows(bank(40, 5), variant, 4, rtol=1e-8)


@pytest.mark.parametrize("variant", ["binary", "classes", "output"])
def test_squares_of_low_rank(variant):
    """Sample weights through the few rows whose squares are the sum of squared kernels."""
    for bank in (factored_bank(40, 5), stacked_factors(40, 5)):
        assert isinstance(sum_of_squares(bank), ThinMatrix)
        assert_follows(bank, variant, 4, rtol=1e-8)


def test_low_rank_found_in_dense_kernels():
    bank = DenseBank().build(thin_kernels(300, 4))
    assert isinstance(sum_of_squares(bank), ThinMatrix)
    assert_follows(bank, "binary", 2, rtol=1e-8)


@pytest.mark.parametrize(("n", "m", "variant"), [(560, 2, "binary"), (4, 540, "outputs")])
def test_matrices_in_blocks(n, m, variant):
    """Large and of full rank: factors and inverses come block by block."""
    half = np.random.default_rng(2).normal(size=(m, n, 2 * n)) / np.sqrt(2 * n)
    bank = DenseBank().from_matrices(list(half @ half.transpose(0, 2, 1)))
    assert not isinstance(sum_of_squares(bank), ThinMatrix)
    ensemble, _, _ = assert_follows(bank, variant, 2, rtol=1e-8)
    assert not isinstance(ensemble.weights.precision, ThinMatrix)


@pytest.mark.parametrize("variant", ["binary", "sparse", "outputs"])
def test_many_iterations_stay_together(variant):
    """Rounding does not build up, also near the fixed point and with weights at zero."""
    assert_follows(dense_bank(10, 4), variant, 25, rtol=1e-7)


@pytest.mark.parametrize(("variant", "shape"), thinned(VARIANTS, [(12, 4), (5, 130)]), ids=str)
def test_predictions(variant, shape):
    bank = dense_bank(*shape)
    rtol = 1e-9 if bank.m < 100 else 1e-7  # Of many kernels some columns are left out.
    ensemble, problem, state = assert_follows(bank, variant, 4, rtol)
    line = BayesRecord(4, 0.0, ensemble.lower_bound(), 0.0, bank.m)
    found = Posterior.of(ensemble, [line], "max_iter")
    cross = np.random.default_rng(5).uniform(size=(bank.m, 7, bank.n))
    every = np.arange(bank.m)
    same(found.mean(cross, every), predict(problem, state, cross), rtol, "mean")
    noise = found.noise_variance
    expected = predictive_variance(problem, state, cross, noise)
    same(found.variance(cross, every), expected, rtol, "variance")
    if problem.regression:
        # E[1 / upsilon] of a gamma.
        same(noise, 1.0 / (state.upsilon_scale * (state.upsilon_shape - 1.0)), rtol, "noise")
    else:
        np.testing.assert_array_equal(noise, 1.0)
    # Some kernels only: as if the others had weight zero for certain.
    few = np.array([2, 0])
    kept = np.zeros(len(problem.y) + bank.m, dtype=bool)
    kept[: len(problem.y)] = True
    kept[len(problem.y) + few] = True
    alone = type(state)(
        **{
            **vars(state),
            "be_mean": np.where(kept, state.be_mean, 0.0),
            "be_cov": np.where(np.outer(kept, kept), state.be_cov, 0.0),
        }
    )
    same(found.mean(cross[few], few), predict(problem, alone, cross), rtol, "mean of few")
    expected = predictive_variance(problem, alone, cross, noise)
    same(found.variance(cross[few], few), expected, rtol, "variance of few")


@pytest.mark.parametrize("variant", ["binary", "classes", "outputs"])
def test_infer_is_these_iterations(variant):
    bank = dense_bank(12, 4)
    targets, settings, _ = make(bank, variant)
    ensemble = Ensemble(bank, targets, settings, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = infer(bank, targets, settings, Limits(max_iter=4, tol=0.0), 3)
    for line in found.history:
        ensemble.iterate()
        assert line.lower_bound == pytest.approx(ensemble.lower_bound(), rel=AFTER_A_FIT)
    assert_same_numbers(found.e_mean, ensemble.weights.e_mean, AFTER_A_FIT)
    assert_same_numbers(found.a_mean, ensemble.samples.mean, AFTER_A_FIT)


@pytest.mark.parametrize("variant", ["binary", "classes", "sparse", "outputs"])
def test_history_never_falls(variant):
    bank = dense_bank(30, 6)
    targets, settings, _ = make(bank, variant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = infer(bank, targets, settings, Limits(max_iter=120, tol=0.0), 0)
    bounds = np.array([line.lower_bound for line in found.history])
    assert np.all(np.diff(bounds) >= -1e-11 * np.abs(bounds[1:]))


@pytest.mark.parametrize("shape", [(600, 3), (20, 600)])
@pytest.mark.parametrize("variant", ["classes", "outputs"])
def test_same_bits_on_one_and_two_threads(shape, variant):
    bank = dense_bank(*shape)
    targets, settings, _ = make(bank, variant)
    found = []
    for n_jobs in (1, 2):
        with use_threads(n_jobs), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(infer(bank, targets, settings, Limits(max_iter=3, tol=0.0), 0))
    one, two = found
    cross = bank.block(np.arange(5))[:4]
    for name in ("e_mean", "e_std", "b_mean", "b_std", "a_mean", "noise_variance", "lower_bound"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    chosen = np.arange(len(cross))
    np.testing.assert_array_equal(one.variance(cross, chosen), two.variance(cross, chosen))
