"""`max_time` bounds whole fits, by the clock on the wall, for every solver and loss.

One thread, and processor time in place of time on the wall: a busy machine makes no test fail.
"""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import numpy as np
import pytest
from dense_gram import DenseGram
from hard_problems import FULL
from sklearn.exceptions import ConvergenceWarning

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
)
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.bayes import (
    BayesStart,
    Hyperparameters,
    Labels,
    Settings,
    infer,
    posterior_numbers,
)
from kernelweave.compiled.threads import (
    between_blocks,
    look_between_blocks,
    map_blocks,
    use_threads,
)
from kernelweave.deadline import NEVER, Deadline
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF, Kernel, Linear
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator
from kernelweave.solvers import Limits
from kernelweave.solvers.box_qp import solve_box_qp
from kernelweave.solvers.spg import SPG

LIMIT = 0.3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 10))
F = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.5 * RNG.normal(size=4000)
# A pass over all of them takes about two seconds of a processor.
KERNELS = [RBF(width=w) for w in np.geomspace(0.5, 10, 20)]
# Nothing is kept, so that every pass computes them.
LONG = {"bank": "lazy", "cache_mb": 20, "tol": 1e-12, "max_time": LIMIT, "n_jobs": 1}
SOME = [
    ("active-set", "hinge"),
    ("align", "hinge"),
    ("silp-chunking", "hinge"),
    ("spg", "logistic"),
    ("spicy", "hinge"),
    ("spicy", "logistic"),
    ("uniform", "squared_hinge"),
]
OTHERS = ("active-set", "silp", "spg", "pgd", "spicy", "uniform")
LOSSES = ("hinge", "squared_hinge", "logistic", "smooth_hinge")
REST = [(solver, loss) for solver in OTHERS for loss in LOSSES if (solver, loss) not in SOME]
REST += [("mwu", "hinge"), ("mwu", "squared_hinge")]


def seconds_of(model, *data):
    """Processor time of a fit whose compiled code is there."""
    few = type(model)(**{**model.get_params(), "max_iter": 2, "max_time": None})
    with pytest.warns(ConvergenceWarning):
        few.fit(*(part[:80] for part in data))
    began = time.process_time()
    with pytest.warns(ConvergenceWarning, match=f"max_time={LIMIT}"):
        model.fit(*data)
    return time.process_time() - began


@pytest.mark.parametrize(("solver", "loss"), SOME + (REST if FULL else []))
def test_of_a_classifier(solver, loss):
    model = MKLClassifier(KERNELS, solver=solver, loss=loss, C=100.0, **LONG)
    assert seconds_of(model, X, F > 0) < LIMIT + 1.0
    # The certificate is a true one, of a function that may be constant.
    assert model.gap_ > 0.0 and model.dual_objective_ <= model.objective_
    assert np.isclose(model.weights_.sum(), 1.0) and model.decision_function(X[:3]).shape == (3,)
    assert not model.converged_ and model.history_


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"] if FULL else ["squared"])
def test_of_a_regressor(loss):
    assert seconds_of(MKLRegressor(KERNELS, loss=loss, C=100.0, **LONG), X, F) < LIMIT + 1.0


def test_steps_on_few_samples_end_in_time():
    """They are short, and this problem takes more than 10^8 of them: a look comes after fewer."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    y = np.where(rng.permutation(12) % 2, 1.0, -1.0)
    qp, gram = get_loss("hinge").box_qp(y, np.full(12, 1e9)), DenseGram(X @ X.T)
    deadline = Deadline.after(0.02, time.perf_counter())
    found = solve_box_qp(qp, gram, tol=1e-9, max_iter=10**9, deadline=deadline)
    assert not found.converged and found.n_steps < 4_000_000


def test_passes_end_when_they_are_told_to():
    done = []

    def look():
        if len(done) >= 3:
            raise TimeoutError

    for threads in (1, 2):
        done.clear()
        with use_threads(threads), between_blocks(look), pytest.raises(TimeoutError):
            map_blocks(lambda start, stop: done.append(start), 1000, block=1)
        assert len(done) <= 4


def test_an_interrupted_pass_leaves_no_blocks_to_its_threads():
    done = []

    def work(start, stop):
        done.append(start)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.001)

    with use_threads(2), pytest.raises(KeyboardInterrupt):
        map_blocks(work, 10_000, block=1)
    assert len(done) < 1000


def test_ctrl_c_in_a_long_pass():
    # The last certificate of all of them would take about two seconds.
    kernels = [RBF(width=w) for w in np.geomspace(0.5, 10, 40)]
    model = MKLClassifier(kernels, solver="uniform", C=1e-3, **{**LONG, "max_time": None})
    times = []

    def press(record):
        # What the handler of Ctrl-C does; a worker of pytest-xdist has none.
        times.append(time.process_time())
        raise KeyboardInterrupt

    model.callbacks = [press]
    with pytest.warns(InterruptedFitWarning):
        model.fit(X, F > 0)
    assert time.process_time() - times[-1] < 1.3
    assert not model.converged_ and model.dual_objective_ <= model.objective_


def test_a_long_block_ends_when_another_thread_is_interrupted():
    long = threading.Event()

    def work(start, stop):
        if threading.current_thread() is threading.main_thread():
            long.wait()
            raise KeyboardInterrupt
        long.set()
        while True:
            look_between_blocks()

    with use_threads(2), pytest.raises(KeyboardInterrupt):
        map_blocks(work, 2, block=1)


def test_an_error_in_a_thread_ends_the_pass():
    done = []
    failed = threading.Event()

    def work(start, stop):
        if threading.current_thread() is not threading.main_thread():
            failed.set()
            raise ZeroDivisionError
        failed.wait()
        done.append(start)

    with use_threads(2), pytest.raises(ZeroDivisionError):
        map_blocks(work, 10**6, block=1)
    assert len(done) < 10**6


class PressedInTheFirstStep(SPG):
    """Ctrl-C comes once, in a step on a part of the samples."""

    pressed: ClassVar[list[int]] = []

    def step(self, problem, *place):
        if not self.pressed:
            self.pressed.append(problem.n)
            raise KeyboardInterrupt
        return super().step(problem, *place)


def test_ctrl_c_while_first_weights_are_learnt():
    """What there is then is no model of all samples, and the fit must not go on."""
    model = MKLClassifier(KERNELS[:3], solver=PressedInTheFirstStep(), bank="lazy", n_jobs=1)
    with pytest.raises(KeyboardInterrupt, match="first weights"):
        model.fit(X[:3200], F[:3200] > 0)
    assert PressedInTheFirstStep.pressed == [800]


def test_of_a_posterior():
    model = BayesianMKLClassifier([Linear(), RBF(width=2.0)], tol=1e-15, max_time=LIMIT, n_jobs=1)
    model.max_iter = 100_000
    assert seconds_of(model, X[:700], F[:700] > 0) < LIMIT + 1.0


@pytest.mark.parametrize("estimator", [BayesianMKLClassifier, BayesianMKLRegressor])
def test_of_a_posterior_without_an_iteration(estimator):
    """The squares of the kernels alone take longer: what is left is a constant and its spread."""
    classes = estimator is BayesianMKLClassifier
    X_some, y = X[:2000], F[:2000] > 0.8 if classes else F[:2000] + 3.0
    model = estimator(KERNELS, **LONG)
    assert seconds_of(model, X_some, y) < LIMIT + 1.0
    assert not model.converged_ and np.isfinite(model.lower_bound_)
    if classes:
        probability = model.predict_proba(X[-5:])[:, 1]
        assert np.ptp(probability) < 0.5 and probability.max() < 0.5
    else:
        mean, std = model.predict(X[-5:], return_std=True)
        assert np.allclose(mean, mean[0]) and np.all(std > 0)


def small_posterior():
    bank = DenseBank().from_matrices([X[:60] @ X[:60].T, np.eye(60)])
    return bank, Labels(np.where(F[:60] > 0, 1.0, -1.0)[None]), Settings(Hyperparameters())


def test_the_bound_of_a_posterior_without_an_iteration():
    """It is below that of any iteration, though the squares of the kernels are not known."""
    bank, targets, settings = small_posterior()
    bounds = []
    for deadline in (Deadline(-1e9), NEVER):
        with pytest.warns(ConvergenceWarning):
            found = infer(bank, targets, settings, Limits(0.0, 1), seed=0, deadline=deadline)
        bounds.append(found.lower_bound)
    assert bounds[0] < bounds[1] and np.isfinite(bounds[0])


def test_a_fit_that_is_taken_up_is_not_given_up_for_a_constant():
    bank, targets, settings = small_posterior()
    with pytest.warns(ConvergenceWarning):
        found = infer(bank, targets, settings, Limits(0.0, 1), seed=0)
    start = BayesStart(posterior_numbers(found, bank))
    with pytest.raises(InvalidInputError, match=r"max_time=2.*one more iteration"):
        late = Deadline(-1e9)
        infer(bank, targets, settings, Limits(0.0, 9, 2), seed=0, start=start, deadline=late)


def test_of_one_class():
    # 4,000 samples take as long as the limit, and these twenty times as long.
    many = np.random.default_rng(1).normal(size=(24_000, 10))
    assert seconds_of(MKLOneClass(KERNELS, nu=0.3, **LONG), many) < LIMIT + 1.0


class Counted(Kernel):
    """A Gaussian kernel, known by its values only, that counts them."""

    count: ClassVar[list[int]] = []

    def __init__(self, width=1.0):
        self.width = width

    @property
    def name(self):
        return f"counted {self.width:g}"

    def evaluate(self, pair):
        self.count.append(pair.sqdist.size)
        return np.exp(-pair.sqdist / self.width**2)

    def diagonal(self, samples):
        return np.ones(samples.n)


# Nothing can be done in this time, if there is no grace.
NONE = {"max_time": 1e-9, "n_jobs": 1}
N_FEW = 600


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr("kernelweave.deadline.GRACE", 0.0)


def values_of(model, *data):
    """How many values of each kernel a fit computes that has no time."""
    Counted.count.clear()
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09"):
        model.fit(*data)
    return sum(Counted.count) / len(model.kernels)


@pytest.mark.parametrize("bank", ["auto", "dense", "factored", "lazy"])
def test_a_bank_is_not_built_when_the_time_is_over(bank, no_grace):
    """Its matrices or factors would be all for nothing; the model is the best constant."""
    X_few, y = X[:N_FEW], F[:N_FEW] > 0.5
    model = MKLClassifier([Counted(w) for w in (0.5, 2.0)], bank=bank, **NONE)
    assert values_of(model, X_few, y) < 0.1 * N_FEW**2
    assert not model.converged_ and len(model.support_) == 0
    assert model.gap_ == pytest.approx(1.0) and model.dual_objective_ <= model.objective_
    assert not model.predict(X[-5:]).any() and y.mean() < 0.5


@pytest.mark.parametrize("bank", ["dense", "factored"])
def test_a_posterior_whose_bank_is_not_built(bank, no_grace):
    model = BayesianMKLRegressor([Counted(w) for w in (0.5, 2.0)], bank=bank, **NONE)
    assert values_of(model, X[:N_FEW], F[:N_FEW]) < 0.1 * N_FEW**2
    assert np.ptp(model.predict(X[-5:])) < 1e-9


def test_distances_are_not_kept_when_the_time_is_over(no_grace):
    wide = RNG.normal(size=(N_FEW, 70))
    model = MKLClassifier([RBF(width=w) for w in (3.0, 9.0)], combination="product", **NONE)
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09"):
        model.fit(wide, wide[:, 0] > 0)
    assert len(model.support_) == 0 and len(model.predict(wide[:5])) == 5


def test_kernels_that_cannot_be_centred_in_time(no_grace):
    model = MKLClassifier([Counted()], normalize="center", **NONE)
    with pytest.raises(InvalidInputError, match=r"max_time=1e-09.*centred.*normalize='center'"):
        model.fit(X[:N_FEW], F[:N_FEW] > 0)
    assert not hasattr(model, "weights_")


def test_factors_are_cut_in_the_middle_of_a_kernel():
    """A look comes after some pivots; how many at a time changes nothing."""
    kernels = ComputedOperator.build([RBF(width=0.3)], X[:1500])
    looks = []
    with use_threads(1), between_blocks(lambda: looks.append(1)):
        whole = FactoredBank().build(kernels)
    assert len(looks) > 10 and whole.ranks[0] > 1000

    def look():
        looks.pop()
        if len(looks) == 5:
            raise TimeoutError

    with use_threads(1), between_blocks(look), pytest.raises(TimeoutError):
        FactoredBank().build(kernels)


def test_one_class_without_a_pass(no_grace):
    """What is left is zero, and a bound by the diagonals of the kernels."""
    kernels = [Counted(w) for w in (0.5, 2.0)]
    model = MKLOneClass(kernels, nu=0.3, bank="lazy", **NONE)
    assert values_of(model, X[:N_FEW]) < 0.1 * N_FEW**2
    best = MKLOneClass(kernels, nu=0.3).fit(X[:N_FEW])
    assert model.dual_objective_ <= best.dual_objective_ <= best.objective_ <= model.objective_
    assert model.objective_ == 0.0 and model.gap_ == pytest.approx(1.0)
    assert np.all(model.score_samples(X[-5:]) == 0.0) and np.all(model.predict(X[-5:]) == 1)
