"""Prediction by look-ups: the values of kernels against support vectors, and no pair evaluated."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from naive_strings import random_texts
from same_numbers import assert_same_numbers
from scipy import sparse
from thinned import thinned

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.combine import WeightedSum
from kernelweave.estimators.decisions import Decisions, LookUps
from kernelweave.kernels import (
    RBF,
    Kernel,
    Linear,
    Pair,
    Polynomial,
    RBFBatch,
    Samples,
    Spectrum,
    WeightedDegree,
)
from kernelweave.operators import ComputedOperator, bind_kernels

N, L = 30, 14


def strings(n, seed):
    """DNA with an N here and there, but k-mers of all lengths in every window."""
    texts = random_texts(n, L, np.random.default_rng(seed), often=0.0)
    return [f"{x[:3]}N{x[4:8]}N{x[9:]}" if i % 3 == 0 else x for i, x in enumerate(texts)]


TRAIN, NEW = strings(N, 0), strings(9, 1)


def dense(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 6)) + 0.5


def counts(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.5, size=(n, 6)).astype(float)
    X[:, 0] += 1.0
    return sparse.csr_array(X)


def frame(n, seed):
    X = dense(n, seed)
    columns = {"a": X[:, 0], "dna": strings(n, seed), "b": X[:, 1], "rna": strings(n, seed + 7)}
    return pd.DataFrame(columns)


WD, SP = WeightedDegree, Spectrum
CASES = {
    "whole": ([WD(4)], strings),
    "shift": ([WD(3, shift=2), WD(3, shift=2, positions=(2, 9))], strings),
    "lengths": (WD(4).by_length(), strings),
    "windows": (WD(3, shift=1).by_position(4), strings),
    "both": (WD(3).by_length().by_position(5), strings),
    "normalized": ([WD(3, normalize=True), SP(2, normalize=True)], strings),
    "both strands": ([WD(3, reverse_complement=True), SP(2, reverse_complement=True)], strings),
    "spectra": (SP((1, 4)).by_length(), strings),
    "spectra by window": (SP((1, 2)).by_length().by_position(7), strings),
    "several": ([WD(3), SP(2), WD(3, lengths=(2, 2)), SP((1, 3)), WD(4), SP(2)], strings),
    "linear": ([Linear(), Linear().on([1, 3]), Linear()], dense),
    "sparse": ([Linear(), Linear().on([0, 2])], counts),
    "columns": (
        [
            Linear().on(["a", "b"]),
            WD(3).by_length().on("dna"),
            SP((1, 2)).by_length().on("dna"),
            WD(3).on("rna"),
            Linear().on("b"),
        ],
        frame,
    ),
    "others": ([RBF(width=1.0).on("a"), WD(3).on("dna"), Polynomial(2).on("b")], frame),
    "products": ([WD(3).on("dna") * RBF(width=1.0).on("a"), SP(2).on("dna")], frame),
    "sums": ([WD(3) + SP(2), WD(2)], strings),
}
NORMALIZATIONS = [
    "trace",
    "diagonal",
    "center",
    None,
    ("center", "trace"),
    ("trace", "center"),
    ("diagonal", "trace"),
    ("diagonal", "center"),
    ("diagonal", "center", "trace"),
    ("center", "diagonal"),
    ("trace", "diagonal"),
    ("diagonal", "diagonal"),
    ("trace", "diagonal", "center"),
]


def against_training(kernels, d, v, new):
    return v @ np.tensordot(d, kernels.against(new).block(), axes=1).T


@pytest.mark.parametrize(("name", "normalize"), thinned(CASES, NORMALIZATIONS), ids=str)
def test_values(name, normalize):
    given, make = CASES[name]
    kernels = ComputedOperator.build(given, make(N, 0), normalize=normalize)
    kernels.diagonal()
    rng = np.random.default_rng(2)
    d = rng.uniform(0.5, 2.0, kernels.m)
    d[kernels.m // 2] *= kernels.m == 1
    v = rng.normal(size=N) * (rng.random(N) < 0.5)
    found = LookUps(kernels, d, v)
    new = make(9, 1)
    size = np.abs(kernels.against(new).block()).max() * np.abs(v).sum() * d.sum()
    expected = against_training(kernels, d - found.rest, v, new)
    np.testing.assert_allclose(found(Samples(new)), expected, atol=1e-12 * size)
    np.testing.assert_allclose(found(Samples(new).take([4, 4])), expected[[4, 4]], atol=1e-9)
    left = [kernels.names[k] for k in np.flatnonzero(found.rest)]
    if normalize == ("center", "diagonal"):
        # What is left of a new sample after centring is not known from its own features.
        assert len(left) == np.count_nonzero(d)
    else:
        assert all("rbf" in own or "polynomial" in own or "+" in own for own in left)


def test_constants_are_learnt_if_nobody_has_asked_before():
    for normalize in ("trace", "diagonal", "center"):
        kernels = ComputedOperator.build([WD(3)], TRAIN, normalize=normalize)
        v = np.linspace(-1, 1, N)
        values = LookUps(kernels, np.ones(1), v)(Samples(NEW))
        np.testing.assert_allclose(values, against_training(kernels, np.ones(1), v, NEW))


def test_no_kernel_and_no_coefficient():
    for given, make in CASES.values():
        kernels = ComputedOperator.build(given, make(N, 0), normalize=None)
        new = Samples(make(5, 1))
        nothing = LookUps(kernels, np.ones(kernels.m), np.zeros(N))(new)
        np.testing.assert_array_equal(nothing, np.zeros(5))
        none = LookUps(kernels, np.zeros(kernels.m), np.ones(N))
        np.testing.assert_array_equal(none(new), np.zeros(5))
        assert not none.rest.any()


def test_merged_kernels_are_one_look_up(monkeypatch):
    made = []
    for cls in (WD, SP):
        weigh = cls.weigh

        def counted(self, *args, weigh=weigh):
            made.append(type(self))
            return weigh(self, *args)

        monkeypatch.setattr(cls, "weigh", counted)
    given = [WD(3).by_length().by_position(4), SP((1, 3)).by_length(), WD(3)]
    v = np.linspace(-1, 1, N)
    kernels = ComputedOperator.build(given, TRAIN)
    d = np.linspace(1, 2, kernels.m)
    found = LookUps(kernels, d, v)
    assert sorted(cls.__name__ for cls in made) == ["Spectrum", "WeightedDegree"]
    size = np.abs(kernels.against(NEW).block()).max() * kernels.m
    expected = against_training(kernels, d, v, NEW)
    np.testing.assert_allclose(found(Samples(NEW)), expected, atol=1e-12 * size)
    made.clear()
    # Centred kernels have constants of their own.
    centred = ComputedOperator.build(given, TRAIN, normalize="center")
    centred.diagonal()
    LookUps(centred, d, v)
    assert len(made) == kernels.m


def test_a_sample_that_cannot_be_normalised_is_similar_to_none():
    kernels = ComputedOperator.build([WD(3)], TRAIN, normalize="diagonal")
    kernels.diagonal()
    found = LookUps(kernels, np.ones(1), np.ones(N))
    assert found(Samples(["N" * L])) == 0.0


# Decisions


def decisions(kernels, weights, coef, support):
    return Decisions(kernels, WeightedSum(), weights, support, coef)


@pytest.mark.parametrize("normalize", ["trace", "diagonal", ("center", "trace")], ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_decisions_of_several_tasks(shared, normalize):
    rng = np.random.default_rng(3)
    kernels = ComputedOperator.build(CASES["others"][0], frame(N, 0), normalize=normalize)
    kernels.diagonal()
    support = np.array([2, 5, 11, 12, 29])
    coef = rng.normal(size=(3, 5))
    coef[1] = 0.0  # A task without support vectors of its own.
    weights = rng.random((1 if shared else 3, 3))
    weights[0, 0] = 0.0
    f = decisions(kernels, weights, coef, support)
    new = frame(8, 1)
    cross = kernels.against(new).block(columns=support)
    expected = np.column_stack(
        [np.tensordot(weights[0 if shared else t], cross, axes=1) @ coef[t] for t in range(3)]
    )
    np.testing.assert_allclose(f(new), expected, atol=1e-10)
    np.testing.assert_allclose(f(new.iloc[[3]]), expected[[3]], atol=1e-10)
    for twin in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert twin._look_ups is None
        np.testing.assert_allclose(twin(new), expected, atol=1e-10)


def test_tables_are_made_once_and_not_pickled(monkeypatch):
    kernels = ComputedOperator.build(WD(4).by_length(), TRAIN)
    kernels.diagonal()
    support = np.arange(0, N, 2)
    f = decisions(kernels, np.full((1, 4), 0.25), np.ones((1, 15)), support)
    size = len(pickle.dumps(f))
    first = f(NEW)

    def never(self, *args):
        raise AssertionError("made again")

    monkeypatch.setattr(WD, "weigh", never)
    assert_same_numbers(f(NEW), first)
    assert len(pickle.dumps(f)) == size


def test_kernels_in_batches_beside_strings():
    kernels = bind_kernels([RBFBatch([[0], [1]], [1.0, 2.0]), Linear()], dense(N, 0))
    support, coef = np.arange(6), np.ones((1, 6))
    weights = np.array([[0.2, 0.3, 0.5]])
    new = dense(5, 1)
    expected = (
        np.tensordot(weights[0], kernels.against(new).block(columns=support), axes=1) @ coef[0]
    )
    found = decisions(kernels, weights, coef, support)(new)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)


# Models


def explicit(model, X_train, X_new):
    """The sum over support vectors, written out."""
    kernels = ComputedOperator.build(model.kernels, X_train, normalize=model.normalize)
    cross = kernels.against(X_new).block(columns=model.support_)
    weights = np.atleast_2d(model.weights_)
    columns = [
        np.tensordot(weights[t if len(weights) > 1 else 0], cross, axes=1) @ coef
        for t, coef in enumerate(model.dual_coef_)
    ]
    out = np.column_stack(columns) + model.intercept_
    return out[:, 0] if out.shape[1] == 1 else out


Y = np.array([("AC" in text) + 2 * ("GT" in text) for text in TRAIN])


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "center", None])
@pytest.mark.parametrize("name", ["both", "several", "windows", "normalized"])
def test_models_predict_the_sum_over_support_vectors(name, normalize):
    given = CASES[name][0]
    model = MKLClassifier(given, normalize=normalize, tol=1e-3).fit(TRAIN, Y > 1)
    expected = explicit(model, TRAIN, NEW)
    np.testing.assert_allclose(model.decision_function(NEW), expected, rtol=1e-9, atol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.decision_function(NEW), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_many_classes(multi_class):
    model = MKLClassifier(CASES["several"][0], multi_class=multi_class, C=10).fit(TRAIN, Y)
    assert model.dual_coef_.shape[0] == 4
    assert np.atleast_2d(model.weights_).shape[0] == (1 if multi_class == "shared" else 4)
    expected = explicit(model, TRAIN, NEW)
    np.testing.assert_allclose(model.decision_function(NEW), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[expected.argmax(axis=1)])


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_many_classes_of_a_table(multi_class):
    table, new = frame(N, 0), frame(9, 1)
    y = np.array([("AC" in text) + 2 * ("GT" in text) for text in table["dna"]])
    given = [RBF(width=1.0).on(["a", "b"]), WD(3).by_length().on("dna"), Linear().on("a")]
    model = MKLClassifier(given, multi_class=multi_class, C=10, tol=1e-4).fit(table, y)
    expected = explicit(model, table, new)
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=1e-6, atol=1e-6)
    turned = new[["rna", "b", "dna", "a"]]
    kernels = model._kernel_set
    np.testing.assert_allclose(kernels.against(turned).block(), kernels.against(new).block())
    np.testing.assert_allclose(model._decide(turned), model._decide(new))


def test_regression_and_outliers():
    y = np.array([text.count("AC") for text in TRAIN], dtype=float)
    model = MKLRegressor(WD(3).by_position(3), C=5.0).fit(TRAIN, y)
    np.testing.assert_allclose(model.predict(NEW), explicit(model, TRAIN, NEW), atol=1e-9)
    detector = MKLOneClass(WD(3).by_length(), nu=0.3).fit(TRAIN)
    scores = detector.decision_function(TRAIN)
    np.testing.assert_allclose(detector.decision_function(TRAIN[:5]), scores[:5], atol=1e-9)


@pytest.fixture
def no_pairs(monkeypatch):
    """Start it to make every evaluation of pairs of samples an error."""

    def start(*classes):
        def write(pair, kernel, out, allowed=Pair.write):
            if isinstance(kernel, classes):
                raise AssertionError(f"{kernel.name} was evaluated")
            allowed(pair, kernel, out)

        monkeypatch.setattr(Pair, "write", write)

    return start


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "center", ("center", "trace"), None])
@pytest.mark.parametrize("name", ["both", "several", "normalized", "both strands", "linear"])
def test_prediction_evaluates_no_pairs(name, normalize, no_pairs):
    given, make = CASES[name]
    X, new = make(N, 0), make(9, 1)
    model = MKLClassifier(given, normalize=normalize, tol=1e-2).fit(X, Y > 1)
    before = explicit(model, X, new)
    no_pairs(Kernel, WD, SP, Linear)
    values = model.decision_function(new)
    np.testing.assert_allclose(values, before, rtol=1e-9, atol=1e-9)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(twin.decision_function(new), before, rtol=1e-9, atol=1e-9)


def test_training_evaluates_no_pairs(no_pairs):
    """Neither does a fit of weighted degree or spectrum kernels."""
    no_pairs(Kernel, WD, SP)
    for given, bank in ((WD(3).by_length(), "auto"), (SP((1, 3)).by_length(), "sparse")):
        for normalize in ("trace", "diagonal", ("center", "trace")):
            model = MKLClassifier(given, bank=bank, normalize=normalize).fit(TRAIN, Y > 1)
            assert np.all(np.isfinite(model.decision_function(NEW)))
