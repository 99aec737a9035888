"""MWU for a given target goes through the iterates of the paper's algorithms, on every bank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mwu_literal import PAPER_WIDTH, mwumkl, n_rounds, scaled_matrices, weights, width_bound
from mwu_literal import exponentiate as reference_exponentials
from mwu_problems import BANKS, N, every_state, problem_on
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank
from kernelweave.compiled.mwu import exponentiate
from kernelweave.operators import ComputedOperator
from kernelweave.solvers import MWU, Limits, recompute, solve

# The settings, the loss, the library's C, and what the run has to meet on its way.
SETTINGS = {
    "paper l1": (MWU(0.3, "paper"), "hinge", 1.0, ""),
    "paper l1 boxed": (MWU(0.3, "paper"), "hinge", 0.1 / N, "box"),
    "paper l2": (MWU(0.3, "paper"), "squared_hinge", 0.5, ""),
    "omega l1": (MWU(0.4, 20.0), "hinge", 10.0, ""),
    "omega l1 boxed": (MWU(0.4, 20.0), "hinge", 20.0 * 0.1 / N, "box"),
    "omega l2": (MWU(0.4, 20.0), "squared_hinge", 2.0, ""),
    "large exponents": (MWU(0.25, 26.0), "hinge", 1e3, "large"),
    "large exponents l2": (MWU(0.25, 26.0), "squared_hinge", 1e3, "large"),
    "cut short": (MWU(0.3, "paper", max_iter=101), "hinge", 0.1 / N, "box"),
    "l2 of a hinge": (MWU(0.3, 5.0, "l2"), "hinge", 2.0, ""),
}
# All on one bank, and two on every bank.
RUNS = [(name, "dense") for name in SETTINGS]
RUNS += [
    (name, kind) for name in ("paper l1 boxed", "omega l2") for kind in BANKS if kind != "dense"
]


def written_out(problem, solver, y):
    """The same run by the literal algorithm, and the G_k it used."""
    Ks, C = problem.bank.block(np.arange(N)).astype(float), problem.C[0, 0]
    l2 = problem.loss.name == "squared_hinge" or solver.soft_margin == "l2"
    omega = 1.0 if solver.omega == "paper" else solver.omega
    G = scaled_matrices(Ks, y, omega, 2 * N * C if l2 else np.inf)
    rho = PAPER_WIDTH if solver.omega == "paper" else width_bound(G, y)
    C1 = np.inf if l2 else N * C / omega
    return mwumkl(G, y, solver.eps, rho, C1, planned=solver.max_iter), G


@pytest.mark.parametrize(("setting", "kind"), RUNS)
def test_the_papers_iterates(setting, kind):
    solver, loss, C, meets = SETTINGS[setting]
    problem = problem_on(kind, loss, C, apart=5.0 if meets == "large" else 0.0)
    y = problem.y[0]
    trace, G = written_out(problem, solver, y)
    assert not trace.failed
    assert trace.margin[1:].min() > 1e-12  # or another order of sums may choose another sample
    rounds = 0
    for state in every_state(problem, solver):
        rounds = state.evaluator.n_steps
        if rounds == 0:
            assert not state.point.alpha.any()
            continue
        a, p12 = trace.a[rounds - 1], trace.p12[rounds - 1]
        found = y * state.point.alpha[0]
        np.testing.assert_allclose(found / found.sum(), a / a.sum(), rtol=1e-12, atol=0)
        np.testing.assert_allclose(state.point.d, weights(G, a, p12), rtol=1e-7, atol=1e-300)
    assert rounds == len(trace.a) == trace.planned
    if meets == "box":
        box = problem.n * C / (1.0 if solver.omega == "paper" else solver.omega)
        assert (trace.a[-1] + 0.5 > box * trace.planned).any()
    if meets == "large":
        assert trace.u.max() >= 20


@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("top", [0.3, 19.9, 20.1, 800.0])
def test_exponentials_are_those_of_algorithm_2(top, ridge):
    """For kernels whose traces differ, one of them zero on this a."""
    a, scale = np.array([1.0, 1.0, 2.0]), np.array([0.5, 2.0, 1.0, 3.0])
    quad = np.array([8.0, 1.3, 0.9, 0.0])
    G = [
        s * q / 16.0 * np.ones((3, 3)) + ridge / 6.0 * np.eye(3)
        for s, q in zip(scale, quad, strict=True)
    ]
    norms = np.sqrt(scale * quad + ridge)  # So a'G_k a = scale_k quad_k + ridge.
    rate = top / norms.max()
    p12, _ = reference_exponentials(G, a, rate, 0.5)
    found = np.empty(4)
    exponentiate(quad, scale, ridge, rate, found)
    used = norms > 0
    expected = -p12[used] / norms[used]
    ratios = found[used] / scale[used]
    np.testing.assert_allclose(ratios / ratios.sum(), expected / expected.sum(), rtol=1e-12)
    assert np.sum(found / scale) == pytest.approx(1.0)  # The weight of the ridge.
    if not used.all() and top < 20:
        # sinh(c u) / u tends to c.
        limit = rate * norms[0] / np.sinh(rate * norms[0])
        assert found[3] / scale[3] == pytest.approx(limit * ratios[0], rel=1e-12)


def test_a_whole_fit_ends_where_the_paper_does():
    """With the loop around it: T rounds, a warning, and the best of the points it looked at."""
    problem = problem_on("dense", "squared_hinge", 0.5)
    solver = MWU(0.3, "paper")
    trace, G = written_out(problem, solver, problem.y[0])
    with pytest.warns(ConvergenceWarning, match="rounds"):
        result = solve(problem, solver, Limits(tol=1e-9))
    assert result.history[-1].inner_iterations == trace.planned
    best = min(result.history, key=lambda record: record.gap).inner_iterations
    a = trace.a[best - 1]
    found = problem.y[0] * result.alpha[0]
    np.testing.assert_allclose(found / found.sum(), a / a.sum(), atol=1e-10)
    np.testing.assert_allclose(result.d, weights(G, a, trace.p12[best - 1]), rtol=1e-7)


def test_a_met_tolerance_ends_a_course_early():
    problem = problem_on("dense", "squared_hinge", 0.5)
    result = solve(problem, MWU(0.2, 10.0), Limits(tol=0.2))
    assert result.converged
    full = next(iter(written_out(problem, MWU(0.2, 10.0), problem.y[0]))).planned
    assert result.history[-1].inner_iterations < full


def test_classes_that_are_full_end_the_run():
    """A box too small for its class to hold half of the sum."""
    problem = problem_on("dense", "hinge", 0.7 / N)
    few = problem.y.copy()
    few[0] = np.where(np.arange(N) < 2, 1.0, -1.0)  # Two positives, at most 0.7 each.
    problem = replace(problem, y=few, C=np.full((1, N), 0.2 / N))
    solver = MWU(0.3, "paper")
    trace, _ = written_out(problem, solver, few[0])
    *_, state = every_state(problem, solver)
    assert trace.failed and state.evaluator.n_steps == len(trace.a) < trace.planned
    found = few[0] * state.point.alpha[0]
    np.testing.assert_allclose(found / found.sum(), trace.a[-1] / trace.a[-1].sum(), rtol=1e-12)


def test_the_bound_has_the_best_scale():
    """The dual of the library's problem along a is a parabola, cut off by the box."""
    for loss, C, solver in (
        ("squared_hinge", 2.0, MWU(0.3, 20.0)),
        ("hinge", 1e3, MWU(0.3, 20.0)),
        ("hinge", 1.5 / N, MWU(0.3, "paper")),
    ):
        problem = problem_on("dense", loss, C)
        *_, state = every_state(problem, solver)
        alpha = state.witness.alpha
        values = []
        for factor in (0.98, 1.0, 1.02):
            scaled = np.clip(factor * alpha, *problem.loss.domain(problem.y, problem.C))
            if factor > 1 and not np.array_equal(scaled, factor * alpha):
                continue  # The box is in the way.
            quad = problem.bank.quad(scaled)
            values.append(-problem.dual_loss(scaled) - problem.regularizer.dual_penalty(quad))
        assert np.argmax(values) == 1
        if C < 1:
            assert np.abs(alpha).max() == pytest.approx(C) and len(values) == 2


def test_the_function_has_the_scale_of_lowest_objective():
    for loss, C in (("squared_hinge", 2.0), ("hinge", 1e3), ("hinge", 0.1)):
        problem = problem_on("dense", loss, C)
        *_, state = every_state(problem, MWU(0.3, 20.0))
        point = state.point
        values = []
        for factor in (0.9, 1.0, 1.1):
            alpha = factor * point.alpha
            certificate, kept = recompute(
                problem, point.d, alpha, point.intercept, state.witness.alpha
            )
            np.testing.assert_array_equal(kept, alpha)
            values.append(certificate.primal)
        assert np.argmin(values) == 1


def test_a_target_ends_with_the_last_point_not_the_best():
    """A separable problem under a large C: the box would cut the function to nothing."""
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier("mwumkl", solver=MWU(omega="paper"), tol=1e-6)
    with pytest.warns(ConvergenceWarning, match="rounds of the solver are done"):
        model.fit(X, y == 0)
    assert model.score(X, y == 0) == 1.0
    assert model.gap_ == pytest.approx(model.history_[-1].gap, rel=1e-6)
    assert model.gap_ > min(record.gap for record in model.history_)


def test_a_course_goes_on_where_it_was():
    """From what a checkpoint keeps: alpha and the number of rounds."""
    problem = problem_on("dense", "squared_hinge", 0.5)
    solver = MWU(0.3, "paper")
    kept = []
    for state in every_state(problem, solver):
        kept.append(replace(state.point, extra=solver.remember(state)))
    for start in (kept[0], kept[len(kept) // 2], kept[-1]):
        *_, last = every_state(problem, solver, start)
        np.testing.assert_allclose(last.point.alpha, state.point.alpha, rtol=1e-9)
        np.testing.assert_allclose(last.point.d, state.point.d, rtol=1e-9)
        assert last.evaluator.n_steps == state.evaluator.n_steps


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_samples_of_no_weight_stay_out_of_a_course(loss):
    problem = problem_on("dense", loss, 2.0)
    C = problem.C.copy()
    C[0, ::3] = 0.0
    problem = replace(problem, C=C)
    *_, state = every_state(problem, MWU(0.4, "paper"))
    assert not state.point.alpha[0, ::3].any() and state.point.alpha.any()
    certificate, _ = recompute(problem, state.point.d, state.point.alpha, state.point.intercept)
    assert np.isfinite(certificate.dual)


# The paper's classifier


def wdbc():
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = MinMaxScaler().fit_transform(X)[order], y[order]
    return X[:400], y[:400], X[400:], y[400:]


@pytest.mark.parametrize("C", [1.0, 0.5 / 400, 10 / 400**2, 3 / 400**2])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_paper_with_the_hinge_is_as_good_as_a_support_vector_machine(C):
    """From a hard margin down to hulls of the means of a third of the samples."""
    X, y, X_new, y_new = wdbc()
    plain = SVC(C=10.0).fit(X, y).score(X_new, y_new)
    model = MKLClassifier("mwumkl", C=C, solver=MWU(omega="paper")).fit(X, y)
    assert model.score(X_new, y_new) >= plain - 0.03
    assert len(np.unique(model.predict(X_new))) == 2


@pytest.mark.parametrize(("loss", "C"), [("hinge", 1.0), ("hinge", 1e-4), ("squared_hinge", 2.0)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_papers_classifier_bisects_the_hulls_and_has_its_own_certificate(loss, C):
    X, y, _, _ = wdbc()
    X, y = X[:120], y[:120]
    solver = MWU(omega="paper")
    model = MKLClassifier("mwumkl", loss=loss, C=C, solver=solver, bank="dense", tol=1e-9).fit(X, y)
    signs = np.where(y == 1, 1.0, -1.0)
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0]
    f = model.decision_function(X)
    ridge = 0.5 / C * alpha if loss == "squared_hinge" else 0.0
    for sign in (1.0, -1.0):
        own = np.abs(alpha) * (signs == sign)
        assert own.sum() == pytest.approx(0.5 * np.abs(alpha).sum())
        # f + ridge is 1 and -1 at the nearest points of the two hulls.
        assert np.average(f + ridge, weights=own) == pytest.approx(sign, rel=1e-6)
    # The objective is that of the function that predicts, not of one with a better intercept.
    losses = np.maximum(0.0, 1.0 - signs * f) ** (2 if loss == "squared_hinge" else 1)
    kernels = ComputedOperator.build("mwumkl", X)
    Ks = DenseBank().build(kernels).block(np.arange(len(y)))
    components = model.weights_ * np.sqrt([alpha @ K @ alpha for K in Ks])
    price = 0.5 * components.sum() ** 2
    assert model.objective_ == pytest.approx(C * losses.sum() + price, rel=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_paper_makes_all_its_rounds_whatever_the_tolerance():
    problem = problem_on("dense", "squared_hinge", 0.5)
    for limits in (Limits(tol=0.99), Limits(tol=1e-9)):
        result = solve(problem, MWU(0.3, "paper"), limits)
        assert result.history[-1].inner_iterations == n_rounds(problem.n, 0.3, PAPER_WIDTH)
    assert solve(problem, MWU(0.3, "paper"), Limits(tol=0.99)).reason == "converged"
    early = solve(problem, MWU(0.3, "paper"), Limits(tol=0.99, max_iter=3))
    assert early.history[-1].iteration == 3
    asked = Limits(tol=0.99, callbacks=[lambda record: record.iteration == 2])
    assert solve(problem, MWU(0.3, "paper"), asked).history[-1].iteration == 2
