"""The spectrum kernel is the inner product of k-mer counts, in whatever way it is computed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kernelweave.bank import DenseBank, LazyBank, SparseBank
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import Linear, Pair, Samples, Spectrum, WeightedDegree, evaluate_stack
from kernelweave.operators import ComputedOperator

PAIRS = str.maketrans("ACGTU", "TGCAA")


def naive_counts(text, k, letters="ACGT", two_strands=False, positions=None):
    text = text.upper()
    start, stop = positions or (0, len(text))
    out = Counter()
    for at in range(start, min(stop, len(text) - k + 1)):
        word = text[at : at + k]
        if set(word) <= set(letters):
            out[min(word, word.translate(PAIRS)[::-1]) if two_strands else word] += 1
    return out


def naive(X, Z, lengths, factors=None, normalize=False, **options):
    """The Gram matrix, in the plainest way."""

    def value(x, z):
        total = 0.0
        for j, k in enumerate(range(lengths[0], lengths[1] + 1)):
            a, b = naive_counts(x, k, **options), naive_counts(z, k, **options)
            factor = 1.0 if factors is None else factors[j]
            total += factor * sum(count * b[word] for word, count in a.items())
        return total

    K = np.array([[value(x, z) for z in Z] for x in X])
    if normalize:
        left, right = (np.sqrt([value(x, x) for x in some]) for some in (X, Z))
        with np.errstate(invalid="ignore"):
            K = np.nan_to_num(K / np.outer(left, right))
    return K


def texts(n, rng, letters="ACGT", low=1, high=40, ambiguous="N"):
    every = list(letters + ambiguous)
    odds = np.array([1.0] * len(letters) + [0.2] * len(ambiguous))
    out = []
    for _ in range(n):
        word = "".join(rng.choice(every, rng.integers(low, high + 1), p=odds / odds.sum()))
        out.append(word.lower() if rng.random() < 0.2 else word)
    return out


PROTEIN = "ACDEFGHIKLMNPQRSTVWY"
CASES = {
    "letters": (Spectrum(1), {}),
    "three": (Spectrum(3), {}),
    "long": (Spectrum(11), {}),
    "mixed": (Spectrum((1, 6)), {}),
    "normalized": (Spectrum((2, 3), normalize=True), {"normalize": True}),
    "two strands": (Spectrum((1, 5), reverse_complement=True), {"two_strands": True}),
    "positions": (Spectrum((2, 4), positions=(3, 8)), {"positions": (3, 8)}),
    "all": (
        Spectrum((1, 3), normalize=True, reverse_complement=True, positions=(5, 20)),
        {"normalize": True, "two_strands": True, "positions": (5, 20)},
    ),
    "rna": (Spectrum(2, alphabet="rna"), {"letters": "ACGU"}),
    "protein": (Spectrum((1, 3), alphabet="protein"), {"letters": PROTEIN}),
    "two letters": (Spectrum((2, 7), alphabet="HP"), {"letters": "HP"}),
}


@pytest.fixture(params=list(CASES))
def case(request):
    kernel, options = CASES[request.param]
    rng = np.random.default_rng(0)
    letters = options.get("letters", "ACGT")
    ambiguous = "" if letters == "HP" else "X" if letters == PROTEIN else "N"
    X, Z = (texts(n, rng, letters, ambiguous=ambiguous) for n in (25, 18))
    return kernel, options, X, Z


def test_values(case):
    kernel, options, X, Z = case
    np.testing.assert_allclose(kernel(X), naive(X, X, kernel.lengths, **options), rtol=1e-13)
    np.testing.assert_allclose(kernel(X, Z), naive(X, Z, kernel.lengths, **options), rtol=1e-13)
    assert np.count_nonzero(kernel(X, Z)) > 0 or kernel.lengths == (11, 11)


def test_features_have_the_kernel_as_inner_product(case):
    kernel, _, X, Z = case
    left, right = kernel.features(Samples(X)), kernel.features(Samples(Z))
    assert left.has_canonical_format and left.shape[1] == right.shape[1]
    # A column means the same for any samples.
    np.testing.assert_allclose((left @ right.T).toarray(), kernel(X, Z), atol=1e-12)
    np.testing.assert_allclose((left @ left.T).toarray(), kernel(X), atol=1e-12)


def test_weights_of_kmers_give_the_same_sums(case):
    kernel, _, X, Z = case
    v = np.random.default_rng(1).normal(size=len(X))
    v[3:9] = 0.0
    f = kernel.weigh(Samples(X), v)
    expected = v @ kernel(X, Z)
    np.testing.assert_allclose(f(Samples(Z)), expected, atol=1e-12 * np.abs(expected).max())
    some = Samples(X).take(np.arange(10, 25))
    part = kernel.weigh(some, v[10:])(Samples(Z).take([4, 0]))
    np.testing.assert_allclose(part, (v[10:] @ kernel(X, Z)[10:])[[4, 0]], atol=1e-11)


def test_rows_against_some_of_the_training_samples(case):
    """Whatever is kept of the whole set, a part of it sees only itself."""
    kernel, _, X, Z = case
    samples, new = Samples(X), Samples(Z)
    K, cross = kernel(X), kernel(Z, X)
    for columns in ([2, 20, 2], np.arange(20)):
        part = samples.take(columns)
        for dtype, rtol in ((np.float64, 1e-13), (np.float32, 1e-6)):
            got = kernel.evaluate(Pair(new.take([3, 1]), part, dtype))
            assert got.dtype == dtype
            np.testing.assert_allclose(got, cross[[3, 1]][:, columns], rtol=rtol)
            got = kernel.evaluate(Pair(samples.take([7, 7, 0]), part, dtype))
            np.testing.assert_allclose(got, K[[7, 7, 0]][:, columns], rtol=rtol)


def test_normalized_values_and_samples_without_kmers():
    X = ["ACGTAC", "NNNN", "AC", "acgtac"]
    K = Spectrum(3, normalize=True)(X)
    np.testing.assert_allclose(K[0], [1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(K.diagonal() > 0, [True, False, False, True])
    raw = Spectrum(3)(["ACGTAC", "TACG"])
    both = Spectrum(3, normalize=True)(["ACGTAC", "TACG"])
    assert both[0, 1] == pytest.approx(raw[0, 1] / np.sqrt(raw[0, 0] * raw[1, 1]))
    f = Spectrum(3, normalize=True).weigh(Samples(X), np.array([1.0, 2.0, 3.0, 0.0]))
    np.testing.assert_allclose(f(Samples(X)), [1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(Spectrum(8)(["ACG", "ACGTN"]), np.zeros((2, 2)))


def test_lower_case_and_strands():
    assert Spectrum(2)(["acgt"], ["ACGT"])[0, 0] == 3.0
    one, two = Spectrum(3), Spectrum(3, reverse_complement=True)
    assert one(["AAAA"], ["TTTT"])[0, 0] == 0.0
    assert two(["AAAA"], ["TTTT"])[0, 0] == 4.0
    X = texts(10, np.random.default_rng(2))
    back = [x.upper().translate(PAIRS)[::-1] for x in X]
    np.testing.assert_array_equal(two(X), two(back))


def test_large_counts_are_exact():
    """Counts whose products do not fit into single precision."""
    X = ["A" * 5001, "A" * 4999 + "C", "AC" * 20]
    np.testing.assert_array_equal(Spectrum(1)(X), naive(X, X, (1, 1)))
    np.testing.assert_array_equal(Spectrum(1)(X[2:], X), naive(X[2:], X, (1, 1)))


def test_frequent_and_rare_kmers_together():
    """Some columns are multiplied as a matrix, others by coincidences."""
    rng = np.random.default_rng(3)
    X = texts(150, rng, low=60, high=80)
    for kernel in (Spectrum((2, 5)), Spectrum((2, 5), normalize=True)):
        F = kernel.features(Samples(X))
        K = kernel(X)
        np.testing.assert_allclose(K, (F @ F.T).toarray(), rtol=1e-13)
        with use_threads(1):
            np.testing.assert_array_equal(kernel(X), K)


def test_threads_do_not_change_a_bit():
    rng = np.random.default_rng(4)
    X = texts(700, rng, low=50, high=90)
    v = rng.normal(size=700)
    out = []
    for jobs in (1, 2, 3):
        with use_threads(jobs):
            samples = Samples(X)
            kernel = Spectrum((3, 6), normalize=True)
            pair = Pair(samples, samples)
            out.append((kernel.evaluate(pair), kernel.weigh(samples, v)(samples)))
    for K, f in out[1:]:
        np.testing.assert_array_equal(K, out[0][0])
        np.testing.assert_array_equal(f, out[0][1])


# Parts


def test_the_parts_of_all_lengths_add_up():
    X = texts(20, np.random.default_rng(5))
    for options in ({}, {"reverse_complement": True}, {"positions": (2, 11)}):
        kernel = Spectrum((2, 5), **options)
        parts = kernel.by_length().expand(Samples(X))
        assert [part.lengths for part in parts] == [(2, 2), (3, 3), (4, 4), (5, 5)]
        assert all(part.positions == options.get("positions") for part in parts)
        total = sum(part(X) for part in parts)
        np.testing.assert_array_equal(total, kernel(X))


def test_the_features_of_all_windows_add_up():
    """The kernels do not: k-mers in different windows match in the whole alone."""
    X = texts(20, np.random.default_rng(6), low=5)
    samples = Samples(X)
    for window in (1, 7, 100):
        parts = Spectrum((1, 3)).by_position(window).expand(samples)
        longest = max(map(len, X))
        assert len(parts) == -(-longest // window)
        assert parts[0].positions == (0, min(window, longest))
        assert parts[-1].positions[1] == longest
        total = sum(part.features(samples) for part in parts)
        assert abs(total - Spectrum((1, 3)).features(samples)).max() == 0
        for part in parts[:: max(1, len(parts) // 4)]:
            expected = naive(X, X, (1, 3), positions=part.positions)
            np.testing.assert_array_equal(part(X), expected)


def test_windows_and_lengths():
    X = ["ACGTACG", "TTTT"]
    family = Spectrum((2, 6), reverse_complement=True).by_position(3).by_length()
    assert family == Spectrum((2, 6), reverse_complement=True).by_length().by_position(3)
    parts = family.expand(Samples(X))
    # Seven letters: 2-mers start at 0-5, 6-mers at 0-1.
    assert [(part.positions, part.lengths[0]) for part in parts] == [
        *(((0, 3), k) for k in (2, 3, 4, 5, 6)),
        *(((3, 6), k) for k in (2, 3, 4)),
    ]
    assert parts[0].name == "spectrum(k=2, both strands) positions 0-2"
    assert all(part.diagonal(Samples(X)).sum() > 0 for part in parts)
    one = Spectrum(3).by_position().expand(Samples(X))
    assert [part.name for part in one][-1] == "spectrum(k=3) position 4"


def test_windows_of_a_kernel_that_has_positions():
    parts = Spectrum(2, positions=(2, 7)).by_position(2).expand(Samples(["ACGTACGTA"]))
    assert [part.positions for part in parts] == [(2, 4), (4, 6), (6, 7)]
    parts = Spectrum(2, positions=(2, 100)).by_position(4).expand(Samples(["ACGTACGTA"]))
    assert [part.positions for part in parts] == [(2, 6), (6, 8)]


def test_lengths_longer_than_all_sequences_are_left_out():
    parts = Spectrum((3, 9)).by_length().expand(Samples(["ACGTA", "ACG"]))
    assert [part.lengths for part in parts] == [(3, 3), (4, 4), (5, 5)]
    with pytest.raises(InvalidInputError, match="no sequence holds a k-mer of length 6"):
        Spectrum((6, 9)).by_length().expand(Samples(["ACGTA", "ACG"]))


def test_windows_in_which_all_samples_are_ambiguous_are_left_out():
    X = ["NNACGNNNNNTTAC", "NNNCGTNNNNNTAC"]
    parts = Spectrum((2, 3)).by_position(2).expand(Samples(X))
    assert [part.positions for part in parts] == [(2, 4), (4, 6), (10, 12), (12, 13)]
    parts = Spectrum((2, 3)).by_position(1).by_length().expand(Samples(X))
    found = [(part.positions[0], part.lengths[0]) for part in parts]
    assert found == [
        (2, 2),
        (2, 3),
        (3, 2),
        (3, 3),
        (4, 2),
        (10, 2),
        (10, 3),
        (11, 2),
        (11, 3),
        (12, 2),
    ]
    assert all(part.diagonal(Samples(X)).sum() > 0 for part in parts)
    two = Spectrum(3, reverse_complement=True).by_position(2).expand(Samples(["NNNNACGTA"]))
    assert [part.positions for part in two] == [(4, 6), (6, 7)]
    # Here the other strand is read from its own start, where it has letters.
    two = WeightedDegree(3, reverse_complement=True).by_position(3).expand(Samples(["NNNNACGTA"]))
    assert [part.positions for part in two] == [(0, 3), (3, 6), (6, 9)]
    with pytest.raises(InvalidInputError, match="no sequence holds a k-mer of length 2"):
        Spectrum(2, positions=(5, 9)).by_position(4).expand(Samples(X))


def test_families_on_columns_and_beside_other_kernels():
    import pandas as pd

    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "dna": ["ACGT", "ACTTA", "GGACG"]})
    kernels = ComputedOperator.build(
        [Linear().on("x"), Spectrum((1, 2)).by_length().on("dna")], frame, normalize=None
    )
    assert kernels.names == ["linear on x", "spectrum(k=1) on dna", "spectrum(k=2) on dna"]
    texts_ = frame["dna"].tolist()
    np.testing.assert_array_equal(kernels.block([0, 1, 2])[2], Spectrum(2)(texts_))
    new = pd.DataFrame({"dna": ["TTTT"], "x": [0.0]})
    np.testing.assert_array_equal(kernels.against(new).block()[1], Spectrum(1)(["TTTT"], texts_))


def test_a_window_must_be_a_number_of_positions():
    for window in (0, -1, 2.0, True, "3"):
        with pytest.raises(InvalidInputError, match="window must be an integer >= 1"):
            Spectrum(3).by_position(window)


def test_families_are_compared_by_their_parameters():
    assert Spectrum(3).by_length() == Spectrum(3).by_length()
    assert Spectrum(3).by_length() != Spectrum(3).by_position()
    assert repr(Spectrum(2).by_position(5).by_length()) == (
        "Spectrum(k=2, alphabet='dna', normalize=False, reverse_complement=False)"
        ".by_length().by_position(5)"
    )


# One kernel for several


@pytest.mark.parametrize("options", [{}, {"reverse_complement": True}, {"positions": (4, 12)}])
def test_merged_kernels(options):
    rng = np.random.default_rng(7)
    X, Z = texts(20, rng), texts(15, rng)
    parts = [Spectrum(k, **options) for k in (2, (3, 4), 6, 3)]
    factors = np.array([0.5, 2.0, 0.25, 1.5])
    assert len({part.merge_key for part in parts}) == 1
    expected = sum(f * part(X, Z) for f, part in zip(factors, parts, strict=True))
    v = rng.normal(size=20)
    found = parts[0].weigh(Samples(X), v, list(zip(parts, factors, strict=True)))(Samples(Z))
    np.testing.assert_allclose(found, v @ expected, atol=1e-11)


def test_what_cannot_be_merged():
    assert Spectrum(2, normalize=True).merge_key is None
    keys = {
        kernel.merge_key
        for kernel in (
            Spectrum(2),
            Spectrum(2, alphabet="rna"),
            Spectrum(2, reverse_complement=True),
            Spectrum(2, positions=(0, 5)),
            Spectrum(2, positions=(0, 6)),
        )
    }
    assert len(keys) == 5


# Very many columns


@pytest.mark.parametrize("normalize", ["trace", ("center", "trace"), None], ids=str)
@pytest.mark.parametrize("k", [31, (1, 31), 13])
def test_very_many_columns(k, normalize):
    """4^31 columns: nothing is as large as they are many."""
    rng = np.random.default_rng(8)
    unit = "".join(rng.choice(list("ACGT"), 60))
    X = [unit[a : a + 40] + "ACGT" * b for a, b in rng.integers(0, 20, (15, 2))]
    kernels = ComputedOperator.build(Spectrum(k), X, normalize)
    truth = kernels.block(np.arange(15))
    v = rng.normal(size=15)
    for plan in (SparseBank(), DenseBank(), LazyBank(dtype="float64")):
        bank = plan.build(kernels)
        scale = np.abs(truth).max()
        np.testing.assert_allclose(bank.apply(v), truth @ v, atol=1e-12 * scale)
    f = Spectrum(k).weigh(Samples(X), v)
    np.testing.assert_allclose(f(Samples(X)), Spectrum(k)(X) @ v, rtol=1e-11)


def test_what_is_kept_on_the_samples_belongs_to_one_kernel():
    rng = np.random.default_rng(9)
    X, Z = texts(12, rng, low=12), texts(9, rng, low=12)
    left, right = Samples(X), Samples(Z)
    kernels = [
        Spectrum(3),
        Spectrum((2, 3)),
        Spectrum((2, 3), normalize=True),
        Spectrum(3, reverse_complement=True),
        Spectrum(3, positions=(0, 6), normalize=True),
        Spectrum(3, normalize=True),
    ]
    stack = evaluate_stack(kernels, left, right)
    for kernel, values in zip(kernels, stack, strict=True):
        np.testing.assert_array_equal(values, kernel(X, Z))
        np.testing.assert_allclose(kernel.diagonal(right), kernel(Z).diagonal(), rtol=1e-13)


# Errors and names


@pytest.mark.parametrize("k", [0, -2, 2.5, True, "3", (3, 2), (1, 2, 3), (0, 4), None, 32, (1, 32)])
def test_impossible_lengths(k):
    with pytest.raises(InvalidInputError, match=r"k must be an integer from 1 to 31 .* got"):
        Spectrum(k)


def test_other_impossible_parameters():
    with pytest.raises(InvalidInputError, match="from 1 to 12 for alphabet=protein"):
        Spectrum(13, alphabet="protein")
    with pytest.raises(InvalidInputError, match="reverse_complement=True is for"):
        Spectrum(3, alphabet="protein", reverse_complement=True)
    with pytest.raises(InvalidInputError, match="normalize of Spectrum must be True or False"):
        Spectrum(3, normalize="diagonal")
    for positions in ((3, 3), (-1, 2), 5, (1, 2, 3), (0.0, 2.0)):
        with pytest.raises(InvalidInputError, match="positions must be two positions"):
            Spectrum(3, positions=positions)
    with pytest.raises(InvalidInputError, match="alphabet"):
        Spectrum(3, alphabet="A")
    with pytest.raises(InvalidInputError, match="one column of sequences; X has 2"):
        Spectrum(3)([["ACGT", "ACGT"], ["A", "C"]])
    with pytest.raises(InvalidInputError, match="letter"):
        Spectrum(3)(["ACGT", "ACZT"])


def test_names():
    assert Spectrum(3).name == "spectrum(k=3)"
    assert Spectrum((1, 6)).name == "spectrum(k=1-6)"
    assert Spectrum(2, alphabet="protein", normalize=True).name == (
        "spectrum(k=2, protein, normalized)"
    )
    assert Spectrum(2, alphabet="HP", positions=(3, 5)).name == "spectrum(k=2, 'HP') positions 3-4"
    assert eval(repr(Spectrum((2, 4), positions=(3, 5)))) == Spectrum((2, 4), positions=(3, 5))
