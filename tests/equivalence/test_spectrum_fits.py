"""Fits on sequences: through k-mer counts, through matrices, and through weights of k-mers."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.kernels import Samples, Spectrum
from kernelweave.operators import ComputedOperator

MOTIF = "ACGGT"


def planted(n, rng, low=30, high=50):
    """Random DNA of unequal lengths; a motif, with mistakes, in half of it."""
    y = rng.random(n) < 0.5
    X = []
    for label in y:
        letters = rng.choice(list("ACGT"), rng.integers(low, high))
        if label != (rng.random() < 0.05):
            at = rng.integers(0, len(letters) - len(MOTIF))
            letters[at : at + len(MOTIF)] = list(MOTIF)
        X.append("".join(letters))
    return X, np.where(y, "site", "other")


@pytest.fixture(scope="module")
def data():
    return planted(220, np.random.default_rng(0))


KERNELS = {
    "one length": [Spectrum(3)],
    "mixed": [Spectrum((1, 5), normalize=True)],
    "lengths": Spectrum((1, 5)).by_length(),
    "windows": Spectrum((2, 4)).by_position(16),
    "both": Spectrum((2, 4), reverse_complement=True).by_length().by_position(25),
}


@pytest.mark.parametrize("kernels", list(KERNELS))
@pytest.mark.parametrize("options", [{}, {"normalize": ("center", "trace"), "loss": "logistic"}])
def test_the_sparse_bank_learns_what_the_dense_one_learns(data, kernels, options):
    X, y = data
    fits = [
        MKLClassifier(KERNELS[kernels], bank=bank, C=0.3, tol=1e-7, **options).fit(X[:150], y[:150])
        for bank in ("sparse", "dense")
    ]
    assert all(fit.converged_ for fit in fits)
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-6)
    assert fits[0].weights_ == pytest.approx(fits[1].weights_, abs=2e-3)
    values = [fit.decision_function(X[150:]) for fit in fits]
    np.testing.assert_allclose(values[0], values[1], atol=2e-3)


@pytest.mark.parametrize("bank", ["sparse", "lazy", "dense"])
def test_working_sets_reach_the_same_optimum(data, bank):
    """With the sparse bank that is linadd: no kernel value is ever computed."""
    X, y = data
    kernels = Spectrum((1, 5)).by_length()
    truth = MKLClassifier(kernels, bank="dense", tol=1e-7, solver="silp").fit(X, y)
    fit = MKLClassifier(kernels, bank=bank, tol=1e-6, solver="silp-chunking").fit(X, y)
    assert fit.converged_
    assert fit.objective_ == pytest.approx(truth.objective_, rel=1e-5)
    assert fit.weights_ == pytest.approx(truth.weights_, abs=5e-3)


def test_predictions_by_looking_kmers_up(data):
    """One table of all kernels gives the decision values of the whole fit."""
    X, y = data
    model = MKLClassifier(Spectrum((1, 5)).by_length(), bank="sparse", tol=1e-6).fit(
        X[:150], y[:150]
    )
    train, new = Samples(X[:150]), Samples(X[150:])
    kernels = ComputedOperator.build(Spectrum((1, 5)).by_length(), train)
    used = np.flatnonzero(model.weights_)
    parts = [kernels.kernels[k] for k in used]
    factors = kernels.scale(used.tolist()) * model.weights_[used]
    alpha = np.zeros(150)
    alpha[model.support_] = model.dual_coef_[0]
    f = parts[0].weigh(train, alpha, list(zip(parts, factors, strict=True)))
    expected = model.decision_function(X[150:])
    np.testing.assert_allclose(f(new) + model.intercept_, expected, atol=1e-9)
    # The motif's own k-mers are the ones that speak for a site.
    length = parts[-1].lengths[1]
    numbers, values = parts[-1].kmer_weights(train, alpha, length)
    sign = 1.0 if model.classes_[1] == "site" else -1.0
    best = Spectrum(length)._letters.text(int(numbers[np.argmax(sign * values)]), length)
    assert best in MOTIF


def test_regression_on_counts():
    rng = np.random.default_rng(1)
    X, _ = planted(150, rng)
    y = np.array([x.count("AC") - x.count("GG") for x in X]) + 0.1 * rng.normal(size=150)
    fits = [
        MKLRegressor(Spectrum((1, 3)).by_length(), bank=bank, tol=1e-6, C=10.0).fit(X, y)
        for bank in ("sparse", "dense")
    ]
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-5)
    assert fits[0].score(X, y) > 0.9


def test_new_sequences_may_be_longer_shorter_and_unknown(data):
    X, y = data
    for kernels in KERNELS.values():
        model = MKLClassifier(kernels, tol=1e-2).fit(X, y)
        values = model.decision_function(["ACGT" * 100, "A", "NNNNNN", MOTIF])
        assert np.all(np.isfinite(values))
