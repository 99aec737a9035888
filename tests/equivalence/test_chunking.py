"""SILP by chunking: the optimum of the other solvers, over every bank and in chunks of any size."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from referee import N, make, referee
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

import kernelweave.solvers.box_qp as box_qp
from kernelweave.bank import DenseBank, FactoredBank, LazyBank, SparseBank
from kernelweave.combine import Product, WeightedSum
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF, Linear, Precomputed
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    Fixed,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import SILP, SPG, Limits, SILPChunking, certify, solve
from kernelweave.solvers.checkpoint import neighbour_start
from kernelweave.solvers.inner import Evaluator

LOSSES = ["hinge", "epsilon_insensitive", "one_class"]
REGULARIZERS = [
    Simplex(),
    L1(0.7),
    LpBall(2.0),
    ElasticNet(1.0, 0.6),
    Entropy(3.0),
    SquaredLp(2.0, 1.5),
    BlockNorm(2, 2.0, 0.7),
]


def make_problem(name, regularizer=None, n_tasks=1, times_C=1.0, seed=0):
    loss = get_loss(name)
    Ks, y, C = make(get_loss("hinge") if name == "one_class" else loss, n_tasks, seed)
    if name == "one_class":
        y, C = np.ones_like(y), np.full_like(C, 1 / (0.3 * N))
    bank = DenseBank().from_matrices(Ks)
    regularizer = Simplex() if regularizer is None else regularizer
    return Problem(bank, y, times_C * C, loss, regularizer, WeightedSum())


def matrices_of(problem):
    return list(problem.bank.block(np.arange(problem.n)))


def one_class_referee(Ks, C, regularizer):
    """The dual over alpha for cvxpy: smallest of half the norm of all q_k (max, or l2)."""
    alpha = cp.Variable(N)
    forms = [cp.sum_squares(np.linalg.cholesky(K + 1e-10 * np.eye(N)).T @ alpha) for K in Ks]
    size = cp.max if isinstance(regularizer, Simplex) else cp.norm
    inside = [alpha >= 0, alpha <= C[0], cp.sum(alpha) == 1]
    problem = cp.Problem(cp.Minimize(0.5 * size(cp.hstack(forms))), inside)
    return -problem.solve(solver=cp.CLARABEL)


# --- the optimum


@pytest.mark.parametrize(("name", "regularizer"), thinned(LOSSES, REGULARIZERS), ids=str)
def test_same_optimum_as_the_other_solvers(name, regularizer):
    problem = make_problem(name, regularizer)
    mine = solve(problem, SILPChunking(), Limits(tol=1e-6))
    assert mine.converged
    for other in (SILP(), SPG()):
        theirs = solve(problem, other, Limits(tol=1e-7, max_iter=3000))
        assert mine.certificate.primal == pytest.approx(
            theirs.certificate.primal, rel=2e-6, abs=2e-6
        )
        np.testing.assert_allclose(mine.d, theirs.d, atol=5e-3 * max(1, theirs.d.max()))


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=repr)
@pytest.mark.parametrize("name", LOSSES[:2])
def test_same_optimum_as_a_convex_solver(name, regularizer):
    problem = make_problem(name, regularizer)
    result = solve(problem, SILPChunking(chunk_size=10), Limits(tol=1e-6))
    value, weights, _ = referee(
        matrices_of(problem), problem.y, problem.C, problem.loss, regularizer, 1
    )
    assert result.converged
    assert result.certificate.dual <= value + 1e-6 * abs(value)
    assert result.certificate.primal == pytest.approx(value, rel=2e-6)
    np.testing.assert_allclose(result.d, weights, atol=5e-3 * max(1, weights.max()))


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0)], ids=repr)
def test_one_class_has_the_optimum_of_a_convex_solver(regularizer):
    problem = make_problem("one_class", regularizer)
    result = solve(problem, SILPChunking(chunk_size=6), Limits(tol=1e-7))
    value = one_class_referee(matrices_of(problem), problem.C, regularizer)
    assert result.converged
    assert result.certificate.primal == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0)], ids=repr)
@pytest.mark.parametrize("size", [4, 2048])
def test_tasks_share_their_weights(regularizer, size):
    problem = make_problem("hinge", regularizer, n_tasks=3)
    result = solve(problem, SILPChunking(chunk_size=size), Limits(tol=1e-6))
    value, weights, _ = referee(
        matrices_of(problem), problem.y, problem.C, problem.loss, regularizer, 3
    )
    assert result.converged
    assert result.certificate.primal == pytest.approx(value, rel=2e-6)
    np.testing.assert_allclose(result.d, weights, atol=5e-3)


@pytest.mark.parametrize("name", LOSSES[:2])
def test_samples_of_weight_zero_might_as_well_be_absent(name):
    problem = make_problem(name)
    kept = np.setdiff1d(np.arange(N), [0, 5, 6, 20])
    C = np.zeros_like(problem.C)
    C[:, kept] = problem.C[:, kept]
    weighted = Problem(problem.bank, problem.y, C, problem.loss, Simplex(), WeightedSum())
    part = Problem(
        problem.bank.take(kept),
        problem.y[:, kept],
        problem.C[:, kept],
        problem.loss,
        Simplex(),
        WeightedSum(),
    )
    ours, theirs = (
        solve(p, SILPChunking(chunk_size=8), Limits(tol=1e-6)) for p in (weighted, part)
    )
    assert ours.converged and np.all(np.delete(ours.alpha[0], kept) == 0)
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=2e-6)
    np.testing.assert_allclose(ours.d, theirs.d, atol=5e-3)


# --- banks


def kernel_set(n=60):
    X = np.random.default_rng(0).normal(size=(n, 3))
    kernels = [RBF(width=1.0), RBF(width=4.0).on(0), RBF(width=0.5).on(1), Linear(), RBF(gamma=0.3)]
    return ComputedOperator.build(kernels, X)


def sparse_set(n=60):
    X = np.random.default_rng(0).poisson(0.4, size=(n, 40)).astype(float)
    X[:, [0, 20, 30]] = 1.0
    columns = [slice(0, 8), slice(8, 30), slice(15, 40), [0, 20, 39]]
    kernels = [Linear(), *(Linear().on(own) for own in columns)]
    return ComputedOperator.build(kernels, sparse.csr_array(X))


def stacked(kernels):
    parts = [[3, 0], [1, 4], [2]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-12)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


BANKS = {
    "dense": (DenseBank().build, 1e-12),
    "dense32": (DenseBank("float32").build, 1e-6),
    "lazy-small": (LazyBank(7 * 5 * 60 * 8 / 1e6, "float64").build, 1e-12),
    "lazy32": (LazyBank().build, 1e-6),
    "factored": (FactoredBank(1e-12).build, 1e-8),
    "stacked": (stacked, 1e-8),
    "sparse": (SparseBank().build, 1e-12),
}


@pytest.fixture(params=list(BANKS))
def bank_case(request):
    build, atol = BANKS[request.param]
    kernels = sparse_set() if request.param == "sparse" else kernel_set()
    return build(kernels), DenseBank().build(kernels), atol


def labels(n=60):
    rng = np.random.default_rng(1)
    return np.where(rng.random(n) < 0.5, 1.0, -1.0)[None]


@pytest.mark.parametrize("size", [16, 2048])
def test_every_bank_gives_the_same_weights(bank_case, size):
    bank, dense, _ = bank_case
    C = np.full((1, 60), 3.0)
    problem = Problem(bank, labels(), C, get_loss("hinge"), Simplex(), WeightedSum())
    mine = solve(problem, SILPChunking(chunk_size=size), Limits(tol=1e-5))
    theirs = solve(problem.with_bank(dense), SILP(), Limits(tol=1e-7))
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(theirs.certificate.primal, rel=2e-5)
    np.testing.assert_allclose(mine.d, theirs.d, atol=5e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_the_sum_are_those_of_the_dense_bank(bank_case, dtype):
    bank, dense, atol = bank_case
    d = np.array([0.3, 0.0, 1.2, 0.0, 0.5])
    idx = np.array([50, 3, 7, 3])
    expected = np.tensordot(d, dense.block(idx), axes=1)
    out = np.full((4, 60), np.nan, dtype)
    assert bank.weighted(d, idx, None, out) is out
    allowed = atol + (1e-6 if dtype == "float32" else 0.0)
    np.testing.assert_allclose(out, expected, atol=allowed * np.abs(expected).max())
    none = bank.weighted(np.zeros(5), idx, None, np.full((4, 60), np.nan, dtype))
    np.testing.assert_array_equal(none, 0.0)


def test_rows_of_a_sum_of_given_matrices_are_scaled_as_they_are():
    """Matrices of the user's own are not copied: their normalisation is a factor of the bank."""
    A = np.random.default_rng(0).normal(size=(2, N, 3))
    Ks = [7.0 * B @ B.T for B in A]
    ids = np.arange(N)
    bank = DenseBank().build(ComputedOperator.build([Precomputed(K) for K in Ks], ids[:, None]))
    out = bank.weighted(np.array([0.4, 0.6]), ids[3:9], None, np.empty((6, N)))
    expected = sum(w * K / (K.trace() / N) for w, K in zip((0.4, 0.6), Ks, strict=True))
    np.testing.assert_allclose(out, expected[3:9], rtol=1e-12, atol=1e-12)


def test_rows_of_the_sum_have_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(8, 2000, 4))
    bank = DenseBank().from_matrices([B @ B.T for B in A])
    d, idx = rng.random(8), rng.permutation(2000)[:700]
    answers = []
    for threads in (1, 2):
        with use_threads(threads):
            answers.append(bank.weighted(d, idx, None, np.empty((700, 2000))))
    np.testing.assert_array_equal(*answers)
    expected = np.tensordot(d, bank.block(idx[:5]), axes=1)
    np.testing.assert_allclose(answers[0][:5], expected, rtol=1e-12, atol=1e-12)


# --- chunks


@pytest.fixture
def sizes(monkeypatch):
    """Sizes of all chunks solved."""
    seen, steps = [], box_qp.smo_steps

    def counted(K, *rest):
        seen.append(len(K))
        return steps(K, *rest)

    monkeypatch.setattr(box_qp, "smo_steps", counted)
    return seen


@pytest.mark.parametrize(("keeps_rows", "size"), thinned([True, False], [2, 3, 4, 10, 64, 22]))
def test_chunks_are_no_larger_than_asked_for(sizes, size, keeps_rows):
    problem = make_problem("epsilon_insensitive")
    problem.bank.keeps_rows = keeps_rows
    result = solve(problem, SILPChunking(chunk_size=size), Limits(tol=1e-6))
    sizes = list(sizes)
    best = solve(problem, SILP(), Limits(tol=1e-7))
    assert result.converged
    assert result.certificate.primal == pytest.approx(best.certificate.primal, rel=2e-6)
    assert 1 < max(sizes) <= min(size, N)
    assert len(sizes) > len(result.history) or size > N


def test_a_chunk_of_64_of_300_samples(sizes):
    X, y = make_classification(300, 6, flip_y=0.1, random_state=0)
    bank = DenseBank().build(ComputedOperator.build([RBF(width=w) for w in (0.5, 1, 2, 4)], X))
    y = np.where(y > 0, 1.0, -1.0)[None]
    problem = Problem(bank, y, np.full(y.shape, 1.0), get_loss("hinge"), Simplex(), WeightedSum())
    d = np.full(4, 0.25)
    point = Evaluator(problem, None, chunk=64).evaluate(d, 1e-6)
    assert len(sizes) > 1 and max(sizes) <= 64
    whole = Evaluator(problem, None, chunk=300).evaluate(d, 1e-6)
    assert point.value == pytest.approx(whole.value, rel=1e-6)


# --- the invariant


def relative_gaps(problem, d, point):
    """What `certify` says of each task alone, the weights being given."""
    gaps = []
    for t in range(problem.n_tasks):
        own = slice(t, t + 1)
        single = Problem(
            problem.bank, problem.y[own], problem.C[own], problem.loss, Fixed(d), WeightedSum()
        )
        alpha, fitted = point.alpha[own], np.tensordot(d, problem.bank.apply(point.alpha[own]), 1)
        quad = problem.bank.quad(alpha)
        gaps.append(certify(single, d, alpha, point.intercept[own], fitted, quad).gap)
    return gaps


@pytest.mark.parametrize("forms_matrix", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_alpha_owes_what_was_asked_for_and_its_products_follow(name, forms_matrix):
    problem = make_problem(name, n_tasks=2)
    problem.bank.matrix_limit = 2000 if forms_matrix else 0
    lo, hi = problem.loss.domain(problem.y, problem.C)
    evaluator = Evaluator(problem, None, chunk=6)
    rng = np.random.default_rng(0)
    for step, tol in enumerate([0.1, 1e-2, 1e-4, 1e-6, 1e-9]):
        d = rng.dirichlet(np.ones(5)) * (rng.random(5) < 0.6) + np.eye(5)[step] / 5
        point = evaluator.evaluate(d, tol)
        outputs = problem.bank.apply(point.alpha)
        scale = np.abs(outputs).max()
        np.testing.assert_allclose(point.fitted, np.tensordot(d, outputs, 1), atol=1e-9 * scale)
        np.testing.assert_allclose(
            evaluator.quad(point), problem.bank.quad(point.alpha), rtol=1e-9, atol=1e-9
        )
        assert np.all((point.alpha >= lo) & (point.alpha <= hi))
        np.testing.assert_allclose(point.alpha.sum(axis=1), problem.loss.alpha_sum, atol=1e-12)
        assert max(relative_gaps(problem, d, point)) <= tol + 1e-13
        assert point.value == problem.inner_value(d, point.alpha, point.fitted)


def test_a_rough_tolerance_ends_a_solve_early():
    problem = make_problem("hinge")
    d = np.full(5, 0.2)
    rough, exact = (Evaluator(problem, None, chunk=4) for _ in range(2))
    rough.evaluate(d, 0.3)
    exact.evaluate(d, 1e-8)
    assert rough.n_steps < exact.n_steps


def test_rounding_does_not_hide_what_alpha_owes():
    """With a large C, where sums in float32 are wrong by more than the tolerance."""
    problem = make_problem("epsilon_insensitive", times_C=1e4, seed=104)
    evaluator = Evaluator(problem, None, chunk=22)
    rng = np.random.default_rng(0)
    for _ in range(6):
        d = rng.dirichlet(np.ones(5))
        point = evaluator.evaluate(d, 2e-5)
        assert max(relative_gaps(problem, d, point)) <= 2e-5


# --- errors


def test_smooth_losses_are_refused_with_the_names_of_the_others():
    problem = make_problem("hinge")
    for name in ("logistic", "squared_hinge", "squared", "smooth_hinge"):
        smooth = Problem(
            problem.bank, problem.y, problem.C, get_loss(name), Simplex(), WeightedSum()
        )
        with pytest.raises(InvalidInputError, match=r"'hinge', 'epsilon_insensitive', 'one_class'"):
            solve(smooth, SILPChunking(), Limits())


def test_products_are_refused():
    problem = make_problem("hinge")
    product = Problem(problem.bank, problem.y, problem.C, problem.loss, L1(1.0), Product())
    with pytest.raises(InvalidInputError, match=r"'silp-chunking'.*combination='sum'"):
        SILPChunking().prepare(product)


# --- limits


def is_the_best_seen(result):
    return result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_iter": 2}, "max_iter"), ({"max_time": 1e-9}, "max_time")],
    ids=["iterations", "time"],
)
def test_limits_keep_the_best_point(limit, reason):
    with pytest.warns(ConvergenceWarning, match=reason):
        result = solve(make_problem("hinge"), SILPChunking(), Limits(tol=1e-9, **limit))
    assert result.reason == reason and not result.converged
    assert len(result.history) == limit.get("max_iter", 0) + 1
    assert is_the_best_seen(result)


def test_a_callback_can_stop():
    stop = Limits(tol=1e-9, callbacks=[lambda record: record.iteration == 3])
    result = solve(make_problem("hinge"), SILPChunking(), stop)
    assert result.reason == "callback" and len(result.history) == 4
    assert is_the_best_seen(result)


def test_ctrl_c_in_the_middle_of_a_chunk_keeps_the_best_point(monkeypatch):
    steps, calls = box_qp.smo_steps, []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return steps(*given)

    monkeypatch.setattr(box_qp, "smo_steps", interrupted)
    with pytest.warns(InterruptedFitWarning):
        result = solve(make_problem("hinge"), SILPChunking(chunk_size=4), Limits(tol=1e-9))
    assert result.reason == "interrupted" and len(result.history) > 1
    assert is_the_best_seen(result)


def test_warm_starts_along_C_end_where_cold_ones_do():
    warm, last_C, warm_solves, cold_solves = None, None, 0, 0
    for times in (1.0, 1.1, 1.2, 1.3):
        problem = make_problem("epsilon_insensitive", times_C=times)
        cold = solve(problem, SILPChunking(), Limits(tol=1e-4))
        start = None if warm is None else neighbour_start(warm, problem.C, last_C)
        warm, last_C = solve(problem, SILPChunking(), Limits(tol=1e-4), start), problem.C
        assert warm.converged
        assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-4)
        warm_solves += warm.history[-1].inner_solves
        cold_solves += cold.history[-1].inner_solves
    assert warm_solves < cold_solves


def test_a_start_at_the_optimum_is_seen_to_be_one():
    problem = make_problem("hinge", n_tasks=2)
    first = solve(problem, SILPChunking(), Limits(tol=1e-6))
    again = solve(problem, SILPChunking(), Limits(tol=1e-5), first.start)
    assert again.converged and len(again.history) <= 2


# --- hard cases


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [6, 2048])
def test_a_fine_tolerance(name, size):
    result = solve(make_problem(name), SILPChunking(chunk_size=size), Limits(tol=1e-8))
    assert result.converged and result.certificate.gap <= 1e-8


@pytest.mark.parametrize(("name", "times", "seed"), thinned(LOSSES[:2], [1e-4, 1e4], [104, 100]))
def test_extreme_loss_weights(name, times, seed):
    for regularizer in (Simplex(), L1(0.7), ElasticNet(1.0, 0.6), LpBall(2.0)):
        problem = make_problem(name, regularizer, times_C=times, seed=seed)
        mine = solve(problem, SILPChunking(chunk_size=22), Limits(tol=1e-6))
        theirs = solve(problem, SILP(), Limits(tol=1e-6))
        assert mine.converged, regularizer
        assert mine.certificate.primal == pytest.approx(
            theirs.certificate.primal, rel=2e-6, abs=2e-6
        )


@pytest.mark.parametrize("build", ["dense", "lazy-small", "factored", "stacked", "sparse"])
@pytest.mark.parametrize("name", LOSSES[:2])
def test_no_kernel_may_be_worth_its_price(name, build):
    bank = BANKS[build][0](sparse_set() if build == "sparse" else kernel_set())
    C = np.full((1, 60), 1e-3)
    for regularizer in (ElasticNet(5.0, 0.6), L1(5.0)):
        problem = Problem(bank, labels(), C, get_loss(name), regularizer, WeightedSum())
        result = solve(problem, SILPChunking(chunk_size=16), Limits(tol=1e-6))
        assert result.converged
        np.testing.assert_allclose(result.d, 0.0, atol=1e-12)


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0), L1(0.7)], ids=repr)
@pytest.mark.parametrize("name", LOSSES)
def test_one_kernel(name, regularizer):
    many = make_problem(name, regularizer)
    bank = many.bank.select(np.array([4]))
    problem = Problem(bank, many.y, many.C, many.loss, regularizer, WeightedSum())
    mine = solve(problem, SILPChunking(chunk_size=10), Limits(tol=1e-6))
    theirs = solve(problem, SPG(), Limits(tol=1e-7))
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(theirs.certificate.primal, rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_four_samples(name):
    K = np.array([[2.0, 1, 0, 0], [1, 2, 0, 0], [0, 0, 1, 0.5], [0, 0, 0.5, 1]])
    y = np.array([[1.0, -1.0, 1.0, -1.0]])
    bank = DenseBank().from_matrices([K, np.eye(4)])
    C = np.full((1, 4), 0.5)
    problem = Problem(bank, y, C, get_loss(name), Simplex(), WeightedSum())
    mine = solve(problem, SILPChunking(chunk_size=2), Limits(tol=1e-7))
    theirs = solve(problem, SPG(), Limits(tol=1e-8))
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(theirs.certificate.primal, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [6, 2048])
def test_twins_and_a_kernel_of_zeros(name, size):
    problem = make_problem(name)
    twice = np.repeat(np.arange(N), 2)
    Ks = [K[np.ix_(twice, twice)] for K in matrices_of(problem)]
    bank = DenseBank().from_matrices([*Ks, np.zeros((2 * N, 2 * N))])
    y, C = problem.y[:, twice], problem.C[:, twice] / 2
    doubled = Problem(bank, y, C, problem.loss, Simplex(), WeightedSum())
    mine = solve(doubled, SILPChunking(chunk_size=size), Limits(tol=1e-6))
    single = solve(problem, SILP(), Limits(tol=1e-7))
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(single.certificate.primal, rel=3e-6, abs=2e-6)
    if name != "one_class":
        assert mine.d[-1] == 0


def test_only_kernels_of_zeros():
    problem = make_problem("hinge")
    bank = DenseBank().from_matrices([np.zeros((N, N))] * 2)
    empty = Problem(bank, problem.y, problem.C, problem.loss, Simplex(), WeightedSum())
    mine = solve(empty, SILPChunking(chunk_size=6), Limits(tol=1e-6))
    weight = [problem.C[problem.y > 0].sum(), problem.C[problem.y < 0].sum()]
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(2 * min(weight))


def test_a_constant_target():
    problem = make_problem("epsilon_insensitive")
    y = np.full_like(problem.y, 7.5)
    flat = Problem(problem.bank, y, problem.C, problem.loss, Simplex(), WeightedSum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve(flat, SILPChunking(chunk_size=6), Limits(tol=1e-6))
    assert result.converged and result.certificate.primal == pytest.approx(0, abs=1e-9)
    np.testing.assert_array_equal(result.alpha, 0.0)
    assert abs(result.intercept[0] - 7.5) <= problem.loss.epsilon + 1e-9


def test_2500_samples():
    X, y = make_classification(2500, 12, n_informative=6, flip_y=0.05, random_state=0)
    kernels = ComputedOperator.build([RBF(width=w) for w in (0.5, 1, 2, 4, 8, 16)], X)
    y = np.where(y > 0, 1.0, -1.0)[None]
    C = np.full(y.shape, 1.0)
    bank = DenseBank("float32").build(kernels)
    problem = Problem(bank, y, C, get_loss("hinge"), Simplex(), WeightedSum())
    mine = solve(problem, SILPChunking(chunk_size=500), Limits(tol=1e-3))
    theirs = solve(problem, SILP(), Limits(tol=1e-3))
    assert mine.converged and theirs.converged
    assert mine.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-3)
