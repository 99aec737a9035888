"""Samples without a label start where a fit to the labelled ones puts them."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.bayes import Ensemble, Hyperparameters, Labels, Settings, infer
from kernelweave.bayes.infer import guess_unlabelled
from kernelweave.kernels import RBF, Linear
from kernelweave.operators import ComputedOperator
from kernelweave.solvers import Limits

RNG = np.random.default_rng(0)
SETTINGS = Settings(Hyperparameters())


@pytest.fixture(scope="module")
def two_clouds():
    X = RNG.normal(size=(80, 2))
    truth = np.where(np.arange(80) % 2 == 0, 1.0, -1.0)
    X[:, 0] += 2.5 * truth
    kernels = ComputedOperator.build([Linear(), RBF(width=2.0)], X, normalize="diagonal")
    return DenseBank().build(kernels), truth


def test_nothing_to_guess(two_clouds):
    bank, truth = two_clouds
    assert not guess_unlabelled(bank, Labels(truth[None]), SETTINGS, 0).any()


def test_the_guess_is_that_of_the_labelled_samples_alone(two_clouds):
    bank, truth = two_clouds
    rows = np.arange(12)
    y = np.zeros((1, 80))
    y[0, rows] = truth[rows]
    alone = Ensemble(bank.take(rows), Labels(truth[None, rows]), SETTINGS, 3)
    for _ in range(50):
        alone.iterate()
    cross = bank.block(np.arange(12, 80), rows)
    weights = alone.weights
    expected = weights.e_mean @ (cross @ alone.samples.mean[0]) + weights.b_mean
    guess = guess_unlabelled(bank, Labels(y), SETTINGS, 3)
    assert not guess[0, rows].any()
    np.testing.assert_allclose(guess[0, 12:], expected, rtol=1e-9)


def test_tasks_with_other_labelled_samples_are_fitted_apart(two_clouds):
    bank, truth = two_clouds
    y = np.array([truth, -truth, truth])
    y[0, 20:], y[1, 20:], y[2, :60] = 0.0, 0.0, 0.0
    guess = guess_unlabelled(bank, Labels(y), SETTINGS, 0)
    for task, sign in enumerate((1.0, -1.0, 1.0)):
        free = y[task] == 0
        assert np.mean(np.sign(guess[task, free]) == sign * truth[free]) > 0.9
    together = guess_unlabelled(bank, Labels(y[:2]), SETTINGS, 0)
    np.testing.assert_allclose(guess[:2], together)


def test_a_task_without_labels_is_not_guessed(two_clouds):
    bank, truth = two_clouds
    y = np.array([truth, np.zeros(80)])
    y[0, 40:] = 0.0
    assert not guess_unlabelled(bank, Labels(y), SETTINGS, 0)[1].any()


@pytest.mark.parametrize("plan", [DenseBank(), FactoredBank(1e-10)], ids=["dense", "factored"])
def test_few_labels_do_not_end_on_one_side(plan):
    """From f = 0 for all the others, they do: 40 of 80 right on these samples."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 6))
    truth = np.where(np.arange(80) % 2 == 0, 1.0, -1.0)
    X[:, 0] += 1.5 * truth
    kernels = [Linear(), RBF(width=1.0), RBF(width=3.0), RBF(width=10.0)]
    bank = plan.build(ComputedOperator.build(kernels, X, normalize="diagonal"))
    y = np.where(np.arange(80) < 8, truth, 0.0)[None]
    posterior = infer(bank, Labels(y), SETTINGS, Limits(tol=1e-3), 0)
    found = posterior.mean(bank.block(np.arange(80)), np.arange(4))[0]
    assert np.mean(np.sign(found) == truth) > 0.8
