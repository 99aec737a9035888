"""Products by tries of k-mers at positions against a plain dictionary, on data of every kind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from naive_strings import PROTEIN, Dictionary, random_texts
from same_numbers import assert_same_numbers
from thinned import thinned

from kernelweave.compiled.threads import use_threads
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.positions import PositionTable, PositionWeights
from kernelweave.kernels.strings.sequences import Aligned, Sequences

TWO = Alphabet("two", "AB", ambiguous="-")
MANY = get_alphabet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def aligned(texts, alphabet="dna"):
    return Aligned.of(Sequences.encode(texts, get_alphabet(alphabet)))


def weights_of(length, degree, *, shift=0, windows=None, by_length=False, rng=None):
    """Weights that differ from window to window; inside one they are the same, as in kernels."""
    window_of = np.zeros(length, np.int64) if windows is None else np.asarray(windows, np.int64)
    steps = np.ones((length, degree))
    if rng is not None and not by_length:
        own = rng.uniform(0.1, 2.0, (window_of.max() + 1, degree))
        steps = np.where(window_of[:, None] >= 0, own[window_of], 0.0)
    return PositionWeights(shift, steps, window_of, by_length)


def check(weights, new, known, v, alphabet="dna", copies=1):
    """Both stores give what the dictionary gives, for the new sequences over and over."""
    letters = get_alphabet(alphabet).letters
    expected = np.tile(Dictionary(weights, letters).add(known, v).look_up(new), copies)
    left, right = aligned(new, alphabet), aligned(known, alphabet)
    left = left[np.tile(np.arange(len(new)), copies)]
    # What rounding may do depends on all that is added up on the way.
    size = np.abs(v).sum() * weights.steps.sum(axis=1).max() + 1e-300
    found = weights.products(left, right, np.asarray(v, np.float64))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * size)
    if not weights.by_length:
        table = PositionTable(weights, right, np.asarray(v, np.float64))
        total = expected.sum(axis=(0, 1))
        np.testing.assert_allclose(table.look_up(left), total, rtol=0, atol=1e-13 * size)
    return expected


def poly(n, length, rng):
    """Hardly anything but A."""
    return random_texts(n, length, rng, "A", "CN", 0.03)


INPUTS = {
    "random": lambda n, length, rng: random_texts(n, length, rng),
    "no ambiguous": lambda n, length, rng: random_texts(n, length, rng, often=0.0),
    "half ambiguous": lambda n, length, rng: random_texts(n, length, rng, often=1.0),
    "all ambiguous": lambda n, length, rng: ["N" * length] * n,
    "all equal": lambda n, length, rng: random_texts(1, length, rng, often=0.0) * n,
    "only A": lambda n, length, rng: ["A" * length] * n,
    "only T": lambda n, length, rng: ["T" * length] * n,
    "low complexity": poly,
    "two letters": lambda n, length, rng: random_texts(n, length, rng, "AT"),
    "few different": lambda n, length, rng: list(rng.choice(random_texts(5, length, rng), n)),
    "equal up to the last": lambda n, length, rng: [
        "G" * (length - 1) + rng.choice(list("ACGTN")) for _ in range(n)
    ],
    "equal but for the first": lambda n, length, rng: [
        rng.choice(list("ACGTN")) + "G" * (length - 1) for _ in range(n)
    ],
}
SHAPES = {
    "one window": {},
    "by length": {"by_length": True},
    "shift": {"shift": 2},
    "shift by length": {"shift": 3, "by_length": True},
    "shift as long as the sequences": {"shift": 50},
    "windows": {"windows": np.repeat([0, 1, 2], [3, 13, 4])},
    "windows with shift": {"shift": 2, "windows": np.repeat([0, 1, 2], [3, 13, 4])},
    "windows by length": {"by_length": True, "windows": np.repeat([2, 0, 1], [9, 1, 10])},
    "holes": {"windows": [-1, -1, 0, 0, -1, 1, 1, 1, *[-1] * 10, 2, -1]},
    "holes with shift": {"shift": 3, "windows": [-1, 0, 0, -1, 0, 0, *[-1] * 4, *[1] * 10]},
    "each position": {"windows": np.arange(20)},
    "backward": {"windows": np.arange(20)[::-1].copy(), "by_length": True},
    "only the last": {"windows": [*[-1] * 19, 0]},
    "only the first": {"windows": [0, *[-1] * 19]},
}
SOME_SHAPES = [
    "one window",
    "shift by length",
    "windows with shift",
    "windows by length",
    "holes",
    "each position",
    "backward",
]


@pytest.mark.parametrize(("kind", "shape"), thinned(INPUTS, SHAPES))
def test_nasty_sequences(kind, shape):
    rng = np.random.default_rng(list(INPUTS).index(kind))
    known, new = INPUTS[kind](30, 20, rng), INPUTS[kind](14, 20, rng)
    new[3] = known[5]
    v = rng.normal(size=30)
    v[::7] = 0.0
    weights = weights_of(20, 8, rng=rng, **SHAPES[shape])
    expected = check(weights, new, known, v)
    assert kind == "all ambiguous" or np.any(expected)


@pytest.mark.parametrize("degree", [1, 2, 9, 10, 31, 32])
@pytest.mark.parametrize("by_length", [False, True])
def test_dna_of_every_degree(degree, by_length):
    rng = np.random.default_rng(degree)
    known = random_texts(30, 40, rng, often=0.01) + poly(30, 40, rng)
    new = [*random_texts(10, 40, rng), *known[20:40]]
    v = rng.normal(size=60)
    check(weights_of(40, degree, by_length=by_length, rng=rng), new, known, v)


@pytest.mark.parametrize(
    ("alphabet", "letters", "degree"),
    [("protein", PROTEIN, 12), ("protein", PROTEIN, 3), (TWO, "AB", 64), (MANY, MANY.letters, 10)],
    ids=["protein-12", "protein-3", "two-64", "many-10"],
)
@pytest.mark.parametrize("options", [{}, {"by_length": True}, {"shift": 2}], ids=str)
def test_other_alphabets(alphabet, letters, degree, options):
    rng = np.random.default_rng(1)
    ambiguous = get_alphabet(alphabet).ambiguous[:1]
    length = 66 if degree == 64 else 18
    known = random_texts(30, length, rng, letters, ambiguous, 0.02)
    # The last letters of the alphabet and of 64 bits, over and over.
    known += random_texts(20, length, rng, letters[-2:], ambiguous, 0.01)
    known += [letters[-1] * length] * 10
    new = known[28:52:2] + random_texts(5, length, rng, letters[-2:], ambiguous, 0.01)
    weights = weights_of(length, degree, rng=rng, **options)
    check(weights, new, known, rng.normal(size=60), alphabet)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("options", [{}, {"by_length": True}, {"shift": 7}], ids=str)
def test_few_positions_and_few_sequences(length, options):
    rng = np.random.default_rng(2)
    texts = random_texts(30, length, rng)
    for known, new in ((1, 1), (1, 30), (30, 1), (2, 3)):
        weights = weights_of(length, 9, rng=rng, **options)
        check(weights, texts[:new], texts[-known:], rng.normal(size=known))


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize(("known", "new"), [(2500, 3), (3, 2500)])
def test_very_many_on_one_side(known, new, by_length):
    rng = np.random.default_rng(3)
    texts, others = random_texts(known, 9, rng), random_texts(new, 9, rng)
    check(weights_of(9, 4, by_length=by_length, rng=rng), others, texts, rng.normal(size=known))


def test_nothing_in_nothing_out():
    rng = np.random.default_rng(4)
    texts = random_texts(8, 10, rng)
    some = aligned(texts)
    none = some[np.empty(0, np.int64)]
    for by_length in (False, True):
        weights = weights_of(10, 3, by_length=by_length)
        lengths = 3 if by_length else 1
        zeros = weights.products(some, some, np.zeros(8))
        assert zeros.shape == (1, lengths, 8)
        # Tags of the tables may leave the smallest numbers there are.
        assert np.abs(zeros).max() < 1e-300
        assert weights.products(none, some, np.ones(8)).shape == (1, lengths, 0)
        assert not weights.products(some, none, np.ones(0)).any()
    assert not PositionTable(weights_of(10, 3), none, np.ones(0)).look_up(some).any()
    assert PositionTable(weights_of(10, 3), some, np.ones(8)).look_up(none).shape == (0,)
    left_out = weights_of(10, 3, windows=np.full(10, -1))
    assert left_out.products(some, some, np.ones(8)).shape == (0, 1, 8)
    assert not PositionTable(left_out, some, np.ones(8)).look_up(some).any()


def test_large_and_small_coefficients_together():
    rng = np.random.default_rng(5)
    texts = random_texts(50, 15, rng)
    check(weights_of(15, 6), texts, texts, 10.0 ** rng.uniform(-12, 12, 50))
    # Nothing of a large coefficient stays with those that have no k-mer in common with it.
    v = np.array([1e8, 1.0])
    found = weights_of(6, 3).products(aligned(["AAAAAA", "CCCCCC"]), aligned(["CCCCCC"]), v[:1])
    assert found[0, 0, 0] == 0.0


def test_lookups_do_not_change_a_table():
    rng = np.random.default_rng(6)
    texts = random_texts(200, 25, rng)
    some = aligned(texts)
    table = PositionTable(weights_of(25, 10, rng=rng), some, rng.normal(size=200))
    first = table.look_up(some)
    assert_same_numbers(table.look_up(some), first)
    np.testing.assert_allclose(table.look_up(some[[5, 0, 5]]), first[[5, 0, 5]], rtol=1e-13)


# Tables and parts of every size


@pytest.mark.parametrize("shape", SOME_SHAPES)
@pytest.mark.parametrize(("n_known", "copies"), [(1, 1), (24, 1), (24, 500)])
def test_tables_are_as_deep_as_there_are_sequences(n_known, copies, shape):
    rng = np.random.default_rng(7)
    known, new = random_texts(n_known, 20, rng, "ACG"), random_texts(16, 20, rng, "ACG")
    new[2] = known[0]
    weights = weights_of(20, 6, rng=rng, **SHAPES[shape])
    check(weights, new, known, rng.normal(size=n_known), copies=copies)


def test_positions_are_cut_at_windows_where_that_is_enough():
    parts = weights_of(200, 3, windows=np.repeat(np.arange(40), 5))._parts(50)
    assert all(bottom % 5 == 0 and top % 5 == 0 for bottom, top in parts)
    cut = weights_of(200, 3)._parts(50)
    for pieces in (parts, cut):
        assert len(pieces) > 5
        assert pieces[0][0] == 0 and pieces[-1][1] == 200
        assert all(a[1] == b[0] for a, b in pairwise(pieces))


@pytest.mark.parametrize("shape", ["one window", "by length", "shift", "windows", "holes"])
def test_the_same_bits_for_any_number_of_threads(shape):
    n = 13_000  # So many sequences are worth a thread.
    rng = np.random.default_rng(8)
    some = aligned(random_texts(n, 20, rng))
    weights = weights_of(20, 8, rng=rng, **SHAPES[shape])
    v = rng.normal(size=n)
    answers = []
    for count in (1, 2, 3):
        with use_threads(count):
            found = [weights.products(some, some, v), weights.rows_of_pairs(some[:30], some)]
            found.append(weights.diagonals(some))
            if not weights.by_length:
                found.append(PositionTable(weights, some, v).look_up(some))
            answers.append(found)
    for other in answers[1:]:
        for one, two in zip(answers[0], other, strict=True):
            assert np.array_equal(one, two)


# Values of pairs


@pytest.mark.parametrize(
    ("kind", "shape"), thinned(["random", "half ambiguous", "two letters", "only T"], SHAPES)
)
def test_pairs(kind, shape):
    rng = np.random.default_rng(9)
    left, right = INPUTS[kind](5, 20, rng), INPUTS[kind](70, 20, rng)
    weights = weights_of(20, 8, rng=rng, **SHAPES[shape])
    expected = np.stack([Dictionary(weights).add([x], [1.0]).look_up(right) for x in left], axis=2)
    a, b = aligned(left), aligned(right)
    np.testing.assert_allclose(weights.rows_of_pairs(a, b), expected, atol=1e-12)
    diagonals = np.stack(
        [Dictionary(weights).add([x], [1.0]).look_up([x])[:, :, 0] for x in right], axis=2
    )
    np.testing.assert_allclose(weights.diagonals(b), diagonals, atol=1e-12)
    if weights.by_length:
        return
    out = np.full((5, 70), 2.0)
    weights.add_pairs(a, b, out)
    np.testing.assert_allclose(out, 2.0 + expected.sum(axis=(0, 1)), atol=1e-12)
    lower = np.zeros((70, 70))
    weights.add_pairs(b, b, lower, lower=True)
    whole = np.zeros((70, 70))
    weights.add_pairs(b, b, whole)
    np.testing.assert_allclose(lower, np.tril(whole), atol=1e-12)


# Room for the nodes


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_the_room_for_nodes_grows(bits):
    """Nine equal words split at every level down to the last."""
    degree = 64 // bits
    letters = {1: "AB", 2: "ACGT", 5: PROTEIN}[bits]
    alphabet = {1: TWO, 2: "dna", 5: "protein"}[bits]
    for copies in (8, 9, 10, 18):
        known = [letters[-1] * degree] * copies
        known += [letters[0] * (degree - 1) + letters[1]] * 9
        weights = weights_of(degree, degree)
        check(weights, known[-10::9], known, np.ones(len(known)), alphabet)
