"""What goes wrong with sequences: the message says which one, where, and what to do instead."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from naive_strings import random_texts
from same_numbers import assert_same_numbers
from scipy import sparse

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.kernels import RBF, Spectrum, WeightedDegree

X = random_texts(20, 12, np.random.default_rng(0), often=0.0)
Y = np.arange(20) % 2
FRAME = pd.DataFrame({"sequence": X, "x": np.linspace(-1, 1, 20)})
WD = WeightedDegree
FAMILIES = {
    "whole": WD(3),
    "lengths": WD(3).by_length(),
    "positions": WD(3).by_position(4),
    "both": [RBF(width=1.0).on("x"), WD(3, shift=1).by_length().by_position(4).on("sequence")],
}


def data(name, texts):
    """These sequences, alone or beside numbers."""
    return pd.DataFrame({"sequence": texts, "x": 0.0}) if name == "both" else texts


@pytest.mark.parametrize("family", list(FAMILIES))
class TestLengths:
    def test_one_of_another_length(self, family):
        message = r"equal length: sequence 19 has length 11, most have 12\. Cut them.*Spectrum"
        texts = [*X[:-1], X[-1][:-1]]
        for model in (MKLClassifier, MKLRegressor, MKLOneClass):
            with pytest.raises(InvalidInputError, match=message):
                model(FAMILIES[family]).fit(data(family, texts), Y)

    def test_several_of_other_lengths(self, family):
        texts = ["A", *X[1:18], "AC", "ACG"]
        message = r"sequence 0 has length 1, most have 12 \(and 2 more differ\)"
        with pytest.raises(InvalidInputError, match=message):
            MKLClassifier(FAMILIES[family]).fit(data(family, texts), Y)

    def test_new_ones(self, family):
        model = MKLClassifier(FAMILIES[family]).fit(data(family, X), Y)
        longer = data(family, [text + "A" for text in X])
        for method in (model.predict, model.transform, model.combined_kernel):
            with pytest.raises(InvalidInputError, match="of length 12; got sequences of length 13"):
                method(longer)
        # Every call says so, not only the first.
        with pytest.raises(InvalidInputError, match="of length 12; got sequences of length 13"):
            model.predict(longer)
        with pytest.raises(InvalidInputError, match="sequence 2 has length 3, most have 12"):
            model.predict(data(family, [*X[:2], "ACG"]))
        assert model.predict(data(family, X[:3])).shape == (3,)


class TestLetters:
    @pytest.mark.parametrize(
        ("text", "letter", "place"),
        [
            ("ACGTACGTACG\n", r"'\\n'", 11),
            (" ACGTACGTACG", "' '", 0),
            (">seq1 ACGTAC", "'>'", 0),
            ("ACGTEFGACGTA", "'E'", 4),
            ("ACGT*ACGTACG", r"'\*'", 4),
            ("ACGTACGTAC0G", "'0'", 10),
        ],
    )
    def test_letters_that_are_none(self, text, letter, place):
        message = f"sequence 7 holds the letter {letter} at position {place}, which alphabet=dna"
        with pytest.raises(InvalidInputError, match=message):
            MKLClassifier(WD(3)).fit([*X[:7], text, *X[8:]], Y)
        model = MKLClassifier(WD(3)).fit(X, Y)
        with pytest.raises(InvalidInputError, match=message.replace("sequence 7", "sequence 1")):
            model.predict([X[0], text])

    def test_the_other_nucleic_acid(self):
        rna = [text.replace("T", "U") for text in X]
        with pytest.raises(InvalidInputError, match=r"letter 'U'.*For RNA use alphabet='rna'"):
            MKLClassifier(WD(3)).fit(rna, Y)
        with pytest.raises(InvalidInputError, match=r"letter 'T'.*For DNA use alphabet='dna'"):
            MKLClassifier(WD(3, alphabet="rna")).fit(X, Y)
        assert MKLClassifier(WD(3, alphabet="rna")).fit(rna, Y).predict(rna).shape == Y.shape

    def test_no_letters(self):
        with pytest.raises(InvalidInputError, match="sequence 4 is empty; every sample needs"):
            MKLClassifier(WD(3)).fit([*X[:4], "", *X[5:]], Y)
        nothing = ["N" * 12] * 20
        with pytest.raises(InvalidInputError, match=r"degree=3\)' has mean diagonal 0"):
            MKLClassifier(WD(3)).fit(nothing, Y)
        with pytest.raises(InvalidInputError, match="no sequence holds a k-mer of length 1"):
            MKLClassifier(WD(3).by_length()).fit(nothing, Y)
        with pytest.raises(InvalidInputError, match=r"k\(x, x\) = 0 for all training samples"):
            MKLClassifier(WD(3), normalize="diagonal").fit(nothing, Y)

    def test_samples_of_nothing_but_ambiguous_letters_are_no_error(self):
        """One of them is similar to none, so it gets the intercept, whatever the kernel."""
        texts = [*X[:-1], "N" * 12]
        for kernel in (WD(3), WD(3, normalize=True), Spectrum(2), Spectrum(2, normalize=True)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = MKLClassifier(kernel).fit(texts, Y)
                values = model.decision_function(["N" * 12, "-" * 12, X[0]])
            np.testing.assert_allclose(values[:2], model.intercept_[0], atol=1e-12)
            assert values[2] != values[0]


class TestShapes:
    @pytest.mark.parametrize(
        "table",
        [
            [list(text) for text in X],
            np.array([list(text) for text in X]),
            np.random.default_rng(0).integers(0, 4, (20, 12)),
            sparse.eye_array(20, 12, format="csr"),
        ],
        ids=["lists of letters", "letters", "codes", "sparse"],
    )
    def test_one_column_a_letter(self, table):
        with pytest.raises(InvalidInputError, match=r"one column of sequences; X has 12\. Choose"):
            MKLClassifier(WD(3)).fit(table, Y)

    def test_numbers(self):
        with pytest.raises(InvalidInputError, match=r"row 0 holds no sequence.*str or bytes; got"):
            MKLClassifier(WD(3)).fit(np.ones((20, 1)), Y)
        with pytest.raises(InvalidInputError, match=r"row 0 holds no sequence.*got -1"):
            MKLClassifier(WD(3).on("x")).fit(FRAME, Y)
        with pytest.raises(InvalidInputError, match="reads str or bytes; X is a sparse matrix"):
            MKLClassifier(WD(3)).fit(sparse.csr_array(np.ones((20, 1))), Y)

    def test_columns(self):
        with pytest.raises(InvalidInputError, match=r"X has 2\. Choose it with kernel\.on"):
            MKLClassifier(WD(3)).fit(FRAME, Y)
        with pytest.raises(UnknownNameError, match=r"unknown column 'sequences'; did you mean"):
            MKLClassifier(WD(3).on("sequences")).fit(FRAME, Y)
        with pytest.raises(
            InvalidInputError, match=r"column 'sequence' of X cannot be read as num"
        ):
            MKLClassifier([WD(3).on("sequence"), RBF(width=1.0)]).fit(FRAME, Y)
        with pytest.raises(InvalidInputError, match="X has 2"):
            MKLClassifier(WD(3).on(["sequence", "x"])).fit(FRAME, Y)

    def test_tables_at_prediction(self):
        model = MKLClassifier(FAMILIES["both"]).fit(FRAME, Y)
        broken = FRAME.copy()
        broken["sequence"] = np.nan
        with pytest.raises(InvalidInputError, match=r"sequence of row 0 is missing \(nan\)"):
            model.predict(broken)
        broken["sequence"] = np.arange(20)
        with pytest.raises(InvalidInputError, match=r"row 0 holds no sequence.*got 0"):
            model.predict(broken)
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(FRAME.rename(columns={"sequence": "dna"}))

    def test_a_path_is_no_sequence(self):
        with pytest.raises(InvalidInputError, match="a single text"):
            MKLClassifier(WD(3)).fit("sequences.fa", Y)


class TestKernels:
    def test_what_is_no_kernel(self):
        with pytest.raises(InvalidInputError, match="got the class WeightedDegree"):
            MKLClassifier(WD).fit(X, Y)
        with pytest.raises(InvalidInputError, match=r"kernels must be a kernel.*got <bound method"):
            MKLClassifier(WD(3).by_length).fit(X, Y)
        with pytest.raises(UnknownNameError, match="unknown kernel 'weighted_degree'"):
            MKLClassifier("weighted_degree").fit(X, Y)

    def test_positions_that_are_not_there(self):
        message = r"positions 50-59' begins after the end of the sequences, which have 12 letters"
        with pytest.raises(InvalidInputError, match=message):
            MKLClassifier(WD(3, positions=(50, 60))).fit(X, Y)
        with pytest.raises(InvalidInputError, match=r"positions 50-59' has no parts"):
            MKLClassifier(WD(3, positions=(50, 60)).by_position()).fit(X, Y)

    def test_banks_and_combinations_that_do_not_fit(self):
        with pytest.raises(
            InvalidInputError, match=r"spectrum.*does not compare aligned sequences"
        ):
            MKLClassifier([WD(3), Spectrum(3)], bank="positional").fit(X, Y)
        with pytest.raises(InvalidInputError, match=r"'rbf.*on x' does not compare aligned"):
            MKLClassifier(FAMILIES["both"], bank="positional").fit(FRAME, Y)
        with pytest.raises(InvalidInputError, match=r"'weighted degree.*has no sparse features"):
            MKLClassifier(WD(3), bank="sparse").fit(X, Y)
        with pytest.raises(UnknownNameError, match="did you mean 'positional'"):
            MKLClassifier(WD(3), bank="position").fit(X, Y)
        with pytest.raises(InvalidInputError, match=r"'weighted degree.*combination='product'"):
            MKLClassifier(WD(3), combination="product").fit(X, Y)

    def test_other_banks_take_weighted_degree_kernels(self):
        truth = MKLClassifier(WD(3), bank="positional").fit(X, Y)
        for bank in ("dense", "lazy", "factored"):
            fit = MKLClassifier(WD(3), bank=bank).fit(X, Y)
            assert fit.objective_ == pytest.approx(truth.objective_, rel=2e-3)
        mixture = MKLClassifier(WD(3).by_length(), combination="polynomial_mixture", max_iter=20)
        assert mixture.fit(X, Y).predict(X).shape == Y.shape

    def test_a_failed_fit_leaves_the_model_as_it_was(self):
        model = MKLClassifier(WD(3)).fit(X, Y)
        before = model.decision_function(X)
        with pytest.raises(InvalidInputError):
            model.fit([*X[:-1], "A"], Y)
        assert_same_numbers(model.decision_function(X), before)
