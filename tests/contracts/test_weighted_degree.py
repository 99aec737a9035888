"""The weighted degree kernel and its parts are what the formula says, in whatever way computed."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from naive_strings import (
    PROTEIN,
    blocks,
    length_weights,
    naive_gram,
    other_strand,
    random_texts,
)
from same_numbers import assert_same_numbers
from sklearn.base import clone

from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear, Pair, Samples, Spectrum, WeightedDegree, evaluate_stack
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.operators import ComputedOperator

ODD = Alphabet("odd", "AB", ambiguous="-")
CASES = {
    "one": {"degree": 1},
    "plain": {"degree": 4},
    "long": {"degree": 32},
    "shift": {"degree": 3, "shift": 2},
    "wide shift": {"degree": 4, "shift": 50},
    "lengths": {"degree": 5, "lengths": (2, 4)},
    "one length": {"degree": 6, "lengths": (3, 3)},
    "window": {"degree": 4, "positions": (5, 12)},
    "end": {"degree": 7, "positions": (15, 19)},
    "beyond": {"degree": 3, "positions": (4, 400)},
    "window with shift": {"degree": 3, "shift": 3, "positions": (5, 12)},
    "length with shift": {"degree": 3, "shift": 1, "lengths": (2, 2)},
    "normalized": {"degree": 3, "normalize": True},
    "both strands": {"degree": 4, "reverse_complement": True},
    "everything": {
        "degree": 4,
        "shift": 2,
        "lengths": (1, 3),
        "positions": (2, 16),
        "normalize": True,
        "reverse_complement": True,
    },
    "rna": {"degree": 3, "alphabet": "rna", "shift": 1, "reverse_complement": True},
    "protein": {"degree": 12, "alphabet": "protein"},
    "protein with shift": {"degree": 2, "alphabet": "protein", "shift": 4},
    "two letters": {"degree": 64, "alphabet": "HP", "shift": 1},
    "letters of ones own": {"degree": 9, "alphabet": ODD},
}
LETTERS = {"rna": ("ACGU", "N"), "protein": (PROTEIN, "X"), "HP": ("HP", ""), ODD: ("AB", "-")}
LENGTH = 19


def texts(parameters, n, rng, length=LENGTH):
    letters, ambiguous = LETTERS.get(parameters.get("alphabet"), ("ACGT", "N"))
    # Few different letters here and there, so that long k-mers are common too.
    plain = random_texts(n - n // 2, length, rng, letters, ambiguous)
    alike = random_texts(n // 2, length, rng, letters[:2], ambiguous, 0.02)
    return [text.lower() if i % 5 == 0 else text for i, text in enumerate(plain + alike)]


def naive(parameters, X, Z):
    rest = {key: value for key, value in parameters.items() if key != "alphabet"}
    letters = LETTERS.get(parameters.get("alphabet"), ("ACGT", "N"))[0]
    return naive_gram(X, Z, letters=letters, **rest)


@pytest.fixture(params=list(CASES))
def case(request):
    parameters = CASES[request.param]
    rng = np.random.default_rng(0)
    X, Z = texts(parameters, 12, rng), texts(parameters, 7, rng)
    return WeightedDegree(**parameters), parameters, X, Z


def test_values(case):
    kernel, parameters, X, Z = case
    expected = naive(parameters, X, Z)
    assert np.count_nonzero(expected) > 0
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12, atol=1e-14)
    K = kernel(X)
    np.testing.assert_allclose(K, naive(parameters, X, X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(K, K.T, rtol=1e-14)
    assert np.linalg.eigvalsh(K)[0] > -1e-12 * np.trace(K)
    np.testing.assert_allclose(kernel.diagonal(Samples(X)), np.diagonal(K), rtol=1e-12)


def test_sums_over_samples_without_pairs(case):
    kernel, parameters, X, Z = case
    v = np.random.default_rng(1).normal(size=12)
    v[3:6] = 0.0
    train = Samples(X)
    bound = kernel.bind(train)
    cross = naive(parameters, X, Z)
    scale = np.abs(cross).max()
    f = bound.weigh(train, v)
    np.testing.assert_allclose(f(Samples(Z)), v @ cross, atol=1e-12 * scale)
    np.testing.assert_allclose(f(Samples(Z).take([4, 0, 4])), (v @ cross)[[4, 0, 4]], atol=1e-12)
    some = bound.weigh(train.take(np.arange(7, 12)), v[7:])
    np.testing.assert_allclose(some(Samples(Z)), v[7:] @ cross[7:], atol=1e-12 * scale)
    factor = bound.features(train)
    K = naive(parameters, X, X)
    np.testing.assert_allclose(factor.product(v), K @ v, atol=1e-12 * np.abs(K).max())
    np.testing.assert_allclose(factor.diagonal(), np.diagonal(K), rtol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, 193])
@pytest.mark.parametrize("degree", [1, 5, 6, 20, 32])
def test_the_block_formula(degree, length):
    """Runs of every size, also across words of 64 positions and up to the very end."""
    rng = np.random.default_rng(length)
    X = random_texts(6, length, rng, often=0.02)
    for share in (0.02, 0.1, 0.3):  # Copies with mistakes have long runs in common.
        letters = np.array(list(X[0]))
        wrong = rng.random(length) < share
        letters[wrong] = rng.choice(list("ACGT"), wrong.sum())
        X.append("".join(letters))
    X.append("A" * length)
    X.append("A" * (length - 1) + "C")
    X.append("C" + "A" * (length - 1))
    expected = np.array([[blocks(x, z, degree) for z in X] for x in X])
    kernel = WeightedDegree(degree)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-12, atol=1e-14)
    samples = Samples(X)
    v = rng.normal(size=len(X))
    found = kernel.bind(samples).weigh(samples, v)(samples)
    np.testing.assert_allclose(found, expected @ v, atol=1e-12 * np.abs(expected).max())
    factor = kernel.bind(samples).features(samples)
    np.testing.assert_allclose(factor.product(v), expected @ v, atol=1e-12 * expected.max())


@pytest.mark.parametrize("length", [63, 64, 65, 129])
def test_shifts_and_windows_across_words(length):
    rng = np.random.default_rng(length)
    X = random_texts(4, length, rng, "AC", often=0.02)
    for parameters in (
        {"degree": 8, "shift": 3},
        {"degree": 3, "shift": 70, "positions": (30, length)},
        {"degree": 8, "positions": (60, 63)},
        {"degree": 4, "lengths": (4, 4), "positions": (length - 5, length)},
    ):
        K = naive(parameters, X, X)
        kernel = WeightedDegree(**parameters)
        np.testing.assert_allclose(kernel(X), K, rtol=1e-12)
        samples = Samples(X)
        v = np.array([1.0, -2.0, 0.5, 3.0])
        found = kernel.bind(samples).weigh(samples, v)(samples)
        np.testing.assert_allclose(found, K @ v, atol=1e-12 * K.max())


def test_more_sequences_than_are_compared_at_a_time():
    """64 at a time, and the last block is not full."""
    rng = np.random.default_rng(3)
    X, Z = random_texts(5, 30, rng), random_texts(150, 30, rng)
    Z[70] = X[1]
    expected = naive_gram(X, Z, 9)
    np.testing.assert_allclose(WeightedDegree(9)(X, Z), expected, rtol=1e-12)
    both = WeightedDegree(9)(X + Z)
    np.testing.assert_allclose(both[:5, 5:], expected, rtol=1e-12)
    np.testing.assert_allclose(both[5:, :5], expected.T, rtol=1e-12)


# What is equal, and what is nothing


def test_degree_longer_than_the_sequences():
    X = ["ACG", "ACT", "TCG"]
    K = WeightedDegree(20)(X)
    np.testing.assert_allclose(K, naive_gram(X, X, 20), rtol=1e-13)
    # Lengths beyond 3 have no k-mer; their share of the weights stays unused.
    assert K[0, 0] == pytest.approx(length_weights(20)[:3] @ [3, 2, 1])
    assert WeightedDegree(5)(["A"], ["A", "C", "N"]).tolist() == [[1 / 3, 0.0, 0.0]]


def test_identical_and_opposite_sequences():
    X = ["ACGTTGCA"] * 3 + ["CATGGTAC"]
    K = WeightedDegree(3)(X)
    assert np.ptp(K[:3, :3]) == 0.0
    assert K[0, 0] == pytest.approx(blocks(X[0], X[0], 3))
    assert (WeightedDegree(3)(["AAAA", "CCCC", "GGGG"]) > 0).sum() == 3


def test_letters_that_match_nothing():
    X = ["ACGTN", "NNNNN", "ACNTA", "acRyA", "AC--A"]
    K = WeightedDegree(2)(X)
    np.testing.assert_allclose(K, naive_gram(X, X, 2), rtol=1e-13)
    assert not K[1].any() and not K[:, 1].any()
    # An N does not even match itself.
    assert K[2, 2] == pytest.approx(blocks("ACNTA", "ACNTA", 2))
    N = WeightedDegree(2, normalize=True)(X)
    np.testing.assert_allclose(np.diagonal(N), [1.0, 0.0, 1.0, 1.0, 1.0], rtol=1e-14)
    assert np.all(np.isfinite(N)) and not N[1].any()
    nothing = WeightedDegree(2, normalize=True, shift=1)(["NNN", "NNN"])
    np.testing.assert_array_equal(nothing, np.zeros((2, 2)))


def test_lower_case_and_bytes():
    kernel = WeightedDegree(3, shift=1)
    X, Z = ["ACGTN", "TTGCA"], ["acgtn", "TtGcA"]
    np.testing.assert_array_equal(kernel(X), kernel(Z))
    np.testing.assert_array_equal(kernel(X), kernel([x.encode() for x in X]))
    np.testing.assert_array_equal(kernel(X), kernel(np.array(X)))


def test_normalized_values():
    X = random_texts(9, 14, np.random.default_rng(4))
    for options in ({}, {"shift": 2}, {"reverse_complement": True}, {"lengths": (2, 3)}):
        K = WeightedDegree(3, **options)(X)
        root = np.sqrt(np.diagonal(K))
        N = WeightedDegree(3, normalize=True, **options)(X)
        np.testing.assert_allclose(N, K / np.outer(root, root), rtol=1e-12)


@pytest.mark.parametrize("shift", [0, 2])
def test_both_strands(shift):
    X = random_texts(8, 13, np.random.default_rng(5))
    turned = [other_strand(x) for x in X]
    kernel = WeightedDegree(4, shift=shift, reverse_complement=True)
    K = kernel(X)
    np.testing.assert_allclose(kernel(X, turned), K, rtol=1e-12)
    np.testing.assert_allclose(kernel(turned), K, rtol=1e-12)
    one = WeightedDegree(4, shift=shift)
    np.testing.assert_allclose(K, one(X) + one(X, turned), rtol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-12 * np.trace(K)
    # A window is one of positions of the strand as it is read.
    half = WeightedDegree(4, shift=shift, reverse_complement=True, positions=(0, 5))
    np.testing.assert_allclose(half(X), half(turned), rtol=1e-12)


def test_shifted_kmers_count_half_and_less():
    kernel = WeightedDegree(1, shift=3)
    values = kernel(["ACCCC"], ["TATTT", "TTATT", "TTTAT", "TTTTA", "ATTTT"])[0]
    np.testing.assert_allclose(values, [1 / 4, 1 / 6, 1 / 8, 0.0, 1.0])
    # Both directions: the A of one is left of that of the other and right of it.
    assert kernel(["ATT"], ["TAT"])[0, 0] == pytest.approx(3 / 4 + 1 + 1 / 6)


@pytest.mark.parametrize("parameters", [{"degree": 3, "shift": 3}, {"degree": 5, "shift": 30}])
def test_shifted_kernels_are_positive_semi_definite(parameters):
    rng = np.random.default_rng(6)
    X = ["A" * 12, "AC" * 6, "CA" * 6, "C" * 12, *random_texts(30, 12, rng, "AC", often=0)]
    values = np.linalg.eigvalsh(WeightedDegree(**parameters)(X))
    assert values[0] > -1e-12 * values[-1]


# Parts


@pytest.mark.parametrize("options", [{}, {"shift": 2}, {"reverse_complement": True}])
def test_lengths_add_up(options):
    X = random_texts(9, 11, np.random.default_rng(7))
    kernel = WeightedDegree(5, **options)
    parts = kernel.by_length().expand(Samples(X))
    assert [part.lengths for part in parts] == [(k, k) for k in range(1, 6)]
    total = sum(w * part(X) for w, part in zip(length_weights(5), parts, strict=True))
    np.testing.assert_allclose(total, kernel(X), rtol=1e-12)


@pytest.mark.parametrize("window", [1, 3, 4, 11, 100])
@pytest.mark.parametrize("options", [{}, {"lengths": (2, 4)}, {"reverse_complement": True}])
def test_windows_add_up(window, options):
    X = random_texts(9, 11, np.random.default_rng(8))
    kernel = WeightedDegree(4, **options)
    parts = kernel.by_position(window).expand(Samples(X))
    starts = [part.positions[0] for part in parts]
    last = 11 - options.get("lengths", (1, 4))[0]
    assert starts == list(range(0, last + 1, window))
    assert [part.positions[1] for part in parts] == [*starts[1:], last + 1]
    np.testing.assert_allclose(sum(part(X) for part in parts), kernel(X), rtol=1e-12)


def test_shifted_windows_keep_to_themselves():
    """With a shift the windows leave out the pairs of positions in different ones."""
    X = random_texts(9, 12, np.random.default_rng(9), "AC", often=0)
    kernel = WeightedDegree(3, shift=1)
    parts = kernel.by_position(4).expand(Samples(X))
    for part in parts:
        expected = naive_gram(X, X, 3, shift=1, positions=part.positions)
        np.testing.assert_allclose(part(X), expected, rtol=1e-12)
    assert np.all(sum(part(X) for part in parts) <= kernel(X) + 1e-12)
    assert np.any(sum(part(X) for part in parts) < kernel(X) - 0.1)


def test_both_add_up_in_either_order():
    X = random_texts(9, 10, np.random.default_rng(10))
    kernel = WeightedDegree(4)
    family = kernel.by_length().by_position(3)
    assert family == kernel.by_position(3).by_length()
    assert family != kernel.by_position(4).by_length()
    assert hash(family) == hash(kernel.by_position(3).by_length())
    parts = family.expand(Samples(X))
    assert len({(part.lengths, part.positions) for part in parts}) == len(parts)
    weights = length_weights(4)
    total = sum(weights[part.lengths[0] - 1] * part(X) for part in parts)
    np.testing.assert_allclose(total, kernel(X), rtol=1e-12)
    # Position 9 is the last: only single letters start there.
    assert [part.lengths for part in parts if part.positions == (9, 10)] == [(1, 1)]


def test_parts_of_parts():
    X = random_texts(8, 12, np.random.default_rng(11))
    samples = Samples(X)
    part = WeightedDegree(5, shift=1, lengths=(2, 4), positions=(3, 9), normalize=True)
    lengths = part.by_length().expand(samples)
    assert [(own.lengths, own.positions) for own in lengths] == [
        ((k, k), (3, 9)) for k in (2, 3, 4)
    ]
    windows = part.by_position(4).expand(samples)
    assert [(own.lengths, own.positions) for own in windows] == [((2, 4), (3, 7)), ((2, 4), (7, 9))]
    assert all((own.shift, own.normalize, own.degree) == (1, True, 5) for own in lengths + windows)
    # The one window of a family is the kernel itself.
    assert WeightedDegree(3).by_position(12).expand(samples)[0](X).tolist() == (
        WeightedDegree(3)(X).tolist()
    )


def test_parts_without_a_single_kmer_are_left_out():
    samples = Samples(["ACNNA", "TCNNT"])
    parts = WeightedDegree(3).by_length().by_position(1).expand(samples)
    assert [(part.positions[0], part.lengths[0]) for part in parts] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (4, 1),
    ]
    assert len(WeightedDegree(9).by_length().expand(samples)) == 2
    with pytest.raises(InvalidInputError, match=r"no parts on these samples.*of length 3"):
        WeightedDegree(3, lengths=(3, 3)).by_length().expand(samples)
    ComputedOperator.build(
        WeightedDegree(3).by_length().by_position(1), samples
    ).diagonal()  # None is zero.


def test_a_window_of_one_strand_has_kmers_of_the_other():
    samples = Samples(["NNNAC", "NNNCC"])
    one = WeightedDegree(2).by_position(3).expand(samples)
    assert [part.positions for part in one] == [(3, 5)]
    two = WeightedDegree(2, reverse_complement=True).by_position(3).expand(samples)
    assert [part.positions for part in two] == [(0, 3), (3, 5)]
    assert all(part.diagonal(samples).sum() > 0 for part in two)


# Merged kernels


@pytest.mark.parametrize("options", [{}, {"shift": 2}, {"reverse_complement": True}])
@pytest.mark.parametrize("how", ["lengths", "windows", "both", "overlap"])
def test_merged_kernels(options, how):
    rng = np.random.default_rng(12)
    X, Z = random_texts(12, 14, rng), random_texts(6, 14, rng)
    train = Samples(X)
    kernel = WeightedDegree(4, **options)
    kernels = {
        "lengths": lambda: kernel.by_length().expand(train),
        "windows": lambda: kernel.by_position(5).expand(train),
        "both": lambda: kernel.by_length().by_position(5).expand(train),
        "overlap": lambda: [
            kernel,
            kernel.part((2, 3), (0, 8)),
            kernel.part((1, 4), (5, 11)),
            kernel.part((1, 1), None),
        ],
    }[how]()
    groups = {}
    for part in kernels:
        groups.setdefault(part.merge_key, []).append(part.bind(train))
    if not options.get("shift"):
        assert len(groups) == 1
    v = rng.normal(size=12)
    for parts in groups.values():
        factors = rng.uniform(0.5, 2.0, len(parts))
        expected = np.tensordot(factors, evaluate_stack(parts, Samples(Z), train), axes=1)
        found = parts[0].weigh(train, v, list(zip(parts, factors, strict=True)))(Samples(Z))
        np.testing.assert_allclose(found, expected @ v, atol=1e-12 * np.abs(expected).max())


def test_what_cannot_be_merged():
    key = WeightedDegree(3).merge_key
    assert WeightedDegree(3, lengths=(1, 2), positions=(2, 4)).merge_key == key
    for other in (
        WeightedDegree(4),
        WeightedDegree(3, shift=1),
        WeightedDegree(3, alphabet="rna"),
        WeightedDegree(3, reverse_complement=True),
        Spectrum(3),
    ):
        assert other.merge_key != key
    assert WeightedDegree(3, normalize=True).merge_key is None
    shifted = WeightedDegree(3, shift=1, positions=(2, 4)).merge_key
    assert shifted != WeightedDegree(3, shift=1, positions=(2, 5)).merge_key
    assert hash(WeightedDegree(3, shift=1, positions=[2, 4]).merge_key) == hash(shifted)


# Errors


class TestErrors:
    def test_unequal_lengths_name_the_sequence(self):
        with pytest.raises(InvalidInputError, match=r"sequence 2 has length 4, most have 5\. Cut"):
            WeightedDegree(3)(["ACGTA", "ACGTA", "ACGT", "TTTTT"])
        with pytest.raises(InvalidInputError, match=r"sequence 0 has length 1.*and 1 more differ"):
            WeightedDegree(3)(["A", "ACGTA", "AC", "TTTTT"])
        with pytest.raises(InvalidInputError, match="Spectrum, which takes any"):
            WeightedDegree(3).by_position().expand(Samples(["ACGTA", "ACGT"]))

    def test_new_sequences_of_another_length(self):
        train = Samples(["ACGTA", "ACCTA"])
        bound = WeightedDegree(3).bind(train)
        message = "was bound to sequences of length 5; got sequences of length 6"
        with pytest.raises(InvalidInputError, match=message):
            bound.evaluate(Pair(Samples(["ACGTAA"]), train))
        with pytest.raises(InvalidInputError, match=message):
            bound.weigh(train, np.ones(2))(Samples(["ACGTAA"]))
        with pytest.raises(InvalidInputError, match=message):
            bound.diagonal(Samples(["ACGTAA"]))
        with pytest.raises(InvalidInputError, match="length 5; got sequences of length 3"):
            WeightedDegree(3)(["ACGTA"], ["ACG"])
        free = WeightedDegree(3)
        with pytest.raises(InvalidInputError, match="must have the same length; got 5 and 3"):
            free.evaluate(Pair(train, Samples(["ACG"])))

    @pytest.mark.parametrize("degree", [0, -1, 33, 2.0, True, "3", None, (1, 3), np.nan])
    def test_impossible_degrees(self, degree):
        with pytest.raises(InvalidInputError, match=r"degree must be an integer from 1 to 32.*got"):
            WeightedDegree(degree)

    def test_the_longest_kmers_depend_on_the_letters(self):
        for alphabet, most in (("protein", 12), ("HP", 64), ("ABCDE", 21), ("dna", 32)):
            WeightedDegree(most, alphabet=alphabet)
            with pytest.raises(InvalidInputError, match=f"from 1 to {most} for alphabet="):
                WeightedDegree(most + 1, alphabet=alphabet)

    @pytest.mark.parametrize("shift", [-1, 1.5, True, "1", None])
    def test_impossible_shifts(self, shift):
        with pytest.raises(InvalidInputError, match=r"shift must be an integer >= 0; got"):
            WeightedDegree(3, shift=shift)

    @pytest.mark.parametrize("lengths", [(0, 2), (2, 1), (1, 4), 2, (1, 2, 3), (1.0, 2.0), "12"])
    def test_impossible_lengths(self, lengths):
        with pytest.raises(InvalidInputError, match=r"lengths must be two lengths.*from 1 to 3"):
            WeightedDegree(3, lengths=lengths)

    @pytest.mark.parametrize("positions", [(3, 3), (-1, 2), 5, (1, 2, 3), (0.0, 2.0), (4, 2)])
    def test_impossible_positions(self, positions):
        with pytest.raises(InvalidInputError, match="positions must be two positions"):
            WeightedDegree(3, positions=positions)

    @pytest.mark.parametrize("name", ["normalize", "reverse_complement"])
    @pytest.mark.parametrize("value", ["diagonal", 1, None])
    def test_switches_are_true_or_false(self, name, value):
        with pytest.raises(InvalidInputError, match=f"{name} .*must be True or False; got"):
            WeightedDegree(3, **{name: value})

    def test_other_impossible_parameters(self):
        with pytest.raises(InvalidInputError, match="reverse_complement=True is for"):
            WeightedDegree(3, alphabet="protein", reverse_complement=True)
        with pytest.raises(InvalidInputError, match="alphabet"):
            WeightedDegree(3, alphabet="A")
        with pytest.raises(InvalidInputError, match="window must be an integer >= 1; got 0"):
            WeightedDegree(3).by_position(0)

    def test_positions_after_the_end(self):
        kernel = WeightedDegree(3, positions=(9, 12))
        with pytest.raises(
            InvalidInputError, match=r"positions 9-11' begins after the end.*have 9"
        ):
            kernel.bind(Samples(["ACGTACGTA"]))
        assert kernel.bind(Samples(["ACGTACGTAC"])).diagonal(Samples(["ACGTACGTAC"])) == [0.5]

    def test_letters_and_columns(self):
        with pytest.raises(
            InvalidInputError, match="sequence 1 holds the letter 'Z' at position 2"
        ):
            WeightedDegree(3)(["ACGT", "ACZT"])
        with pytest.raises(InvalidInputError, match="one column of sequences; X has 2"):
            WeightedDegree(3)([["ACGT", "ACGT"], ["A", "C"]])


# Value semantics


def test_equality_and_hash():
    base = WeightedDegree(3)
    assert base == WeightedDegree(3) and hash(base) == hash(WeightedDegree(3))
    assert base == WeightedDegree(3, alphabet="dna", shift=0)
    others = [
        WeightedDegree(4),
        WeightedDegree(3, shift=1),
        WeightedDegree(3, alphabet="rna"),
        WeightedDegree(3, normalize=True),
        WeightedDegree(3, reverse_complement=True),
        WeightedDegree(3, lengths=(1, 3)),
        WeightedDegree(3, positions=(0, 4)),
    ]
    assert all(base != other for other in others)
    assert len({base, *others, WeightedDegree(4)}) == 8
    assert WeightedDegree(3, lengths=[1, 2]) == WeightedDegree(3, lengths=(1, 2))


def test_repr_and_names():
    scope = {"WeightedDegree": WeightedDegree}
    for parameters in CASES.values():
        kernel = WeightedDegree(**parameters)
        if isinstance(kernel.alphabet, str):
            assert eval(repr(kernel), scope) == kernel
    assert WeightedDegree(20).name == "weighted degree(degree=20)"
    assert WeightedDegree(4, shift=2, lengths=(2, 2), positions=(3, 8)).name == (
        "weighted degree(degree=4, shift=2) length 2 positions 3-7"
    )
    assert WeightedDegree(4, alphabet="HP", normalize=True, lengths=(1, 2)).name == (
        "weighted degree(degree=4, 'HP', normalized) lengths 1-2"
    )
    assert WeightedDegree(2, reverse_complement=True, positions=(7, 8)).name == (
        "weighted degree(degree=2, both strands) position 7"
    )


def test_copies(case):
    kernel, _, X, Z = case
    train = Samples(X)
    bound = kernel.bind(train)
    assert clone(kernel) is kernel
    for twin in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert twin == bound == kernel
        assert twin._length == LENGTH
        pair = Pair(Samples(Z), train)
        assert_same_numbers(twin.evaluate(pair), bound.evaluate(pair))
    family = kernel.by_length()
    assert clone(family) is family
    assert pickle.loads(pickle.dumps(family)) == family


def test_an_alphabet_of_ones_own_is_the_named_one():
    X = ["ACGT", "AACC"]
    np.testing.assert_array_equal(
        WeightedDegree(2, alphabet=get_alphabet("dna"))(X), WeightedDegree(2)(X)
    )
    np.testing.assert_array_equal(WeightedDegree(2, alphabet="DNA")(X), WeightedDegree(2)(X))
    np.testing.assert_array_equal(WeightedDegree(2, alphabet="TGCA")(X), WeightedDegree(2)(X))


# In a table, and on threads


def test_a_column_beside_numbers():
    rng = np.random.default_rng(13)
    X = random_texts(10, 12, rng)
    frame = pd.DataFrame({"x": rng.normal(size=10), "sequence": X, "z": rng.normal(size=10)})
    kernels = ComputedOperator.build(
        [
            RBF(width=1.0).on(["x", "z"]),
            WeightedDegree(3).by_length().on("sequence"),
            Linear().on("x"),
            WeightedDegree(2, shift=1).on("sequence"),
        ],
        frame,
        normalize=None,
    )
    assert kernels.names[1] == "weighted degree(degree=3) length 1 on sequence"
    stack = kernels.block(np.arange(10))
    np.testing.assert_allclose(stack[2], naive_gram(X, X, 3, lengths=(2, 2)), rtol=1e-12)
    np.testing.assert_allclose(stack[5], naive_gram(X, X, 2, shift=1), rtol=1e-12)
    new = random_texts(4, 12, rng)
    other = pd.DataFrame({"z": np.zeros(4), "sequence": new, "x": np.ones(4)})
    cross = kernels.against(other).block()
    np.testing.assert_allclose(cross[3], naive_gram(new, X, 3, lengths=(3, 3)), rtol=1e-12)
    assert kernels.thin_factor(0) is None
    v = rng.normal(size=10)
    np.testing.assert_allclose(kernels.thin_factor(5).product(v), stack[5] @ v, atol=1e-12)
    with pytest.raises(InvalidInputError, match="one column of sequences; X has 3"):
        WeightedDegree(3)(frame)


@pytest.mark.parametrize("options", [{}, {"shift": 1}, {"reverse_complement": True}])
def test_threads_do_not_change_a_bit(options):
    X = random_texts(1500, 200, np.random.default_rng(14))
    answers = []
    for count in (1, 2, 3):
        with use_threads(count):
            kernel, samples = WeightedDegree(6, normalize=True, **options), Samples(X)
            v = np.linspace(-1, 1, 1500)
            values = kernel(samples), kernel.diagonal(samples), kernel.weigh(samples, v)(samples)
            answers.append(values)
    for other in answers[1:]:
        for one, two in zip(answers[0], other, strict=True):
            assert np.array_equal(one, two)
