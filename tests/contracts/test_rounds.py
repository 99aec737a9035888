"""Rounds: choose a pair of samples, move it, choose again; on every bank, against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from running_banks import BANKS, N, case_of

from kernelweave.bank import BatchBank, DenseBank, LazyBank
from kernelweave.combine import CombinedOperator, WeightedSum
from kernelweave.compiled.threads import one_blas_thread, use_threads
from kernelweave.kernels import RBF, RBFBatch
from kernelweave.operators import ComputedOperator, bind_kernels
from kernelweave.solvers.mwu.rounds import BoxConstraints, rounds_of
from kernelweave.solvers.mwu.running import running_products


@pytest.fixture(params=list(BANKS))
def case(request):
    return case_of(request.param)


class Written:
    """Rounds on explicit matrices."""

    def __init__(self, truth, rules, v, d):
        self.truth, self.rules, self.v, self.d = truth, rules, v.copy(), d

    def fitted(self):
        return np.tensordot(self.d, self.truth, axes=1) @ self.v

    def scores(self):
        return self.rules.linear - self.fitted() - self.rules.ridge * self.v

    def check(self, choice, atol):
        """Whether the choice is allowed, best up to rounding, and described as it is."""
        scores = self.scores()
        sides = (
            (choice.i, choice.score_i, choice.v_i, self.v < self.rules.up, 1.0),
            (choice.j, choice.score_j, choice.v_j, self.v > self.rules.down, -1.0),
        )
        for number, (one, score, value, allowed, sign) in enumerate(sides):
            assert isinstance(one, int) and isinstance(score, float)
            assert allowed[one]
            assert score == pytest.approx(scores[one], abs=atol)
            assert sign * scores[one] >= (sign * scores[allowed]).max() - 2 * atol
            # Numbers that no rounding touches are known exactly.
            assert value == pytest.approx(self.v[one], rel=1e-12, abs=1e-12)
            np.testing.assert_allclose(
                choice.products[:, number], (self.truth @ self.v)[:, one], atol=atol
            )
            np.testing.assert_allclose(choice.block[:, number], self.truth[:, one, one], atol=atol)
        both = self.truth[:, choice.i, choice.j]
        np.testing.assert_allclose(choice.block[:, 2], both, atol=atol)
        assert choice.products.shape == (len(self.truth), 2)
        assert choice.block.shape == (len(self.truth), 3)


def rules_of_a_classifier(ridge=0.0, C=0.8, seed=4):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(N) < 0.4, 1.0, -1.0)
    weight = C * rng.uniform(0.5, 1.5, N)
    return BoxConstraints(
        linear=y,
        ridge=ridge * rng.uniform(0.5, 1.5, N),
        up=np.where(y > 0, weight, 0.0),
        down=np.where(y > 0, 0.0, -weight),
    )


@pytest.mark.parametrize("ridge", [0.0, 0.3], ids=["box", "ridge"])
def test_rounds_choose_the_widest_pair(case, ridge):
    """Forty rounds of SMO with weights that change: boxes fill up and empty again."""
    bank, truth, atol = case
    rules = rules_of_a_classifier(ridge)
    atol = 30 * atol * (1 + np.abs(rules.up - rules.down).sum())
    rng = np.random.default_rng(5)
    v, d = np.zeros(N), rng.random(5)
    rounds = rounds_of(bank, rules)
    written = Written(truth, rules, v, d)
    choice = rounds.start(v, d)
    written.check(choice, atol)
    assert not v.any()
    full = set()
    for t in range(40):
        i, j = choice.i, choice.j
        room = min(rules.up[i] - choice.v_i, choice.v_j - rules.down[j])
        step = room if t % 2 else 0.4 * room
        d = rng.random(5) * (rng.random(5) < 0.8)
        choice = rounds.advance(choice, step, -step, d)
        # In the order of a pair of additions, so that full means full.
        written.v[i] += step
        written.v[j] += -step
        written.d = d
        full.update(np.flatnonzero(written.v >= rules.up))
        written.check(choice, atol)
        np.testing.assert_array_equal(rounds.values(), written.v)
        np.testing.assert_allclose(rounds.fitted(), written.fitted(), atol=atol)
    assert len(full) > 5
    written.d = np.array([0.0, 0.0, 1.0, 0.0, 0.5])
    choice = rounds.reweigh(written.d)
    written.check(choice, atol)
    np.testing.assert_array_equal(rounds.values(), written.v)
    np.testing.assert_allclose(rounds.fitted(), written.fitted(), atol=atol)


def test_rounds_of_the_kernels_followed(case):
    bank, truth, atol = case
    rules = rules_of_a_classifier(0.2)
    atol = 30 * atol * (1 + np.abs(rules.up - rules.down).sum())
    rng = np.random.default_rng(9)
    rounds = rounds_of(bank, rules)
    v = rng.uniform(rules.down, rules.up) * (rng.random(N) < 0.3)
    rounds.start(v, np.zeros(5))
    np.testing.assert_allclose(rounds.synchronise(), truth @ v @ v, atol=atol)
    for followed in (np.array([3, 1]), np.array([0, 2, 4]), np.arange(5)):
        rounds.restrict(followed)
        d = rng.random(len(followed))
        written = Written(truth[followed], rules, v, d)
        choice = rounds.reweigh(d)
        for _ in range(5):
            written.check(choice, atol)
            step = 0.7 * min(rules.up[choice.i] - choice.v_i, choice.v_j - rules.down[choice.j])
            written.v[choice.i] += step
            written.v[choice.j] -= step
            written.d = rng.random(len(followed))
            choice = rounds.advance(choice, step, -step, written.d)
        np.testing.assert_allclose(rounds.fitted(), written.fitted(), atol=atol)
        v = written.v
        quad = rounds.synchronise()
        np.testing.assert_allclose(quad, truth @ v @ v, atol=atol * np.abs(v).sum())
        np.testing.assert_array_equal(rounds.values(), v)


def test_rounds_start_from_any_vector_and_again(case):
    bank, truth, atol = case
    rules = rules_of_a_classifier(0.2)
    rng = np.random.default_rng(6)
    rounds = rounds_of(bank, rules)
    for share in (0.5, 0.0, 1.0):
        v = rng.uniform(rules.down, rules.up) * (rng.random(N) < share)
        given, d = v.copy(), rng.random(5)
        written = Written(truth, rules, v, d)
        choice = rounds.start(v, d)
        written.check(choice, 60 * atol)
        rounds.advance(choice, 0.1, -0.1, d)
        np.testing.assert_array_equal(v, given)


def test_steps_of_two_samples_need_not_be_opposite(case):
    """As in the paper, where the steps are halves on labels of both signs."""
    bank, truth, atol = case
    rules = BoxConstraints(np.zeros(N), np.zeros(N), np.full(N, np.inf), np.full(N, -np.inf))
    d = np.full(5, 0.2)
    rounds = rounds_of(bank, rules)
    choice = rounds.start(np.zeros(N), d)
    written = Written(truth, rules, np.zeros(N), d)
    assert (choice.i, choice.j) == (0, 0)
    for steps in ((0.5, 0.0), (0.25, -0.75), (0.0, 2.0)):
        written.v[choice.i] += steps[0]
        written.v[choice.j] += steps[1]
        choice = rounds.advance(choice, *steps, d)
        written.check(choice, 60 * atol)
        np.testing.assert_array_equal(rounds.values(), written.v)


def test_equal_scores_give_the_first(case):
    bank, _, _ = case
    y = np.where(np.arange(N) % 5 < 2, 1.0, -1.0)
    y[[0, 1]] = -1.0
    rules = BoxConstraints(y, np.zeros(N), np.where(y > 0, 1.0, 0.0), np.where(y > 0, 0.0, -1.0))
    rounds = rounds_of(bank, rules)
    choice = rounds.start(np.zeros(N), np.full(5, 0.2))
    assert (choice.i, choice.j) == (int(np.argmax(y)), 0) == (5, 0)
    assert (choice.score_i, choice.score_j) == (1.0, -1.0)
    # All weights zero: every score is that of its label again, whoever moved.
    choice = rounds.advance(choice, 0.5, -0.5, np.zeros(5))
    assert (choice.i, choice.j) == (5, 0)
    choice = rounds.advance(choice, 0.5, -0.5, np.zeros(5))
    # Both are full and may only go back: the next of each label are 6 and 1.
    assert (choice.i, choice.j) == (6, 1)


def test_nobody_may_move(case):
    bank, _, _ = case
    zero, far = np.zeros(N), np.full(N, 5.0)
    v = np.zeros(N)
    d = np.full(5, 0.2)
    for up, down in ((zero, zero), (far, zero), (zero, -far)):
        assert rounds_of(bank, BoxConstraints(zero + 1, zero, up, down)).start(v, d) is None
    # Someone may at first, and nobody in the end.
    up = np.zeros(N)
    up[9] = 1.0
    down = np.zeros(N)
    down[4] = -1.0
    rounds = rounds_of(bank, BoxConstraints(zero + 1, zero, up, down))
    choice = rounds.start(v, d)
    assert (choice.i, choice.j) == (9, 4)
    assert rounds.advance(choice, 1.0, 0.0, d) is None
    assert rounds.reweigh(np.zeros(5)) is None


def test_earlier_answers_stay_as_they_were(case):
    """A solver may go back to its best point, or divide two choices."""
    bank, _, _ = case
    rules = rules_of_a_classifier(0.1)
    rounds = rounds_of(bank, rules)
    d = np.full(5, 0.2)
    first = rounds.start(np.zeros(N), d)
    second = rounds.advance(first, 0.1, -0.1, d)
    v, fitted = rounds.values(), rounds.fitted()
    kept = [second.products, second.block, v, fitted]
    copies = [part.copy() for part in kept]
    rounds.advance(second, 0.2, -0.2, d[::-1] * np.arange(5))
    for part, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_one_sample_of_one_kernel():
    bank = DenseBank().from_matrices([np.eye(1)])
    rounds = rounds_of(bank, BoxConstraints(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1)))
    assert rounds.start(np.zeros(1), np.ones(1)) is None


def test_rounds_of_one_weighted_kernel(case):
    bank, truth, atol = case
    weights = np.array([0.5, 0.0, 0.2, 0.1, 0.2])
    rules = rules_of_a_classifier(0.1)
    atol *= 60
    rounds = rounds_of(CombinedOperator(WeightedSum(), bank, weights[None], ["sum"]), rules)
    rng = np.random.default_rng(8)
    v = rng.uniform(rules.down, rules.up) * (rng.random(N) < 0.5)
    for start in (v, np.zeros(N)):
        written = Written(np.tensordot(weights, truth, axes=1)[None], rules, start, np.ones(1))
        choice = rounds.start(start, np.ones(1))
        for _ in range(10):
            written.check(choice, atol)
            step = 0.5 * min(rules.up[choice.i] - choice.v_i, choice.v_j - rules.down[choice.j])
            written.v[choice.i] += step
            written.v[choice.j] -= step
            choice = rounds.advance(choice, step, -step, np.ones(1))
        np.testing.assert_allclose(rounds.values(), written.v, rtol=1e-14, atol=1e-16)
        np.testing.assert_allclose(rounds.fitted(), written.fitted(), atol=atol)


# Threads


def big(name):
    """The bank of a name with so many samples and kernels that the work is worth a thread."""
    if name == "many kernels":
        X = np.random.default_rng(0).normal(size=(1700, 20))
        return LazyBank(50).build(
            ComputedOperator.build([RBF(width=0.5 + k / 2) for k in range(1200)], X)
        )
    if name == "many in a batch":
        X = np.random.default_rng(0).normal(size=(700, 20))
        return BatchBank().build(bind_kernels(RBFBatch.random(3000, 20, random_state=0), X))
    make, build, _ = BANKS[name]
    return build(make(10_000)).select(np.tile(np.arange(5), 41))


@pytest.mark.parametrize(
    "name",
    [
        "lazy",
        "lazy32",
        "thin",
        "sparse",
        "positional",
        "batch32",
        "sparse-auto",
        "many kernels",
        "many in a batch",
    ],
)
def test_same_bits_for_any_number_of_threads(name):
    bank = big(name)
    answers = []
    for threads in (1, 2, 3):
        with use_threads(threads), one_blas_thread():  # As in a fit.
            n, m = bank.n, bank.m
            rng = np.random.default_rng(0)
            y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
            rules = BoxConstraints(y, np.full(n, 0.01), np.maximum(y, 0.0), np.minimum(y, 0.0))
            rounds = rounds_of(bank, rules)
            choice = rounds.start(
                y * rng.random(n) * (np.arange(n) % 997 == 5), np.full(m, 1.0 / m)
            )
            found = []
            for _ in range(4):
                choice = rounds.advance(choice, 0.3, -0.3, rng.random(m) / m)
                scores = choice.score_i, choice.score_j, choice.v_i, choice.v_j
                found += [np.array([choice.i, choice.j]), np.array(scores)]
                found += [choice.products, choice.block]
            products = running_products(bank)
            products.reset(rounds.values())
            found += [rounds.fitted(), products.weigh(np.ones(m)), *products.pair(0, n - 1)]
            answers.append(found)
    for other in answers[1:]:
        for one, two in zip(answers[0], other, strict=True):
            assert np.array_equal(one, two)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_of_equal_scores_wherever_the_work_is_cut(threads):
    n, m = 100_003, 20
    kernels = [RBF(width=1.0 + k) for k in range(m)]
    bank = LazyBank(2).build(ComputedOperator.build(kernels, np.zeros((n, 1))))
    for first, last in ((0, n - 1), (n - 2, n - 1), (40_000, 70_000), (70_000, 40_000)):
        up, down = np.zeros(n), np.zeros(n)
        up[[first, n - 1]] = 1.0
        up[n // 2 :: 7] = 1.0
        down[[last, 1]] = -1.0
        down[n // 3 :: 11] = -1.0
        rules = BoxConstraints(np.ones(n), np.zeros(n), up, down)
        with use_threads(threads):
            choice = rounds_of(bank, rules).start(np.zeros(n), np.ones(m))
        assert (choice.i, choice.j) == (int(np.argmax(up)), int(np.argmin(down)))
