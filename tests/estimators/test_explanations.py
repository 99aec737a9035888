"""Scores of k-mers say what a fitted model does, and find what was planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from same_numbers import assert_same_numbers
from sklearn.pipeline import make_pipeline

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor, stability
from kernelweave.errors import InvalidInputError, MemoryBudgetError, UnknownNameError
from kernelweave.kernels import RBF, Linear, RBFBatch, Spectrum, WeightedDegree
from kernelweave.report import (
    kmer_scores,
    length_position_weights,
    letter_scores,
    sequence_scores,
    top_kmers,
)

LENGTH, MOTIF, PLACE = 18, "TTGACA", 6


def random_sequences(rng, n, length=LENGTH, letters="ACGT"):
    return ["".join(rng.choice(list(letters), length)) for _ in range(n)]


@pytest.fixture(scope="module")
def planted():
    """60 sequences; those of class 1 have a motif at a place. Two have a letter nobody knows."""
    rng = np.random.default_rng(0)
    X, y = random_sequences(rng, 60), np.repeat([1, 0], 30)
    X = [x[:PLACE] + MOTIF + x[PLACE + 6 :] if c else x for x, c in zip(X, y, strict=True)]
    for i in (3, 40):
        X[i] = X[i][: PLACE + 2] + "N" + X[i][PLACE + 3 :]
    return X, y


@pytest.fixture(scope="module")
def new():
    rng = np.random.default_rng(1)
    some = random_sequences(rng, 12)
    return [*some, some[0][:9] + "N" + some[0][10:], some[1].lower(), "N" * LENGTH]


def fit(kernels, planted, **settings):
    # The lp ball keeps all kernels.
    return MKLClassifier(kernels, **{"regularizer": "lp_ball", "C": 2.0, **settings}).fit(*planted)


KERNELS = {
    "wd": WeightedDegree(4),
    "shift": WeightedDegree(3, shift=2),
    "both strands": WeightedDegree(3, shift=1, reverse_complement=True),
    "by length": WeightedDegree(4).by_length(),
    "by position": WeightedDegree(3, shift=2).by_position(4),
    "both": WeightedDegree(3, shift=2, reverse_complement=True).by_length().by_position(5),
    "spectrum": Spectrum((1, 4)),
    "spectrum of both strands": Spectrum((1, 4), reverse_complement=True),
    "spectrum by position": Spectrum((1, 3)).by_length().by_position(5),
    "several": [WeightedDegree(2), WeightedDegree(4, reverse_complement=True), Spectrum(3)],
}
NORMALIZED = {
    "wd": WeightedDegree(3, normalize=True).by_length(),
    "shift": WeightedDegree(3, shift=1, normalize=True),
    "spectrum": Spectrum((1, 3), normalize=True, reverse_complement=True),
}


def scores_from_tables(model, sequences):
    """Look up all k-mers of each sequence one by one, and add them up where they start."""
    out = np.zeros((len(sequences), LENGTH))
    for k in range(1, 5):
        try:
            table = kmer_scores(model, k)
        except InvalidInputError:
            continue
        row_of = {kmer: row for row, kmer in enumerate(table.kmers)}
        for i, sequence in enumerate(sequences):
            for at in range(len(sequence) - k + 1):
                row = row_of.get(sequence[at : at + k].upper())
                if row is not None:
                    out[i, at] += table.scores[row, at if table.placed else 0]
    return out


@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
def test_scores_add_up_to_decisions(kernels, planted, new):
    model = fit(kernels, planted)
    share = model.decision_function(new) - model.intercept_[0]
    scores = sequence_scores(model, new)
    assert scores.shape == (len(new), LENGTH)
    assert_allclose(scores.sum(axis=1), share, atol=1e-10)
    assert_allclose(sequence_scores(model, new, per="letter").sum(axis=1), share, atol=1e-10)
    assert_allclose(scores_from_tables(model, new), scores, atol=1e-10)


@pytest.mark.parametrize("kernels", NORMALIZED.values(), ids=NORMALIZED)
@pytest.mark.parametrize("normalize", ["trace", "diagonal", None])
def test_normalized_kernels(kernels, normalize, planted, new):
    model = fit(kernels, planted, normalize=normalize)
    some = new[:-1]  # a sequence without a letter has no unit diagonal
    share = model.decision_function(some) - model.intercept_[0]
    assert_allclose(sequence_scores(model, some).sum(axis=1), share, atol=1e-10)


def test_tables_of_a_normalized_kernel_are_exact_where_all_sequences_have_one_factor(planted, new):
    X = [x.replace("N", "A") for x in planted[0]]
    model = fit(WeightedDegree(3).by_length(), (X, planted[1]), normalize="diagonal")
    clean = new[:12]
    share = model.decision_function(clean) - model.intercept_[0]
    assert_allclose(scores_from_tables(model, clean).sum(axis=1), share, atol=1e-10)


def test_tables_of_a_normalized_kernel_have_the_mean_factor(planted):
    model = fit(Spectrum(2, normalize=True), planted)
    raw = np.diag(Spectrum(2)(planted[0]))
    # 17 times AA, divided by 17: the score of AA but for the factor.
    alone = sequence_scores(model, ["A" * LENGTH]).sum()
    score = kmer_scores(model, 2).scores[0, 0]
    assert_allclose(score, alone * np.mean(1 / np.sqrt(raw)))


@pytest.mark.parametrize("name", ["wd", "shift", "both strands", "by position", "spectrum"])
def test_with_shorter_ones_inside_a_kmer_is_all_a_sequence_gets(name, planted):
    model = fit(KERNELS[name], planted)
    table = kmer_scores(model, 5, include_shorter=True)
    for kmer, at in [("TTGAC", 6), ("GACAT", 8), ("AAAAA", 0), ("CCGTA", 13)]:
        # N matches nothing, so these letters are all there is.
        sequence = "N" * at + kmer + "N" * (LENGTH - 5 - at)
        gain = model.decision_function([sequence])[0] - model.intercept_[0]
        row = table.kmers.tolist().index(kmer)
        assert_allclose(table.scores[row, at if table.placed else 0], gain, atol=1e-10)


@pytest.mark.parametrize("normalize", [("center", "trace"), ("diagonal", "center")])
@pytest.mark.parametrize("estimator", [MKLClassifier, MKLOneClass])
def test_centring_adds_a_constant(normalize, estimator, planted, new):
    kernels = [WeightedDegree(3), Spectrum(2)]
    settings = {"nu": 1.0} if estimator is MKLOneClass else {}
    sample_weight = np.linspace(0.5, 1.5, 60)
    model = estimator(kernels, normalize=normalize, regularizer="lp_ball", **settings)
    model.fit(*planted, sample_weight=sample_weight)
    some = new[:12]
    rest = model.decision_function(some) - sequence_scores(model, some).sum(axis=1)
    assert_allclose(rest, rest[0], atol=1e-9)


def test_a_unit_diagonal_after_centring_is_refused(planted):
    model = fit(WeightedDegree(3), planted, normalize=("center", "diagonal"))
    with pytest.raises(InvalidInputError, match="unit diagonal after centring"):
        kmer_scores(model)


@pytest.mark.parametrize("estimator", [MKLRegressor(), MKLOneClass(nu=0.5)])
def test_regression_and_one_class(estimator, planted, new):
    model = estimator.set_params(kernels=[WeightedDegree(3)]).fit(*planted)
    values = getattr(model, "decision_function", model.predict)(new)
    assert_allclose(sequence_scores(model, new).sum(axis=1) + model.intercept_, values, atol=1e-10)
    with pytest.raises(InvalidInputError, match="has none"):
        kmer_scores(model, target=1)


# What was planted


@pytest.mark.parametrize("shift", [0, 1])
def test_the_motif_comes_out_on_top(shift, planted):
    model = fit(WeightedDegree(6, shift=shift), planted)
    top = top_kmers(model, n=5, lengths=6)
    assert top.kmers[0] == MOTIF
    assert top.positions[0] == PLACE
    assert top.scores[0] > 0
    best = kmer_scores(model, 6, include_shorter=True).top(1)
    assert (best.kmers, best.positions.tolist()) == ([MOTIF], [PLACE])


def test_the_logo_spells_the_motif(planted):
    table = letter_scores(fit(WeightedDegree(4), planted))
    here = table.scores[:, PLACE : PLACE + 6]
    assert "".join(table.kmers[here.argmax(axis=0)]) == MOTIF
    others = np.delete(table.scores, np.s_[PLACE : PLACE + 6], axis=1)
    assert here.max(axis=0).min() > 2 * np.abs(others).max()


def test_a_spectrum_kernel_finds_it_anywhere():
    rng = np.random.default_rng(0)
    X, y = random_sequences(rng, 80), np.repeat([1, 0], 40)
    at = rng.integers(0, LENGTH - 6, 80)
    X = [x[:p] + MOTIF + x[p + 6 :] if c else x for x, p, c in zip(X, at, y, strict=True)]
    top = top_kmers(MKLClassifier(Spectrum((3, 6))).fit(X, y), n=3, lengths=[5, 6])
    assert set(top.kmers) == {MOTIF, MOTIF[:5], MOTIF[1:]}
    assert top.positions is None
    assert list(top.to_frame().columns) == ["kmer", "length", "score"]


def test_single_letters_are_their_own_logo(planted):
    model = fit(WeightedDegree(1), planted)
    assert_allclose(letter_scores(model).scores, kmer_scores(model, 1).scores, atol=1e-12)


def test_very_many_sequences_are_read_in_parts(planted):
    model = fit([WeightedDegree(3), Spectrum(2)], planted)
    few = planted[0][:10]
    many = sequence_scores(model, np.tile(few, 8000))
    assert_allclose(many, np.tile(sequence_scores(model, few), (8000, 1)), atol=1e-12)


def test_sequences_of_unequal_length(planted):
    rng = np.random.default_rng(2)
    X = [x[: rng.integers(9, LENGTH + 1)] for x in planted[0]]
    model = MKLClassifier([Spectrum(2).by_position(6)], regularizer="lp_ball").fit(X, planted[1])
    some = [*X[:5], "AC", "A"]
    scores = sequence_scores(model, some)
    assert scores.shape == (7, max(map(len, some)))
    assert not scores[5, 1:].any()
    share = model.decision_function(some) - model.intercept_[0]
    assert_allclose(scores.sum(axis=1), share, atol=1e-10)
    assert letter_scores(model).scores.shape == (4, max(map(len, X)))


# Tables


def test_the_largest_of_the_table_are_the_top(planted):
    model = fit([WeightedDegree(3), Spectrum(3)], planted)
    top, table = top_kmers(model, n=9, lengths=3), kmer_scores(model, 3).top(9)
    assert (top.kmers, top.positions.tolist()) == (table.kmers, table.positions.tolist())
    assert_allclose(top.scores, table.scores)
    assert np.all(np.diff(np.abs(top.scores)) <= 1e-12)
    assert_allclose(top_kmers(model, n=9, lengths=3, target=0).scores, -top.scores)
    every = top_kmers(model, n=10_000)
    assert set(every.lengths) == {1, 2, 3}
    assert len(top_kmers(model, n=4)) == 4
    lines = repr(top).splitlines()
    assert lines[0].split() == ["k-mer", "length", "position", "score"]
    assert lines[1].split()[:3] == [top.kmers[0], "3", str(top.positions[0])]
    assert repr(every).endswith("more")


def test_tables_as_frames(planted):
    model = fit(WeightedDegree(2), planted)
    table = kmer_scores(model, 2)
    frame = table.to_frame()
    assert frame.shape == (16, LENGTH - 1)
    assert frame.loc["AC", 3] == table.scores[1, 3]
    assert list(kmer_scores(fit(Spectrum(2), planted), 2).to_frame().columns) == ["score"]
    assert top_kmers(model, n=3).to_frame().shape == (3, 4)


def test_protein_letters():
    rng = np.random.default_rng(0)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    X, y = random_sequences(rng, 60, 10, letters), np.repeat([1, 0], 30)
    X = [x[:3] + "WYK" + x[6:] if c else x for x, c in zip(X, y, strict=True)]
    model = MKLClassifier(WeightedDegree(3, alphabet="protein")).fit(X, y)
    assert top_kmers(model, 1, lengths=3).kmers == ["WYK"]
    table = kmer_scores(model, 2)
    assert table.scores.shape == (400, 9)
    assert table.kmers[21] == "CC"
    assert_allclose(table.top(1).scores, top_kmers(model, 1, lengths=2).scores)


# Which classes, which kernels


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_several_classes(multi_class, planted, new):
    y = np.array(["a", "b", "c"])[np.where(planted[1] == 1, 2, np.arange(60) % 2)]
    kernels = WeightedDegree(3).by_length()
    model = MKLClassifier(kernels, multi_class=multi_class, regularizer="lp_ball")
    model.fit(planted[0], y)
    values = model.decision_function(new) - model.intercept_
    for place, name in enumerate("abc"):
        scores = sequence_scores(model, new, target=name)
        assert_allclose(scores.sum(axis=1), values[:, place], atol=1e-10)
        assert kmer_scores(model, target=name).title == f"class {name}"
    for target in (None, "d"):
        with pytest.raises(InvalidInputError, match="one of the classes 'a', 'b', 'c'"):
            top_kmers(model, target=target)


def test_what_speaks_for_one_of_two_classes_is_against_the_other(planted):
    model = fit(WeightedDegree(2), planted)
    for_one, for_other = (kmer_scores(model, 2, target=c).scores for c in (1, 0))
    assert_same_numbers(for_one, kmer_scores(model, 2).scores)
    assert_same_numbers(for_one, -for_other)


@pytest.fixture(scope="module")
def table(planted):
    rng = np.random.default_rng(3)
    X, y = planted
    return pd.DataFrame(
        {"size": rng.normal(size=60) + y, "up": X, "down": random_sequences(rng, 60, 8)}
    )


@pytest.mark.parametrize("other", [RBF(width=1.0).on("size"), RBFBatch([[0]], [0.5])])
def test_a_column_beside_others(other, table, planted):
    model = fit([other, WeightedDegree(3).on("up")], (table, planted[1]))
    scores = sequence_scores(model, table)
    assert_allclose(sequence_scores(model, table["up"]), scores)
    assert_allclose(sequence_scores(model, list(table["up"])), scores)
    # What is left depends on the other column alone.
    other = table.assign(up=table["up"].iloc[::-1].to_numpy())
    rest = model.decision_function(table) - scores.sum(axis=1)
    assert_allclose(model.decision_function(other) - scores[::-1].sum(axis=1), rest, atol=1e-10)
    assert top_kmers(make_pipeline("passthrough", model), 1, lengths=3).kmers[0] in MOTIF


def test_two_columns_of_sequences(table, planted):
    model = fit([WeightedDegree(3).on("up"), WeightedDegree(2).on("down")], (table, planted[1]))
    with pytest.raises(InvalidInputError, match="different columns"):
        kmer_scores(model)
    assert kmer_scores(model, kernel="on up").scores.shape == (4, LENGTH)
    assert kmer_scores(model, kernel="on down").scores.shape == (4, 8)
    with pytest.raises(InvalidInputError, match="'sideways' in its name"):
        kmer_scores(model, kernel="sideways")


def test_errors_say_what_is_allowed(planted):
    model = fit(WeightedDegree(3), planted)
    with pytest.raises(InvalidInputError, match="lengths 1 to 3; got k=4"):
        kmer_scores(model, 4)
    with pytest.raises(InvalidInputError, match="integer >= 1"):
        kmer_scores(model, 0)
    with pytest.raises(InvalidInputError, match="they are shorter"):
        kmer_scores(model, LENGTH + 1, include_shorter=True)
    with pytest.raises(MemoryBudgetError, match=r"4\^17 k-mers at 2 positions need 550 GB"):
        kmer_scores(model, 17, include_shorter=True)
    with pytest.raises(InvalidInputError, match="1 to 3; got 5"):
        top_kmers(model, lengths=5)
    with pytest.raises(InvalidInputError, match="n must be"):
        top_kmers(model, n=0)
    with pytest.raises(UnknownNameError, match="'letter', 'start'"):
        sequence_scores(model, planted[0], per="word")
    with pytest.raises(InvalidInputError, match="length 18"):
        sequence_scores(model, ["ACGT"])
    with pytest.raises(InvalidInputError, match="no positions"):
        letter_scores(fit(Spectrum(2), planted))
    numbers = MKLClassifier(Linear()).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidInputError, match="no string kernel"):
        top_kmers(numbers)


def test_only_sums_of_kernels_are_sums_over_kmers(planted):
    model = fit(WeightedDegree(2), planted, combination="polynomial_mixture", regularizer="l1")
    with pytest.raises(InvalidInputError, match="only in a sum"):
        kmer_scores(model)


# Weights of parts


def test_weights_by_length_and_window(planted):
    model = fit(WeightedDegree(3).by_length().by_position(5), planted)
    parts = length_position_weights(model)
    assert parts.name == "weighted degree(degree=3)"
    assert parts.lengths.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert parts.windows.tolist() == [[0, 5], [5, 10], [10, 15], [15, 18]]
    by_name = dict(zip(model.kernel_names_, model.weights_, strict=True))
    assert parts.weights[1, 2] == by_name["weighted degree(degree=3) length 2 positions 10-14"]
    assert_allclose(parts.over_lengths.sum(), model.weights_.sum())
    assert parts.over_positions.argmax() == 1


def test_windows_beyond_the_last_kmer_weigh_nothing(planted):
    model = fit(WeightedDegree(3).by_length().by_position(1), planted)
    parts = length_position_weights(model)
    assert parts.weights.shape == (3, LENGTH)
    assert parts.weights[2, -2:].tolist() == [0.0, 0.0]
    assert parts.index[2, -2:].tolist() == [-1, -1]


def test_spectrum_parts(planted):
    parts = length_position_weights(fit(Spectrum((2, 4)).by_length(), planted))
    assert parts.name == "spectrum(k=2-4)"
    assert parts.lengths[:, 0].tolist() == [2, 3, 4]
    assert parts.windows is None
    assert parts.weights.shape == (3, 1)


def test_one_family_is_chosen_by_name(table, planted):
    kernels = [
        WeightedDegree(3).by_length().on("up"),
        WeightedDegree(2).by_position(4).on("down"),
        RBF(width=1.0).on("size"),
    ]
    model = fit(kernels, (table, planted[1]))
    with pytest.raises(InvalidInputError, match=r"'weighted degree.*on up', .* on down'"):
        length_position_weights(model)
    up = length_position_weights(model, kernel="on up")
    assert up.name == "weighted degree(degree=3) on up"
    assert_array_equal(up.weights[:, 0], model.weights_[:3])
    with pytest.raises(InvalidInputError, match="was taken apart"):
        length_position_weights(fit(WeightedDegree(3), planted))


@pytest.mark.parametrize("other", [("down", {}), ("up", {"shift": 1}), ("up", {"normalize": True})])
def test_kernels_that_differ_in_one_thing_are_not_one(other, table, planted):
    column, settings = other
    kernels = [
        WeightedDegree(2).by_length().on("up"),
        WeightedDegree(2, **settings).by_length().on(column),
    ]
    with pytest.raises(InvalidInputError, match="several string kernels"):
        length_position_weights(fit(kernels, (table, planted[1])))


def test_weights_of_each_class_and_their_replicates(planted):
    y = np.where(planted[1] == 1, 2, np.arange(60) % 2)
    model = MKLClassifier(WeightedDegree(2).by_length(), multi_class="ovr").fit(planted[0], y)
    parts = length_position_weights(model)
    assert parts.by_class.shape == (3, 2, 1)
    assert_allclose(parts.over_lengths, model.weights_.mean(axis=0))
    with pytest.raises(InvalidInputError, match="stability="):
        parts.interval(1)
    result = stability(model, planted[0], y, n_bootstrap=4, random_state=0)
    low, high = length_position_weights(model, stability=result).interval(1)
    assert_allclose([low, high], [result.low, result.high])
    other = fit(WeightedDegree(3).by_length(), planted)
    with pytest.raises(InvalidInputError, match="other kernels"):
        length_position_weights(other, stability=result)
