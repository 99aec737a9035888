"""The stores of k-mer weights answer alike, and as a plain dictionary does."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.kmer_space import KmerSpace
from kernelweave.kernels.strings.sequences import Sequences
from kernelweave.kernels.strings.stores import ArrayStore, SortedStore, TrieStore, choose_store

STORES = [ArrayStore, SortedStore, TrieStore]
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
}
FACTORS = [0.5, 2.0, 0.0, 3.0, -1.0, 0.25, 1.0, 1.5, 4.0]


@pytest.fixture(params=list(CASES))
def space(request):
    return CASES[request.param]


@pytest.fixture(params=STORES)
def kind(request):
    return request.param


def filled(store, plain, alphabet, rng):
    for n in (20, 1, 8):
        some = texts(alphabet, n, rng)
        # Multiples of 1/4 add up exactly in any order.
        delta = rng.integers(-8, 9, n) / 4.0
        plain.add(some, delta)
        store.add(Sequences.encode(some, alphabet), delta)


def test_as_a_dictionary(space, kind):
    rng = np.random.default_rng(0)
    store, plain = kind(space), Dictionary(space)
    filled(store, plain, space.alphabet, rng)
    new = texts(space.alphabet, 40, rng)
    expected = plain.lookup(new)
    assert np.count_nonzero(expected) > 20
    np.testing.assert_array_equal(store.lookup(Sequences.encode(new, space.alphabet)), expected)


def test_factors_of_the_lengths(space, kind):
    factors = FACTORS[: space.longest - space.shortest + 1]
    rng = np.random.default_rng(1)
    store, plain = kind(space, factors), Dictionary(space, factors)
    filled(store, plain, space.alphabet, rng)
    new = texts(space.alphabet, 40, rng)
    got = store.lookup(Sequences.encode(new, space.alphabet))
    np.testing.assert_array_equal(got, plain.lookup(new))


def test_weights_of_one_length(space, kind):
    rng = np.random.default_rng(2)
    store, plain = kind(space), Dictionary(space)
    filled(store, plain, space.alphabet, rng)
    for length in range(space.shortest, space.longest + 1):
        numbers, values = store.weights(length)
        assert np.all(np.diff(numbers) > 0)
        words = [space.alphabet.text(int(number), length) for number in numbers]
        assert dict(zip(words, values, strict=True)) == plain.weights(length)


def test_cleared_stores_start_from_zero(space, kind):
    rng = np.random.default_rng(3)
    store, plain = kind(space), Dictionary(space)
    filled(store, Dictionary(space), space.alphabet, rng)
    new = texts(space.alphabet, 20, rng)
    encoded = Sequences.encode(new, space.alphabet)
    store.lookup(encoded)
    store.clear()
    np.testing.assert_array_equal(store.lookup(encoded), np.zeros(20))
    assert all(len(part) == 0 for part in store.weights(space.shortest))
    filled(store, plain, space.alphabet, rng)
    np.testing.assert_array_equal(store.lookup(encoded), plain.lookup(new))


def test_looking_up_between_additions(space, kind):
    rng = np.random.default_rng(4)
    store, plain = kind(space), Dictionary(space)
    new = texts(space.alphabet, 20, rng)
    encoded = Sequences.encode(new, space.alphabet)
    for _ in range(3):
        filled(store, plain, space.alphabet, rng)
        np.testing.assert_array_equal(store.lookup(encoded), plain.lookup(new))


@pytest.mark.parametrize("k, two", [(31, False), (31, True), (12, True), (20, False)])
@pytest.mark.parametrize("kind", [SortedStore, TrieStore])
def test_long_kmers(kind, k, two):
    """Codes of 62 bits: nothing overflows."""
    rng = np.random.default_rng(5)
    dna = get_alphabet("dna")
    for shortest in (k, k - 3):
        space = KmerSpace(dna, shortest, k, two)
        store, plain = kind(space), Dictionary(space)
        # Repeats, so that long k-mers occur again, and the reverse complement of one.
        unit = "".join(rng.choice(list("ACGT"), 45))
        back = unit[::-1].translate(str.maketrans("ACGT", "TGCA"))
        known = [unit + unit, "T" * 40, unit[5:] + "ACNGT" + unit, "A" * (k - 1)]
        plain.add(known, [1.0, -2.0, 0.5, 1.0])
        store.add(Sequences.encode(known, dna), [1.0, -2.0, 0.5, 1.0])
        new = [back, unit, "G" + unit + "N" + back, "A" * 35, "ACGT" * 20]
        expected = plain.lookup(new)
        assert np.count_nonzero(expected) >= (3 if two else 2)
        np.testing.assert_array_equal(store.lookup(Sequences.encode(new, dna)), expected)


def test_a_palindrome_counts_once_on_its_own_strand(kind):
    dna = get_alphabet("dna")
    store = kind(KmerSpace(dna, 4, 4, True))
    store.add(Sequences.encode(["ACGT", "AAAA"], dna), [1.0, 1.0])
    got = store.lookup(Sequences.encode(["ACGT", "TTTT", "AAAA", "TGCA"], dna))
    np.testing.assert_array_equal(got, [1.0, 1.0, 1.0, 0.0])


def test_the_same_bits_for_any_number_of_threads(kind):
    rng = np.random.default_rng(6)
    dna = get_alphabet("dna")
    space = KmerSpace(dna, 1, 5, True)
    known = Sequences.encode(texts(dna, 4000, rng, 80, 160), dna)
    delta = rng.normal(size=4000)
    out = []
    for jobs in (1, 2, 3):
        with use_threads(jobs):
            store = kind(space)
            store.add(known, delta)
            out.append(store.lookup(known))
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(out[0], out[2])
    counts = space.count(known)
    truth = counts @ (counts.T @ delta)
    np.testing.assert_allclose(out[0], truth, atol=1e-11 * np.abs(truth).max())


def test_sequences_of_weight_zero_leave_no_trace(kind):
    dna = get_alphabet("dna")
    store = kind(KmerSpace(dna, 1, 3))
    store.add(Sequences.encode(["ACGT", "TT"], dna), [0.0, 0.0])
    assert len(store.weights(2)[0]) == 0
    store.add(Sequences.encode(["ACGT"], dna), [1.0])
    store.add(Sequences.encode(["ACGT"], dna), [-1.0])
    assert len(store.weights(2)[0]) == 0


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


def test_a_store_of_another_alphabet_or_shape_is_refused(kind):
    dna, rna = get_alphabet("dna"), get_alphabet("rna")
    store = kind(KmerSpace(dna, 2, 3))
    with pytest.raises(InvalidInputError, match="alphabet=rna"):
        store.add(Sequences.encode(["ACGU"], rna), [1.0])
    with pytest.raises(InvalidInputError, match="alphabet=rna"):
        store.lookup(Sequences.encode(["ACGU"], rna))
    with pytest.raises(InvalidInputError, match="each of 1 sequences"):
        store.add(Sequences.encode(["ACGT"], dna), [1.0, 2.0])
    with pytest.raises(InvalidInputError, match="lengths 2 to 3"):
        store.weights(4)


def test_bytes_are_counted(kind):
    dna = get_alphabet("dna")
    store = kind(KmerSpace(dna, 2, 6))
    empty = store.nbytes
    some = Sequences.encode(texts(dna, 50, np.random.default_rng(8), 60, 90), dna)
    store.add(some, np.ones(50))
    store.lookup(some)
    assert store.nbytes > empty


def test_the_store_is_chosen_by_alphabet_and_lengths():
    dna, protein = get_alphabet("dna"), get_alphabet("protein")
    assert isinstance(choose_store(KmerSpace(dna, 1, 8)), ArrayStore)
    assert isinstance(choose_store(KmerSpace(dna, 8, 8), n_kmers=10**5), ArrayStore)
    # An array for a handful of k-mers would be nearly empty.
    assert isinstance(choose_store(KmerSpace(dna, 8, 8), n_kmers=100), SortedStore)
    assert isinstance(choose_store(KmerSpace(dna, 1, 8), n_kmers=100), TrieStore)
    assert isinstance(choose_store(KmerSpace(dna, 20, 20), n_kmers=10**9), SortedStore)
    assert isinstance(choose_store(KmerSpace(protein, 1, 6)), TrieStore)
    store = choose_store(KmerSpace(dna, 1, 2), [2.0, 0.0])
    store.add(Sequences.encode(["AC"], dna), [1.0])
    assert store.lookup(Sequences.encode(["AC"], dna))[0] == 4.0
