"""Fits on aligned sequences: every bank, every solver, with and without a matrix, one optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from naive_strings import naive_gram, random_texts
from referee import referee
from thinned import thinned

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.bank import DenseBank, PositionalBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, Spectrum, WeightedDegree
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, SequenceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import LpBall, Simplex
from kernelweave.solvers import SPG, ActiveSet, Limits, SILPChunking, solve

L, MOTIF, AT = 16, "ACGGT", 5
FAMILIES = {
    "lengths": WeightedDegree(4).by_length(),
    "positions": WeightedDegree(4).by_position(2),
    "both": WeightedDegree(3).by_length().by_position(4),
    "windows with shift": WeightedDegree(3, shift=1).by_position(6),
    "both strands": WeightedDegree(3, reverse_complement=True, normalize=True).by_length(),
    "different": [WeightedDegree(5), WeightedDegree(2, shift=2), WeightedDegree(3, normalize=True)],
}


def planted(n, seed):
    """Random DNA; in half of it a motif, with mistakes, at one place."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    X = []
    for text, label in zip(random_texts(n, L, rng, often=0.02), y, strict=True):
        motif = [c if rng.random() < 0.8 else "A" for c in MOTIF]
        X.append(text[:AT] + "".join(motif) + text[AT + 5 :] if label else text)
    return X, np.where(y, 1, -1)


X, Y = planted(90, 0)
NEW, _ = planted(30, 1)


class _Large(SequenceOperator):
    """Sequences of which no matrix may be formed, and whose variables move twelve at a time."""

    matrix_limit = 0
    most: int

    def square_limit(self, most, copies):
        return min(most, self.most)

    def weighted(self, d, rows=None, columns=None, out=None):
        assert rows is not None, "a matrix was formed"
        return super().weighted(d, rows, columns, out)


@dataclass
class NoMatrix:
    """The plan of a bank that answers as one of many samples does."""

    most: int

    def build(self, kernels):
        bank = _Large.of(kernels)
        bank.most, bank.round_size = self.most, 12
        return bank


@pytest.fixture(params=[20, 4096], ids=["few at a time", "narrowing down"])
def no_matrix(request):
    return NoMatrix(request.param)


@pytest.mark.parametrize(
    ("family", "options"),
    thinned(FAMILIES, [{}, {"normalize": ("center", "trace"), "loss": "logistic"}]),
)
def test_banks_agree(family, options):
    kernels = FAMILIES[family]
    fits = [
        MKLClassifier(kernels, bank=bank, tol=1e-8, C=0.5, **options).fit(X, Y)
        for bank in ("positional", "dense", "lazy", "auto")
    ]
    assert all(fit.converged_ for fit in fits)
    for fit in fits[1:]:
        assert fits[0].objective_ == pytest.approx(fit.objective_, rel=1e-6)
        np.testing.assert_allclose(fits[0].weights_, fit.weights_, atol=1e-3)
        expected = fit.decision_function(NEW)
        np.testing.assert_allclose(fits[0].decision_function(NEW), expected, atol=1e-3)


@pytest.mark.parametrize("family", ["lengths", "both", "windows with shift"])
def test_regression_and_outliers(family):
    y = np.array([text.count("AC") + (MOTIF[:3] in text) for text in X], dtype=float)
    for loss in ("epsilon_insensitive", "squared"):
        fits = [
            MKLRegressor(FAMILIES[family], bank=bank, tol=1e-8, loss=loss).fit(X, y)
            for bank in ("positional", "dense")
        ]
        assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
        np.testing.assert_allclose(fits[0].predict(NEW), fits[1].predict(NEW), atol=1e-3)
    fits = [
        MKLOneClass(FAMILIES[family], bank=bank, tol=1e-7, nu=0.3).fit(X)
        for bank in ("positional", "dense", "lazy")
    ]
    for fit in fits[1:]:
        assert fits[0].objective_ == pytest.approx(fit.objective_, rel=1e-6)


def test_one_kmer_at_one_position_is_the_spectrum_there():
    """Features of the two kernels are then the same, through quite different code."""
    spectra, degrees = (
        MKLClassifier(kernel.by_length().by_position(1), bank=bank, tol=1e-7, loss="logistic")
        for kernel, bank in (
            (Spectrum((1, 2), positions=(2, 13)), "sparse"),
            (WeightedDegree(2, positions=(2, 13)), "positional"),
        )
    )
    spectra.fit(X, Y)
    degrees.fit(X, Y)
    assert len(spectra.weights_) == len(degrees.weights_) == 22
    assert degrees.objective_ == pytest.approx(spectra.objective_, rel=1e-6)
    np.testing.assert_allclose(degrees.weights_, spectra.weights_, atol=2e-3)
    np.testing.assert_allclose(
        degrees.decision_function(NEW), spectra.decision_function(NEW), atol=2e-3
    )
    # The weight is where the motif is.
    inside = [AT <= k.positions[0] < AT + 5 for k in degrees._kernel_set.kernels]
    assert degrees.weights_[inside].sum() > 0.7


@pytest.mark.parametrize(
    ("family", "solver"),
    thinned(["lengths", "positions", "both"], ["silp", "silp-chunking", "active-set", "spg"]),
)
def test_solvers_agree(family, solver):
    kernels = FAMILIES[family]
    truth = MKLClassifier(kernels, bank="dense", tol=1e-8).fit(X, Y)
    fit = MKLClassifier(kernels, bank="positional", tol=1e-7, solver=solver).fit(X, Y)
    assert fit.converged_
    assert fit.objective_ == pytest.approx(truth.objective_, rel=1e-6)
    assert fit.dual_objective_ <= truth.objective_ * (1 + 1e-9)
    equal = [MKLClassifier(kernels, bank=bank, solver="uniform", tol=1e-8) for bank in BOTH]
    objectives = [model.fit(X, Y).objective_ for model in equal]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-7)
    assert objectives[0] > truth.objective_


BOTH = ("positional", "dense")


@pytest.mark.parametrize(
    ("family", "solver"),
    thinned(
        ["lengths", "both", "different"],
        ["silp", "silp-chunking", "active-set", "spg", "uniform"],
    ),
)
def test_no_matrix(family, solver, no_matrix):
    kernels = FAMILIES[family]
    truth = MKLClassifier(kernels, bank="dense", tol=1e-7, solver=solver).fit(X, Y)
    fit = MKLClassifier(kernels, bank=no_matrix, tol=1e-7, solver=solver).fit(X, Y)
    assert fit.converged_
    assert fit.objective_ == pytest.approx(truth.objective_, rel=1e-6)
    np.testing.assert_allclose(fit.weights_, truth.weights_, atol=2e-3)


@pytest.mark.parametrize("normalize", ["diagonal", ("center", "trace"), None], ids=str)
def test_no_matrix_and_other_normalisations(normalize, no_matrix):
    # Letters that are ambiguous in some window would leave no diagonal there.
    texts = [text.replace("N", "A") for text in X]
    kernels = WeightedDegree(3).by_length().by_position(8)
    fits = [
        MKLClassifier(kernels, bank=bank, tol=1e-7, normalize=normalize).fit(texts, Y)
        for bank in (no_matrix, "dense")
    ]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)


def test_no_matrix_in_other_problems(no_matrix):
    kernels = FAMILIES["lengths"]
    y = np.array([text.count("AC") for text in X], dtype=float)
    three = np.array([(MOTIF[:3] in text) + ("TT" in text) for text in X])
    for model, target in (
        (MKLRegressor(kernels, tol=1e-7), y),
        (MKLRegressor(kernels, tol=1e-6, loss="squared"), y),
        (MKLClassifier(kernels, tol=1e-6, loss="logistic"), Y),
        (MKLClassifier(kernels, tol=1e-6, regularizer=LpBall(2.0)), Y),
        (MKLClassifier(kernels, tol=1e-6, multi_class="shared"), three),
        (MKLOneClass(kernels, tol=1e-6, nu=0.4), None),
    ):
        fits = [
            model.set_params(bank=bank).fit(X, target).objective_ for bank in (no_matrix, "dense")
        ]
        assert fits[0] == pytest.approx(fits[1], rel=1e-5)


@pytest.mark.parametrize("family", ["both", "different"])
def test_blocks_and_products_of_a_sum(family, no_matrix):
    kernels = ComputedOperator.build(FAMILIES[family], X)
    bank, truth = no_matrix.build(kernels), kernels.block(np.arange(len(X)))
    rng = np.random.default_rng(3)
    gram = None
    for weights in (1, 1, 2, 3):  # Twice the same: what is known is taken over.
        d = np.random.default_rng(weights).random(bank.m)
        d[weights % bank.m] = 0.0
        gram = WeightedSum().gram(bank, d, reuse=gram)
        K = np.tensordot(d, truth, axes=1)
        assert gram.dense() is None
        np.testing.assert_allclose(gram.diagonal(), np.diagonal(K), atol=1e-12)
        idx = np.arange(len(X))
        # Ever fewer of those before, then others, also beyond the last of those before.
        for size in (60, 30, 30, 5):
            idx = np.sort(rng.choice(idx, size, replace=False))
            np.testing.assert_allclose(gram.block(idx), K[np.ix_(idx, idx)], atol=1e-12)
        for other in ([1, 5, 60], [2, 88, 89], [0, 1, 89], [0, 89]):
            found = gram.block(np.array(other))
            np.testing.assert_allclose(found, K[np.ix_(other, other)], atol=1e-12)
        total = np.zeros(len(X))
        for _ in range(3):
            idx = np.sort(rng.choice(len(X), 9, replace=False))
            delta = rng.normal(size=9)
            total[idx] += delta
            np.testing.assert_allclose(gram.product(idx, delta), K[:, idx] @ delta, atol=1e-12)
        np.testing.assert_allclose(gram.parts, truth[gram.active] @ total, atol=1e-11)


@pytest.mark.parametrize(("family", "size"), [("lengths", 2), ("both", 5), ("lengths", 16)])
def test_chunks_of_any_size(family, size):
    kernels = ComputedOperator.build(FAMILIES[family], X)
    y, C = Y[None].astype(float), np.ones((1, len(Y)))
    rest = get_loss("hinge"), Simplex(), WeightedSum()
    truth = solve(Problem(DenseBank().build(kernels), y, C, *rest), SPG(), Limits(tol=1e-7))
    problem = Problem(PositionalBank().build(kernels), y, C, *rest)
    mine = solve(problem, SILPChunking(chunk_size=size), Limits(tol=1e-5))
    assert mine.converged
    assert mine.certificate.primal == pytest.approx(truth.certificate.primal, rel=2e-5)


def test_the_same_bits_for_any_number_of_threads():
    # So long that looking them up is worth a thread.
    X = ["".join(text) for text in zip(*[planted(250, seed)[0] for seed in range(65)], strict=True)]
    Y, NEW = planted(250, 0)[1], X[::9]
    kernels = WeightedDegree(3).by_length().by_position(260)
    for solver in ("silp-chunking", "spg"):
        fits = [MKLClassifier(kernels, solver=solver, n_jobs=jobs).fit(X, Y) for jobs in (1, 2, 3)]
        for fit in fits[1:]:
            np.testing.assert_array_equal(fit.weights_, fits[0].weights_)
            np.testing.assert_array_equal(fit.dual_coef_, fits[0].dual_coef_)
            np.testing.assert_array_equal(
                fit.decision_function(NEW), fits[0].decision_function(NEW)
            )


@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_the_referee(name):
    """Matrices from the formula written out, a general convex solver, and our fit."""
    texts, y = X[:24], Y[:24].astype(float)[None]
    parts = [(k, at) for at in (0, 8) for k in (1, 2, 3)]
    Ks = []
    for k, at in parts:
        K = naive_gram(texts, texts, 3, lengths=(k, k), positions=(at, at + 8))
        Ks.append(K * len(K) / np.trace(K))
    C = np.full((1, 24), 0.7)
    value, weights, decisions = referee(Ks, y, C, get_loss(name), Simplex(), 1)
    family = WeightedDegree(3).by_length().by_position(8)
    for solver in (ActiveSet(), SPG(), *([SILPChunking(chunk_size=6)] if name == "hinge" else [])):
        model = MKLClassifier(family, C=0.7, loss=name, tol=1e-7, solver=solver)
        model.fit(texts, y[0])
        assert model.objective_ == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(model.weights_, weights, atol=3e-3)
        found = model.decision_function(texts)
        np.testing.assert_allclose(found, decisions[0], atol=5e-3 * np.abs(decisions).max())


def test_sequences_beside_numbers():
    rng = np.random.default_rng(2)
    table = pd.DataFrame({"sequence": X, "x": rng.normal(size=len(X)) + 0.7 * Y})
    kernels = [
        WeightedDegree(4).by_length().on("sequence"),
        RBF(width=1.0).on("x"),
        Spectrum((1, 3)).by_length().on("sequence"),
    ]
    fits = [MKLClassifier(kernels, bank=bank, tol=1e-7).fit(table, Y) for bank in ("auto", "dense")]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
    np.testing.assert_allclose(fits[0].weights_, fits[1].weights_, atol=2e-3)
    new = pd.DataFrame({"sequence": NEW, "x": rng.normal(size=len(NEW))})
    values = [fit.decision_function(new) for fit in fits]
    np.testing.assert_allclose(values[0], values[1], atol=2e-3)


def test_sample_weights_and_warm_starts():
    kernels = FAMILIES["lengths"]
    weight = np.where(np.arange(len(X)) % 3 == 0, 0.0, 1.0)
    fit = MKLClassifier(kernels, bank="positional", tol=1e-7, normalize=None).fit(
        X, Y, sample_weight=weight
    )
    kept = np.flatnonzero(weight)
    part = MKLClassifier(kernels, bank="positional", tol=1e-7, normalize=None).fit(
        [X[i] for i in kept], Y[kept]
    )
    assert fit.objective_ == pytest.approx(part.objective_, rel=1e-6)
    model = MKLClassifier(kernels, bank="positional", tol=1e-6, warm_start=True).fit(X, Y)
    first = model.objective_
    assert model.fit(X, Y).objective_ == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("solver", ["active-set", "silp", "silp-chunking"])
def test_an_alpha_that_is_not_unique_does_not_hide_the_optimum(solver):
    """Single letters at positions make a singular kernel, and T has a kink at the optimum."""
    many, labels = planted(400, 0)
    family = WeightedDegree(1).by_position()
    model = MKLClassifier(family, solver=solver, max_time=200).fit(many, labels)
    assert model.converged_ and model.gap_ <= 1e-3
    best = MKLClassifier(family, solver="spg").fit(many, labels)
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-3)
