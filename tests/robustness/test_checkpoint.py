"""Checkpoints: a fit that was killed is taken up and ends where it would have ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest
from cut_fits import KERNELS, cut_short, resumed, saved_iteration
from sklearn.base import clone
from sklearn.datasets import load_diabetes

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    Checkpoint,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
)
from kernelweave.bank import FactoredBank
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear
from kernelweave.solvers import SILP, SOLVERS, SPG, ActiveSet, checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PATIENCE = 120.0  # seconds until a test gives up on another process


# A process that is killed

CHILD = """
    import sys
    import threading
    from sklearn.datasets import load_breast_cancer, load_iris
    from kernelweave import BayesianMKLClassifier, Checkpoint, MKLClassifier

    def hang(record):
        if record.iteration == {hang}:
            threading.Event().wait()

    X, y = {data}
    model = {model}
    model.set_params(callbacks=[Checkpoint(sys.argv[1], every=1), hang]).fit(X, y)
"""
# The data of the fixtures, for another process.
CANCER = "(lambda X, y: (X[::6, :8], y[::6]))(*load_breast_cancer(return_X_y=True))"
IRIS = "(lambda X, y: (X[::2], y[::2]))(*load_iris(return_X_y=True))"


def kill_after(iteration, path, **script):
    """Run a fit in another process and kill it once the checkpoint of an iteration is there."""
    code = textwrap.dedent(CHILD).format(**script)
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + PATIENCE
    try:
        while not (path.exists() and saved_iteration(path) >= iteration):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_fit_ends_at_the_same_optimum(path, cancer):
    # The tolerance is out of reach, so that the kill comes in the middle of the work.
    slow = 'MKLClassifier("simplemkl", solver="spg", tol=1e-15, max_iter=10**6)'
    kill_after(20, path, model=slow, data=CANCER, hang=-1)
    reached = saved_iteration(path)
    model = MKLClassifier("simplemkl", solver="spg", tol=1e-4, max_iter=10**4)
    again, whole = resumed(model, path, *cancer), clone(model).fit(*cancer)
    assert again.converged_ and again.history_[0].iteration == reached
    assert again.objective_ == pytest.approx(whole.objective_, rel=2e-4)
    np.testing.assert_allclose(again.weights_, whole.weights_, atol=0.02)
    assert again.history_[0].gap < 0.1 * whole.history_[0].gap
    # Seconds count on, those of the killed process among them.
    assert again.history_[0].seconds > float(checkpoint.read(path).groups[0]["record.seconds"])


def test_a_killed_bayesian_fit_ends_with_the_same_posterior(path, iris):
    model = BayesianMKLClassifier(max_iter=300, tol=1e-3)
    slow = "BayesianMKLClassifier(max_iter=300, tol=1e-3)"
    kill_after(12, path, model=slow, data=IRIS, hang=12)
    assert saved_iteration(path) == 12
    again, whole = resumed(model, path, *iris), clone(model).fit(*iris)
    assert again.converged_ and again.history_[0].iteration == 13
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)
    assert again.n_iter_ == whole.n_iter_
    np.testing.assert_allclose(again.weights_, whole.weights_, atol=1e-10)
    mean, std = again.decision_function(iris[0], return_std=True)
    expected_mean, expected_std = whole.decision_function(iris[0], return_std=True)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-9)
    np.testing.assert_allclose(std, expected_std, atol=1e-9)


# Every solver

TOLS = {"spg": 1e-3, "pgd": 1e-2, "mwu": 1e-2}


LOSSES = {"silp-chunking": ["hinge"]}
PAIRS = [
    (solver, loss)
    for solver in sorted(SOLVERS)
    for loss in LOSSES.get(solver, ["hinge", "squared_hinge"])
]


@pytest.mark.parametrize("solver, loss", PAIRS)
def test_every_solver_goes_on(solver, loss, path, cancer, wide_cancer):
    if solver == "mwu":  # Of few kernels the first gap may be above the last one by a fifth.
        cancer = wide_cancer
    tol = TOLS.get(solver, 1e-7)
    model = MKLClassifier("simplemkl", solver=solver, loss=loss, tol=tol, max_iter=5000)
    whole = clone(model).fit(*cancer)
    half = (len(whole.history_) - 1) // 2
    part = cut_short(model, path, half, *cancer)
    again = resumed(model, path, *cancer)
    assert whole.converged_ and again.converged_
    assert again.objective_ == pytest.approx(whole.objective_, rel=3 * tol)
    assert again.history_[0].iteration == part.history_[-1].iteration == half
    assert again.history_[0].gap <= 1.05 * part.history_[-1].gap
    assert len(again.history_) < len(whole.history_) or half == 0


@pytest.mark.parametrize("solver", ["active-set", "spg", "spicy", "uniform"])
def test_a_solver_takes_as_many_steps_as_if_nothing_had_happened(solver, path, cancer):
    """What it remembers is all it needs; without it inner tolerances would start from the first."""
    tol = TOLS.get(solver, 1e-7)
    model = MKLClassifier("simplemkl", solver=solver, loss="logistic", tol=tol)
    whole = clone(model).fit(*cancer)
    cut_short(model, path, len(whole.history_) - 2, *cancer)
    assert len(resumed(model, path, *cancer).history_) == 2


def test_cutting_planes_that_took_over_go_on_as_such(path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(60, 12)).astype(float)
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=60) > 0.7, 1, -1)
    kernels = [Linear().on(j) for j in range(12)]
    model = MKLClassifier(kernels, C=10.0, solver="spg", tol=1e-6)
    step = SPG.step

    def gives_up(self, problem, state, gap, inner_gap):
        """Half way to the optimum."""
        state = step(self, problem, state, gap, inner_gap)
        return replace(state, stuck=True) if gap < 0.05 and problem.m == 12 else state

    monkeypatch.setattr(SPG, "step", gives_up)
    whole = clone(model).fit(X, y)
    assert whole.converged_
    taken_over, init = [], SILP.init

    def watched(self, problem, start):
        taken_over.append(True)
        return init(self, problem, start)

    monkeypatch.setattr(SILP, "init", watched)
    callbacks = [Checkpoint(path, every=1), lambda record: bool(taken_over) and record.gap < 0.01]
    part = clone(model).set_params(callbacks=callbacks).fit(X, y)
    assert taken_over and not part.converged_
    solves = [line.inner_solves for line in part.history_]
    assert solves == sorted(solves)
    taken_over.clear()
    resumed(clone(model).set_params(callbacks=[lambda record: True]), path, X, y)
    assert taken_over  # from the first record on
    again = resumed(model, path, X, y)
    assert again.converged_
    assert len(part.history_) + len(again.history_) <= len(whole.history_) + 5


def test_the_best_point_is_kept_for_other_settings(path, cancer):
    model = MKLClassifier("simplemkl", solver="spg", tol=1e-4)
    cut_short(model, path, 40, *cancer)
    for settings in (
        {"C": 3.0, "solver": "silp"},
        {"loss": "logistic"},
        {"regularizer": "lp_ball"},
        {"C": 0.01, "solver": "active-set", "loss": "squared_hinge"},
    ):
        other = clone(model).set_params(**settings)
        again, cold = resumed(other, path, *cancer), clone(other).fit(*cancer)
        assert again.converged_ and again.history_[0].iteration == 0, settings
        assert again.objective_ == pytest.approx(cold.objective_, rel=3e-4), settings


def test_another_C_starts_from_scaled_dual_variables(path, cancer):
    """As `warm_start` does: those at their bound stay there."""
    model = MKLClassifier("simplemkl", loss="squared_hinge", tol=1e-6, warm_start=True)
    model.set_params(callbacks=[Checkpoint(path)]).fit(*cancer)
    first = clone(model).set_params(callbacks=()).fit(*cancer)
    model.set_params(C=2.0, callbacks=()).fit(*cancer)
    for source in (path, first):
        again = resumed(MKLClassifier(**{**model.get_params(), "C": 2.0}), source, *cancer)
        assert again.history_[0].gap == pytest.approx(model.history_[0].gap, rel=1e-6)


# Estimators


def test_a_finished_fit_is_only_certified(path, cancer, monkeypatch):
    model = MKLClassifier("simplemkl", tol=1e-5)
    whole = clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*cancer)

    def init(self, problem, start):
        raise AssertionError("solved again")

    with monkeypatch.context() as patch:
        patch.setattr(ActiveSet, "init", init)
        again = resumed(model, path, *cancer)
        with pytest.raises(AssertionError, match="solved again"):
            resumed(model.set_params(tol=1e-9), path, *cancer)
    assert len(again.history_) == 1 and again.n_iter_ == whole.n_iter_
    assert again.objective_ == pytest.approx(whole.objective_, rel=1e-9)
    np.testing.assert_array_equal(again.weights_, whole.weights_)
    np.testing.assert_allclose(again.dual_coef_, whole.dual_coef_, rtol=1e-9)
    assert resumed(model, path, *cancer).gap_ <= 1e-9


def test_a_finished_bayesian_fit_is_not_fitted_again(path, iris):
    model = BayesianMKLClassifier(max_iter=300, tol=1e-3)
    whole = clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*iris)
    again = resumed(model, path, *iris)
    assert again.lower_bound_ == whole.lower_bound_ and again.n_iter_ == whole.n_iter_
    assert len(again.history_) == 1
    proba, expected = again.predict_proba(iris[0]), whole.predict_proba(iris[0])
    np.testing.assert_allclose(proba, expected, rtol=1e-12)
    # Other data under the same names: their own posterior, not the one that is there.
    other = resumed(model, path, iris[0][:, ::-1] ** 2, iris[1])
    assert len(other.history_) > 1 and other.history_[0].iteration == 1
    # The bound of the checkpoint is the one that the next iteration is measured by.
    cut_short(model, path, whole.n_iter_ - 1, *iris)
    assert [r.iteration for r in resumed(model, path, *iris).history_] == [whole.n_iter_]
    clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*iris)
    finer = resumed(model.set_params(tol=1e-4), path, *iris)
    assert finer.history_[0].iteration == whole.n_iter_ + 1


def test_a_bayesian_fit_that_reached_max_iter_stays_there(path, iris):
    model = BayesianMKLClassifier(max_iter=5)
    whole = clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*iris)
    again = resumed(model, path, *iris)
    assert not again.converged_ and again.n_iter_ == 5
    assert again.lower_bound_ == whole.lower_bound_
    longer = resumed(model.set_params(max_iter=9), path, *iris)
    assert [record.iteration for record in longer.history_] == [6, 7, 8, 9]


class Crash(RuntimeError):
    pass


class CrashIn:
    """Crash at an iteration of one of several fits."""

    def __init__(self, group, iteration):
        self.group, self.iteration = group, iteration

    def __call__(self, record):
        first = 1 if type(record).__name__ == "BayesRecord" else 0
        self.group -= record.iteration == first
        if self.group < 0 and record.iteration >= self.iteration:
            raise Crash


def test_finished_classes_are_not_solved_again(path, iris, monkeypatch):
    model = MKLClassifier(KERNELS, multi_class="ovr", tol=1e-6)
    whole = clone(model).fit(*iris)
    crashing = clone(model).set_params(callbacks=[Checkpoint(path, every="1h"), CrashIn(1, 2)])
    with pytest.raises(Crash):
        crashing.fit(*iris)
    # The crash came long before the next file was due, and all the same nothing is lost.
    assert saved_iteration(path, 1) == 2
    solved = []
    init = ActiveSet.init
    monkeypatch.setattr(
        ActiveSet,
        "init",
        lambda self, problem, start: solved.append(start) or init(self, problem, start),
    )
    again = clone(model).set_params(callbacks=[Checkpoint(path)], warm_start_from=path).fit(*iris)
    assert len(solved) == 2 and solved[0] is not None and solved[1] is None
    assert again.objective_ == pytest.approx(whole.objective_, rel=1e-6)
    np.testing.assert_allclose(again.weights_, whole.weights_, atol=1e-3)
    assert sorted(checkpoint.read(path).groups) == [0, 1, 2]
    assert len(resumed(model, path, *iris).history_) == 3


def test_classes_that_are_not_finished_are_kept_too(path, iris):
    callbacks = [Checkpoint(path, every="1h")]
    model = MKLClassifier(KERNELS, multi_class="ovr", solver="spg", tol=1e-12, max_iter=3)
    model.set_params(callbacks=callbacks).fit(*iris)
    assert [saved_iteration(path, group) for group in range(3)] == [3, 3, 3]


def test_what_is_finished_stays_in_the_file_of_the_next_run(path, iris):
    """A second crash, in the first class, must not lose those that were finished."""
    model = MKLClassifier(KERNELS, multi_class="ovr", tol=1e-4)
    clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*iris)
    finer = clone(model).set_params(
        tol=1e-9, warm_start_from=path, callbacks=[Checkpoint(path), CrashIn(-1, 0)]
    )
    with pytest.raises(Crash):
        finer.fit(*iris)
    assert sorted(checkpoint.read(path).groups) == [0, 1, 2]


def test_bayesian_classes_of_their_own(path, iris):
    model = BayesianMKLClassifier(KERNELS, multi_class="ovr", tol=1e-3, max_iter=200)
    whole = clone(model).fit(*iris)
    crashing = clone(model).set_params(callbacks=[Checkpoint(path), CrashIn(1, 7)])
    with pytest.raises(Crash):
        crashing.fit(*iris)
    again = resumed(model, path, *iris)
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)
    firsts = [record.iteration for record in again.history_]
    assert firsts[1] == 8 and again.n_iter_ == whole.n_iter_


@pytest.mark.parametrize("kernels", ["default", "simplemkl"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_bayesian_regression(path, kernels, outputs):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[::8], y[::8]
    noise = np.random.default_rng(0).normal(size=len(y))
    target = y if outputs == 1 else np.column_stack([y, y + 40 * noise])
    model = BayesianMKLRegressor(kernels, tol=1e-3, max_iter=60)
    whole = clone(model).fit(X, target)
    cut_short(model, path, 6, X, target)
    again = resumed(model, path, X, target)
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)
    np.testing.assert_allclose(again.noise_std_, whole.noise_std_, rtol=1e-9)
    assert again.history_[0].iteration == 7


def test_samples_without_a_label(path, iris):
    X, y = iris[0], iris[1].copy()
    y[::3] = -1
    model = BayesianMKLClassifier(KERNELS, unlabeled=-1, max_iter=40)
    whole = clone(model).fit(X, y)
    cut_short(model, path, 9, X, y)
    again = resumed(model, path, X, y)
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)


def test_few_samples_and_many_kernels(path, wide_cancer):
    X, y = wide_cancer[0][:20], wide_cancer[1][:20]
    model = BayesianMKLClassifier("simplemkl", max_iter=40, tol=1e-4)
    whole = clone(model).fit(X, y)
    cut_short(model, path, 9, X, y)
    assert "be.precision.base" in checkpoint.read(path).groups[0]
    again = resumed(model, path, X, y)
    assert again.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-8)


def test_regression_and_one_class(path):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[::3], y[::3] / 50
    model = MKLRegressor("simplemkl", tol=1e-6)
    whole = clone(model).fit(X, y)
    cut_short(model, path, 3, X, y)
    assert resumed(model, path, X, y).objective_ == pytest.approx(whole.objective_, rel=2e-6)
    with pytest.raises(InvalidInputError, match="of a MKLRegressor, but this fit is of a MKLOneC"):
        MKLOneClass(warm_start_from=path).fit(X)


@pytest.mark.parametrize("solver", ["spg", "silp"])
def test_one_class_goes_on_in_its_own_units(path, solver):
    X, _ = load_diabetes(return_X_y=True)
    views = [RBF(width=0.05).on(slice(i, i + 3)) for i in range(0, 9, 3)]
    model = MKLOneClass(views, nu=0.2, solver=solver, regularizer="lp_ball", tol=1e-6)
    whole = clone(model).fit(X[::3])
    half = len(whole.history_) // 2
    part = cut_short(model, path, half, X[::3])
    numbers = checkpoint.read(path).groups[0]
    assert numbers["alpha"].sum() == pytest.approx(1.0)
    assert float(numbers["record.primal"]) == part.history_[-1].primal
    again = resumed(model, path, X[::3])
    assert again.history_[0].gap <= 1.05 * part.history_[-1].gap
    assert len(again.history_) < len(whole.history_)
    assert again.objective_ == pytest.approx(whole.objective_, rel=2e-6)
    clone(model).set_params(callbacks=[Checkpoint(path)]).fit(X[::3])
    assert len(resumed(model, path, X[::3]).history_) == 1


def test_a_bank_that_is_refined(path, cancer):
    """A finished fit needed a more exact bank, and needs it again for its certificate."""
    model = MKLClassifier("simplemkl", bank=FactoredBank(1e-3), tol=1e-5)
    whole = clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*cancer)
    again = resumed(model, path, *cancer)
    assert again.converged_ and again.history_[0].gap > 1e-5 and len(again.history_) <= 4
    assert again.objective_ == pytest.approx(whole.objective_, rel=1e-9)


def test_from_a_fitted_estimator(iris):
    for model in (
        MKLClassifier(KERNELS, tol=1e-5),
        MKLClassifier(KERNELS, tol=1e-5, multi_class="ovr"),
        BayesianMKLClassifier(KERNELS, max_iter=300, tol=1e-3),
    ):
        first = clone(model).fit(*iris)
        again = resumed(model, first, *iris)
        assert again.converged_ and len(again.history_) < 0.5 * len(first.history_)
        np.testing.assert_allclose(again.weights_, first.weights_, atol=0.05)


def test_from_an_estimator_that_chose_C(cancer):
    chosen = MKLClassifierCV(KERNELS, Cs=[0.1, 1.0, 10.0], cv=3).fit(*cancer)
    again = MKLClassifier(KERNELS, C=chosen.C_, warm_start_from=chosen).fit(*cancer)
    assert again.history_[0].gap < 0.1


def test_a_clone_keeps_the_fit_to_start_from(iris):
    first = MKLClassifier(KERNELS).fit(*iris)
    model = MKLClassifier(KERNELS, C=2.0, warm_start_from=first)
    twin = clone(model)
    assert twin.warm_start_from is first and twin.C == 2.0 and twin is not model
    assert not hasattr(clone(model.fit(*iris)), "weights_")
    assert model.get_params(deep=False)["warm_start_from"] is first


def test_warm_start_takes_over_after_the_first_fit(path, cancer):
    X, y = cancer
    cut_short(MKLClassifier("simplemkl", tol=1e-5), path, 4, X, y)
    model = MKLClassifier("simplemkl", tol=1e-5, warm_start=True, warm_start_from=path)
    assert model.fit(X, y).history_[0].iteration == 4
    model.fit(X, y)
    assert model.history_[0].iteration == 0 and model.history_[0].gap < 1e-3


def test_limits(path, cancer):
    model = MKLClassifier("simplemkl", solver="spg", tol=1e-9, max_iter=20)
    clone(model).set_params(callbacks=[Checkpoint(path)]).fit(*cancer)
    # Iterations count in all, time does not.
    assert len(resumed(model, path, *cancer).history_) == 1
    again = resumed(model.set_params(max_iter=25), path, *cancer)
    assert [record.iteration for record in again.history_] == list(range(20, 26))
    seconds = again.history_[0].seconds
    numbers = np.load(path)
    assert seconds >= float(numbers["0.record.seconds"])
    generous = model.set_params(max_iter=10**5, max_time=float(numbers["0.record.seconds"]))
    assert len(resumed(generous, path, *cancer).history_) > 1
