"""Tables of k-mer weights answer as a plain dictionary does, whatever their shape."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from kernelweave.compiled.threads import use_threads
from kernelweave.kernels import Samples, Spectrum
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.kmers import KmerSpace, KmerTable
from kernelweave.kernels.strings.sequences import Sequences

# Three letters, two of which pair with each other: codes with holes, and two strands.
ODD = Alphabet("odd", "XYZ", "?", "ZYX")


class Dictionary:
    """The same, in the plainest way."""

    def __init__(self, space, factors=None):
        self.space = space
        lengths = range(space.shortest, space.longest + 1)
        self.factors = dict(zip(lengths, factors or [1.0] * len(lengths), strict=True))
        self.w = defaultdict(float)

    def _kmers(self, text):
        alphabet = self.space.alphabet
        text = text.upper() if alphabet.fold_case else text
        start, stop = self.space.positions or (0, len(text))
        for k in self.factors:
            for at in range(start, min(stop, len(text) - k + 1)):
                word = text[at : at + k]
                if set(word) <= set(alphabet.letters):
                    yield self._strand(word)

    def _strand(self, word):
        if not self.space.reverse_complement:
            return word
        letters = self.space.alphabet.letters
        pairs = dict(zip(letters, self.space.alphabet.complement, strict=True))
        back = "".join(pairs[letter] for letter in reversed(word))
        return min(word, back, key=lambda some: [letters.index(letter) for letter in some])

    def add(self, texts, delta):
        for text, value in zip(texts, delta, strict=True):
            for word in self._kmers(text):
                self.w[word] += self.factors[len(word)] * value

    def lookup(self, texts):
        return np.array([sum(self.w.get(word, 0.0) for word in self._kmers(t)) for t in texts])

    def weights(self, length):
        return {word: w for word, w in self.w.items() if len(word) == length and w != 0.0}


def texts(alphabet, n, rng, shortest=1, longest=40):
    """Random sequences of unequal lengths with a few ambiguous letters and lower case."""
    letters = np.array(list(alphabet.letters + alphabet.ambiguous[:1]))
    odds = np.append(np.full(alphabet.size, 1.0), [0.15] * bool(alphabet.ambiguous))
    out = []
    for _ in range(n):
        drawn = rng.choice(letters, rng.integers(shortest, longest + 1), p=odds / odds.sum())
        word = "".join(drawn)
        out.append(word.lower() if alphabet.fold_case and rng.random() < 0.2 else word)
    return out


CASES = {
    "one length": KmerSpace(get_alphabet("dna"), 3, 3),
    "letters": KmerSpace(get_alphabet("dna"), 1, 1),
    "mixed": KmerSpace(get_alphabet("dna"), 1, 6),
    "mixed from three": KmerSpace(get_alphabet("rna"), 3, 5),
    "two strands": KmerSpace(get_alphabet("dna"), 4, 4, True),
    "mixed, two strands": KmerSpace(get_alphabet("dna"), 1, 6, True),
    "positions": KmerSpace(get_alphabet("dna"), 2, 4, False, (3, 9)),
    "positions, two strands": KmerSpace(get_alphabet("dna"), 1, 4, True, (5, 12)),
    "one position": KmerSpace(get_alphabet("dna"), 2, 2, True, (7, 8)),
    "protein": KmerSpace(get_alphabet("protein"), 1, 3),
    "two letters": KmerSpace(get_alphabet("HP"), 2, 9),
    "case matters": KmerSpace(get_alphabet("aAb"), 1, 5),
    "odd alphabet, two strands": KmerSpace(ODD, 1, 5, True),
    # More k-mers than an array may have: a trie below a table of some letters, or of the first.
    "deep": KmerSpace(get_alphabet("dna"), 1, 12),
    "deep, one length": KmerSpace(get_alphabet("dna"), 12, 12),
    "deep, from nine": KmerSpace(get_alphabet("rna"), 9, 11),
    "deep, two strands": KmerSpace(get_alphabet("dna"), 1, 12, True),
    "deep, positions": KmerSpace(get_alphabet("dna"), 2, 12, False, (3, 9)),
    "deep, one position": KmerSpace(get_alphabet("dna"), 11, 12, True, (7, 8)),
    "deep, protein": KmerSpace(get_alphabet("protein"), 1, 5),
    "deep, first letter": KmerSpace(get_alphabet("protein"), 3, 5, False, (0, 4)),
    "deep, two letters": KmerSpace(get_alphabet("HP"), 2, 24),
    "deep, odd alphabet, two strands": KmerSpace(ODD, 1, 12, True),
}
FACTORS = [0.5, 2.0, 0.0, 3.0, -1.0, 0.25, 1.0, 1.5, 4.0]


@pytest.fixture(params=list(CASES))
def space(request):
    return CASES[request.param]


def filled(space, rng, factors=None):
    """A table and a dictionary of the same sequences, and these."""
    some = texts(space.alphabet, 29, rng)
    # Multiples of 1/4 add up nearly exactly in any order.
    delta = rng.integers(-8, 9, 29) / 4.0
    plain = Dictionary(space, factors)
    plain.add(some, delta)
    own = 1.0 if factors is None else factors
    return KmerTable(space, Sequences.encode(some, space.alphabet), delta, own), plain, some


def check(table, plain, new, alphabet):
    """Values are added up in another order than in the dictionary."""
    expected = plain.lookup(new)
    found = table.look_up(Sequences.encode(new, alphabet))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-11)
    return expected


def test_as_a_dictionary(space):
    rng = np.random.default_rng(0)
    table, plain, known = filled(space, rng)
    expected = check(table, plain, known + texts(space.alphabet, 40, rng), space.alphabet)
    assert np.count_nonzero(expected) > 5


def test_factors_of_the_lengths(space):
    factors = np.resize(FACTORS, space.longest - space.shortest + 1).tolist()
    rng = np.random.default_rng(1)
    table, plain, known = filled(space, rng, factors)
    check(table, plain, known + texts(space.alphabet, 40, rng), space.alphabet)


def test_weights_of_one_length(space):
    rng = np.random.default_rng(2)
    some, delta = texts(space.alphabet, 29, rng), rng.integers(-8, 9, 29) / 4.0
    plain = Dictionary(space)
    plain.add(some, delta)
    kernel = Spectrum(
        (space.shortest, space.longest),
        alphabet=space.alphabet,
        reverse_complement=space.reverse_complement,
        positions=space.positions,
    )
    for length in range(space.shortest, space.longest + 1):
        numbers, values = kernel.kmer_weights(Samples(some), delta, length)
        assert np.all(np.diff(numbers) > 0)
        words = [space.alphabet.text(int(number), length) for number in numbers]
        assert dict(zip(words, values, strict=True)) == plain.weights(length)


def test_lookups_do_not_change_a_table(space):
    rng = np.random.default_rng(3)
    table, plain, known = filled(space, rng)
    new = known + texts(space.alphabet, 20, rng)
    for _ in range(3):
        check(table, plain, new, space.alphabet)


@pytest.mark.parametrize("k, two", [(31, False), (31, True), (12, True), (20, False)])
def test_long_kmers(k, two):
    """Codes of 62 bits: nothing overflows."""
    rng = np.random.default_rng(5)
    dna = get_alphabet("dna")
    for shortest in (k, k - 3, 1):
        space = KmerSpace(dna, shortest, k, two)
        # Repeats, so that long k-mers occur again, and the reverse complement of one.
        unit = "".join(rng.choice(list("ACGT"), 45))
        back = unit[::-1].translate(str.maketrans("ACGT", "TGCA"))
        known = [unit + unit, "T" * 40, unit[5:] + "ACNGT" + unit, "A" * (k - 1)]
        delta = np.array([1.0, -2.0, 0.5, 1.0])
        plain = Dictionary(space)
        plain.add(known, delta)
        table = KmerTable(space, Sequences.encode(known, dna), delta)
        new = [back, unit, "G" + unit + "N" + back, "A" * 35, "ACGT" * 20]
        expected = check(table, plain, new, dna)
        assert np.count_nonzero(expected) >= (3 if two else 2)


@pytest.mark.parametrize("times", [1, 4], ids=["array", "deep"])
def test_a_palindrome_counts_once_on_its_own_strand(times):
    dna = get_alphabet("dna")
    some = Sequences.encode([times * "ACGT", times * "AAAA"], dna)
    table = KmerTable(KmerSpace(dna, 4 * times, 4 * times, True), some, np.array([1.0, 1.0]))
    new = [times * text for text in ("ACGT", "TTTT", "AAAA", "TGCA")]
    got = table.look_up(Sequences.encode(new, dna))
    np.testing.assert_allclose(got, [1.0, 1.0, 1.0, 0.0], atol=1e-15)


@pytest.mark.parametrize("longest", [5, 13], ids=["array", "deep"])
def test_the_same_bits_for_any_number_of_threads(longest):
    rng = np.random.default_rng(6)
    dna = get_alphabet("dna")
    space = KmerSpace(dna, longest - 4, longest, True)
    known = Sequences.encode(texts(dna, 4000, rng, 80, 160), dna)
    delta = rng.normal(size=4000)
    out = []
    for jobs in (1, 2, 3):
        with use_threads(jobs):
            out.append(KmerTable(space, known, delta).look_up(known))
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(out[0], out[2])
    counts = space.count(known)
    truth = counts @ (counts.T @ delta)
    np.testing.assert_allclose(out[0], truth, atol=1e-11 * np.abs(truth).max())


@pytest.mark.parametrize("longest", [3, 12], ids=["array", "deep"])
def test_sequences_of_weight_zero_leave_no_trace(longest):
    dna = get_alphabet("dna")
    some = ["ACGT", "TT", "ACGT"]
    for delta in np.array([[0.0, 0.0, 0.0], [1.0, 0.0, -1.0]]):
        table = KmerTable(KmerSpace(dna, 1, longest), Sequences.encode(some, dna), delta)
        assert np.abs(table.look_up(Sequences.encode(some, dna))).max() < 1e-300
        numbers, values = Spectrum((1, 3)).kmer_weights(Samples(some), delta, 2)
        assert len(numbers) == len(values) == 0


@pytest.mark.parametrize("longest", [5, 13], ids=["array", "deep"])
def test_sequences_without_kmers(longest):
    dna = get_alphabet("dna")
    none = Sequences.encode(["AC", "NNNN"], dna)
    for known in (none, none[:0]):
        table = KmerTable(KmerSpace(dna, 3, longest), known, np.ones(len(known)))
        np.testing.assert_array_equal(table.look_up(Sequences.encode(["ACGTAC", "A"], dna)), 0.0)
        assert table.look_up(none[:0]).shape == (0,)


def test_counts_of_long_repetitive_sequences():
    """Many k-mers share their highest bits: the quick sort gives way to the general one."""
    rng = np.random.default_rng(7)
    dna = get_alphabet("dna")
    words = ["A" * 400, "ACG" * 200, "A" * 300 + "".join(rng.choice(list("AC"), 300)) + "N" * 9]
    for k, two in itertools.product((2, 5, 9, 13), (False, True)):
        space = KmerSpace(dna, k, k, two)
        rows = space.count(Sequences.encode(words, dna))
        assert rows.has_sorted_indices and rows.shape == (3, 4**k)
        for i, word in enumerate(words):
            counted = defaultdict(float)
            for found in Dictionary(space)._kmers(word):
                counted[found] += 1.0
            row = rows[[i]]
            got = {dna.text(int(c), k): v for c, v in zip(row.indices, row.data, strict=True)}
            assert got == counted


def test_memory_follows_the_kmers_that_occur():
    """An array for a handful of k-mers would be nearly empty, and one of 4^20 impossible."""
    dna, protein = get_alphabet("dna"), get_alphabet("protein")
    few = Sequences.encode(texts(dna, 5, np.random.default_rng(8), 30, 30), dna)
    one = Sequences.encode(["ACDEFGHIKL"], protein)
    cases = [(KmerSpace(dna, *lengths), few) for lengths in ((8, 8), (1, 8), (20, 20))]
    for space, known in [*cases, (KmerSpace(protein, 1, 6), one)]:
        for _ in range(2):  # What is compiled the first time takes memory of its own.
            tracemalloc.start()
            table = KmerTable(space, known, np.ones(len(known)))
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert table is not None and held < 2**16
