"""Sequences as input: every kind of text gives the same codes, and what is no sequence is named."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.kernels import RBF, Linear, Samples, default_family, simplemkl_family
from kernelweave.kernels.columns import Selection
from kernelweave.kernels.samples import as_text
from kernelweave.kernels.strings.alphabet import AMBIGUOUS, Alphabet, get_alphabet
from kernelweave.kernels.strings.sequences import Sequences, sequences_of
from kernelweave.validation import is_missing

DNA = get_alphabet("dna")
TEXTS = ["ACGT", "ggntta", "T", "AC"]
CODES = [[0, 1, 2, 3], [2, 2, 255, 3, 3, 0], [3], [0, 1]]
# More letters than are encoded or copied at a time.
LONG = ["ACGTN" * 150_000, "GG", "T" * 900_000, "AC", "CCT" * 200_000]


def arrow():
    pytest.importorskip("pyarrow")
    return pd.Series(TEXTS, dtype="string[pyarrow]")


KINDS = {
    "list": lambda: list(TEXTS),
    "tuple": lambda: tuple(TEXTS),
    "list of bytes": lambda: [text.encode() for text in TEXTS],
    "list of both": lambda: [TEXTS[0], TEXTS[1].encode(), *TEXTS[2:]],
    "list of numpy strings": lambda: list(np.array(TEXTS)),
    "U": lambda: np.array(TEXTS),
    "U of the other byte order": lambda: np.array(TEXTS).astype(">U6"),
    "S": lambda: np.array(TEXTS, dtype="S"),
    "strided S": lambda: np.array(TEXTS, dtype="S9").repeat(2)[::2],
    "object": lambda: np.array(TEXTS, dtype=object),
    "object of bytes": lambda: np.array([text.encode() for text in TEXTS], dtype=object),
    "pandas": lambda: pd.Series(TEXTS, index=[9, 8, 7, 6]),
    "pandas object": lambda: pd.Series(TEXTS, dtype=object),
    "pandas string": lambda: pd.Series(TEXTS, dtype="string"),
    "pandas category": lambda: pd.Series(TEXTS, dtype="category"),
    "pandas arrow": arrow,
    "pandas index": lambda: pd.Index(TEXTS),
    "polars": lambda: pl.Series(TEXTS),
    "polars category": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
    "polars bytes": lambda: pl.Series([text.encode() for text in TEXTS]),
    "column of objects": lambda: np.array(TEXTS, dtype=object)[:, None],
    "column of S": lambda: np.array(TEXTS, dtype="S")[:, None],
    "nested lists": lambda: [[text] for text in TEXTS],
    "pandas frame": lambda: pd.DataFrame({"sequence": TEXTS}),
    "pandas frame of categories": lambda: pd.DataFrame({"s": pd.Categorical(TEXTS)}),
    "polars frame": lambda: pl.DataFrame({"sequence": TEXTS}),
}
if hasattr(np.dtypes, "StringDType"):
    KINDS["numpy string"] = lambda: np.array(TEXTS, dtype=np.dtypes.StringDType())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_codes(kind):
    samples = Samples(KINDS[kind]())
    assert (samples.n, samples.n_columns) == (4, 1)
    found = sequences_of(samples, DNA)
    np.testing.assert_array_equal(found.codes, np.concatenate(CODES))
    np.testing.assert_array_equal(found.starts, [0, 4, 10, 11, 13])
    assert found.codes.dtype == np.uint8
    assert found.starts.dtype == np.int64
    assert found.codes.flags.writeable  # Read-only arrays would be compiled for once more.
    rows = samples.take([3, 1])
    np.testing.assert_array_equal(sequences_of(rows, DNA).codes, CODES[3] + CODES[1])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "frame" not in kind])
def test_encode_takes_what_samples_take(kind):
    data = KINDS[kind]()
    if np.ndim(data) == 1:
        np.testing.assert_array_equal(Sequences.encode(data, DNA).codes, np.concatenate(CODES))


def test_lists_do_not_become_wide_arrays():
    long = "ACGT" * 1000
    samples = Samples(["A", long, "C"])
    assert samples.native.dtype == object
    assert samples.native[1, 0] is long
    table = Samples([["A", 1.0], [long, 2.0], [float("nan"), 3.0]])
    assert table.native.dtype == object
    assert table.native[1, 0] is long
    assert is_missing(table.native[2, 0])


def test_letters_exist_once_as_codes():
    texts = ["ACGTTGCA" * 25] * 40_000
    tracemalloc.start()
    found = Sequences.encode(texts, DNA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.common_length == 200
    assert peak < 2.0 * found.codes.nbytes


@pytest.mark.parametrize(
    "data", [[1.0, 2.0], np.arange(3), pd.Series([1, 2]), pl.Series([1.5]), [None, None], []]
)
def test_one_dimension_of_numbers_is_no_column(data):
    assert as_text(data) is None
    with pytest.raises(InvalidInputError, match="2 dimensions"):
        Samples(data)


def test_other_shapes_are_no_text():
    assert as_text(np.array([[["A"]]])) is None
    assert as_text([["A", 1], ["B"]]) is None
    assert as_text(sparse.csr_matrix([[1.0]])) is None
    assert as_text(np.array([[1.0, None]], dtype=object)) is None
    for single in ("ACGT", b"ACGT"):
        with pytest.raises(InvalidInputError, match=r"a single text.*\[X\]"):
            Samples(single)
    with pytest.raises(InvalidInputError, match="at least one sample"):
        Samples(np.array([], dtype="U3"))


class TestAlphabets:
    def test_ambiguous_letters_and_lower_case(self):
        found = Sequences.encode(["aNrYt-", "xX?.G"], DNA)
        assert found.codes.tolist() == [0, 255, 255, 255, 3, 255, 255, 255, 255, 255, 2]
        assert Sequences.encode(["acgu"], get_alphabet("rna")).codes.tolist() == [0, 1, 2, 3]
        protein = Sequences.encode(["acyX*"], get_alphabet("protein"))
        assert protein.codes.tolist() == [0, 1, 19, 255, 255]

    def test_codes_are_arrays_of_their_own(self):
        codes = DNA.codes(b"ACgt")
        assert codes.flags.writeable
        pairs = DNA.complement_codes(codes.reshape(2, 2))
        assert pairs.flags.writeable
        assert pairs.tolist() == [[3, 2], [1, 0]]

    def test_letters_of_ones_own(self):
        assert Sequences.encode(["hPp"], get_alphabet("HP")).codes.tolist() == [0, 1, 1]
        cased = get_alphabet("aA")
        assert Sequences.encode(["aAA"], cased).codes.tolist() == [0, 1, 1]
        assert pickle.loads(pickle.dumps(cased)) == cased
        assert get_alphabet(cased) is cased

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ("dnaa", UnknownNameError, "did you mean 'dna'"),
            ("A", InvalidInputError, "2 to 64 different ASCII letters; got 'A'"),
            ("A\u00c4", InvalidInputError, "ASCII"),
            (4, InvalidInputError, "got 4"),
        ],
    )
    def test_wrong_alphabets(self, spec, error, message):
        with pytest.raises(error, match=message):
            get_alphabet(spec)

    def test_codes_and_text_are_inverse(self):
        for spec, word in [("dna", "GATTACA"), ("protein", "WYKL"), ("HP", "HPPH")]:
            alphabet = get_alphabet(spec)
            digits = alphabet.codes(word.encode()).tolist()
            number = int(sum(d * alphabet.size**i for i, d in enumerate(reversed(digits))))
            assert alphabet.text(number, len(word)) == word


class TestErrors:
    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (["ACG", "AZG"], "sequence 1 holds the letter 'Z' at position 1.*letters are ACGT"),
            (["ACG", "AUG"], "'U' at position 1.*alphabet='rna'"),
            ([b"ACG", b"AC\n"], r"sequence 1 holds the letter '\\n' at position 2"),
            (["ACG", "A\u4e2dT"], "sequence 1 holds the letter '\u4e2d' at position 1"),
            (["ACG", b"A", "A\u4e2dT"], "sequence 2 holds the letter '\u4e2d' at position 1"),
            (np.array(["ACG", "A\u4e2dT"]), "sequence 1 holds the letter '\u4e2d' at position 1"),
            (["A", b"AC\xe9"], "sequence 1 holds the letter '\u00e9' at position 2"),
            (["AC\u00e9"], "holds the letter '\u00e9' at position 2"),
            (["ACG", ""], "sequence 1 is empty"),
            (np.array(["ACG", ""]), "sequence 1 is empty"),
            (np.array([b"", b"A"]), "sequence 0 is empty"),
            (["ACG", None], r"row 1 is missing \(None\).*Drop such rows"),
            ([float("nan"), "ACG"], r"row 0 is missing \(nan\)"),
            (pd.Series(["ACG", None]), "row 1 is missing"),
            (pd.Series(["ACG", pd.NA], dtype="string"), r"row 1 is missing \(<NA>\)"),
            (pd.Series(["ACG", None], dtype="category"), "row 1 is missing"),
            (pd.Series(["ACG", pd.NaT], dtype=object), r"row 1 is missing \(NaT\)"),
            (pl.Series(["ACG", None]), "row 1 is missing"),
            (pd.DataFrame({"s": ["ACG", None]}), "row 1 is missing"),
            (pl.DataFrame({"s": [None, "ACG"]}), "row 0 is missing"),
            ([["ACG"], [np.nan]], "row 1 is missing"),
            (["ACG", 3], "row 1 holds no sequence.*got 3"),
            (["ACG", ["A"]], "row 1 holds no sequence"),
            (np.array([[1.0], [2.0]]), "row 0 holds no sequence.*got 1.0"),
            (np.array([["A", "C"]]), r"reads one column of sequences; X has 2.*kernel.on\('seq"),
            (sparse.csr_matrix([[1.0]]), "X is a sparse matrix"),
        ],
    )
    def test_what_is_no_sequence_is_named(self, data, message):
        with pytest.raises(InvalidInputError, match=message):
            sequences_of(Samples(data), DNA)

    @pytest.mark.parametrize("letter", ["Z", "\u4e2d"])
    def test_after_very_many_letters(self, letter):
        message = f"sequence {len(LONG) + 1} holds the letter '{letter}' at position 3"
        for last in ("ACG" + letter, "ACG" + letter + "A" * 10**6):
            with pytest.raises(InvalidInputError, match=message):
                Sequences.encode([*LONG, "T", last], DNA)

    def test_rna_is_told_of_dna(self):
        with pytest.raises(InvalidInputError, match="alphabet='dna'"):
            Sequences.encode(["ACGT"], get_alphabet("rna"))

    @pytest.mark.parametrize("kernel", [RBF(width=1), Linear()])
    def test_numbers_from_text_point_to_the_string_kernels(self, kernel):
        with pytest.raises(
            InvalidInputError,
            match=r"column 0 of X cannot be read as numbers.*kernels=\[Spectrum.*WeightedDegree",
        ):
            kernel(["ACGT" * 100, "TT"])
        table = pd.DataFrame({"size": [1.0, 2.0], "dna": ["ACG", "TTT"]})
        with pytest.raises(InvalidInputError, match=r"column 'dna'.*Spectrum\(k=3\).on\('dna'\)"):
            kernel(table)
        with pytest.raises(InvalidInputError, match=r"column 1 .*Spectrum\(k=3\).on\(1\)"):
            kernel([[1.0, "ACG"], [2.0, "TTT"]])

    def test_the_message_does_not_hold_the_whole_sequence(self):
        with pytest.raises(InvalidInputError) as caught:
            Linear()(["ACGT" * 10_000])
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize("family", [default_family(), simplemkl_family()])
    def test_families_that_scale_say_the_same(self, family):
        with pytest.raises(InvalidInputError, match=r"Spectrum and WeightedDegree"):
            family.expand(Samples(["ACG", "TTT"]))
        with pytest.raises(InvalidInputError, match=r"column 'dna'"):
            family.expand(Samples(pl.DataFrame({"size": [1.0, 2.0], "dna": ["ACG", "TTT"]})))
        for numbers in ([["1", 2.0], ["3", 4.5]], pd.DataFrame({"a": pd.Categorical([1, 2])})):
            assert family.expand(Samples(numbers))


class TestTake:
    @pytest.mark.parametrize("texts", [TEXTS, ["ACGT", "GGNT", "TTTT", "ACCA"]])
    @pytest.mark.parametrize(
        "index", [[2, 0, 0], [], [-1, 1], slice(1, 3), slice(None, None, -1), [True, False] * 2, 2]
    )
    def test_as_a_list_would_be(self, texts, index):
        some = Sequences.encode(texts, DNA)[index]
        if index == []:
            assert some.codes.tolist() == []
            assert some.starts.tolist() == [0]
            return
        chosen = np.atleast_1d(np.array(texts, dtype=object)[index])
        wanted = Sequences.encode(chosen, DNA)
        np.testing.assert_array_equal(some.codes, wanted.codes)
        np.testing.assert_array_equal(some.starts, wanted.starts)
        assert some.common_length == wanted.common_length

    def test_of_very_many_letters(self):
        some, index = Sequences.encode(LONG, DNA), [3, 0, 2, 4, 2]
        wanted = [Sequences.encode([LONG[i]], DNA).codes for i in index]
        np.testing.assert_array_equal(some[index].codes, np.concatenate(wanted))
        assert some[index].lengths.tolist() == [len(LONG[i]) for i in index]

    def test_a_copy(self):
        whole = Sequences.encode(["AC", "GT"], DNA)
        whole[:].codes[:] = 3
        assert whole.codes.tolist() == [0, 1, 2, 3]

    def test_encoded_once_for_each_alphabet(self, monkeypatch):
        samples = Samples(TEXTS)
        first = sequences_of(samples, DNA)
        rows = samples.take([1, 0])
        cut = sequences_of(rows, DNA)
        monkeypatch.setattr(Sequences, "encode", None)  # Calling it again would fail.
        assert sequences_of(samples, DNA) is first
        assert (
            sequences_of(samples, Alphabet(DNA.name, DNA.letters, DNA.ambiguous, "TGCA")) is first
        )
        assert sequences_of(rows, DNA) is cut
        np.testing.assert_array_equal(sequences_of(rows.take([1]), DNA).codes, CODES[0])

    @pytest.mark.parametrize("kind", [kind for kind in KINDS if "arrow" not in kind])
    def test_pickle(self, kind):
        samples = Samples(KINDS[kind]())
        sequences_of(samples, DNA)
        small = pickle.dumps(samples)
        assert b"Alphabet" not in small  # What can be computed again does not travel.
        again = pickle.loads(small)
        np.testing.assert_array_equal(sequences_of(again, DNA).codes, np.concatenate(CODES))
        rows = pickle.loads(pickle.dumps(samples.take([2])))
        np.testing.assert_array_equal(sequences_of(rows, DNA).codes, CODES[2])
        found = pickle.loads(pickle.dumps(sequences_of(samples, DNA)))
        np.testing.assert_array_equal(found.codes, np.concatenate(CODES))

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, None])
    def test_a_column_beside_numbers(self, make):
        table = {"size": [1.0, 2.0, 3.0, 4.0], "dna": TEXTS}
        rows = [list(row) for row in zip(*table.values(), strict=True)]
        data = np.array(rows, dtype=object) if make is None else make(table)
        samples = Samples(data)
        for place in (1, -1) if make is None else (1, "dna", ["dna"]):
            block = Selection(place).bind(samples)
            for index in (np.arange(4), np.array([3, 1])):
                part = samples.take(index).derive(block)
                wanted = np.concatenate([CODES[i] for i in index])
                np.testing.assert_array_equal(sequences_of(part, DNA).codes, wanted)
            assert samples.derive(block) is samples.derive(block)
        np.testing.assert_allclose(Linear().on(0)(data), np.outer([1, 2, 3, 4], [1, 2, 3, 4]))


class TestReverseComplement:
    @pytest.mark.parametrize("texts", [["AACGN", "T", "GG"], ["AACN", "TTTG"], LONG])
    def test_by_hand(self, texts):
        pairs = str.maketrans("ACGTN", "TGCAN")
        wanted = Sequences.encode([text.translate(pairs)[::-1] for text in texts], DNA)
        found = Sequences.encode(texts, DNA).reverse_complement()
        np.testing.assert_array_equal(found.codes, wanted.codes)
        np.testing.assert_array_equal(found.starts, wanted.starts)
        assert found.codes.flags.writeable

    def test_rna_and_protein(self):
        found = Sequences.encode(["AACGU"], get_alphabet("rna")).reverse_complement()
        assert found.codes.tolist() == [0, 1, 2, 3, 3]
        with pytest.raises(InvalidInputError, match=r"for alphabet='dna'.*got protein"):
            Sequences.encode(["ACD"], get_alphabet("protein")).reverse_complement()


@given(st.lists(st.text("ACGTacgtN-", min_size=1, max_size=9), min_size=1, max_size=8), st.data())
def test_any_texts_any_rows(texts, data):
    table = {**{c: i for i, c in enumerate("ACGT")}, **{c: i for i, c in enumerate("acgt")}}
    codes = [[table.get(letter, AMBIGUOUS) for letter in text] for text in texts]
    whole = Sequences.encode(data.draw(st.sampled_from([texts, np.array(texts, "S")])), DNA)
    assert [whole[i].codes.tolist() for i in range(len(texts))] == codes
    index = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=10))
    part = whole[index]
    twice = whole.reverse_complement().reverse_complement()
    assert part.codes.tolist() == [code for i in index for code in codes[i]]
    assert part.lengths.tolist() == [len(codes[i]) for i in index]
    np.testing.assert_array_equal(twice.codes, whole.codes)
    np.testing.assert_array_equal(twice.starts, whole.starts)


def test_more_letters_than_are_encoded_at_a_time():
    texts = ["ACGTN", "GGT", "CATTAGACAT"] * 150_000
    once = Sequences.encode(texts[:3], DNA)
    for given_as in (texts, np.array(texts, "S")):
        whole = Sequences.encode(given_as, DNA)
        np.testing.assert_array_equal(whole.codes, np.tile(once.codes, 150_000))
    texts[-2] = "G!T"
    with pytest.raises(InvalidInputError, match="'!'"):
        Sequences.encode(texts, DNA)
