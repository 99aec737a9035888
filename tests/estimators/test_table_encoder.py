"""Tables of any columns as numbers: roles, what comes out, what is said, and what is refused."""

from __future__ import annotations

import datetime
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import MKLClassifier, load, save
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear
from kernelweave.tables import TableEncoder, table_kernels

N = 40


def letters(rng, alphabet, length):
    return "".join(rng.choice(list(alphabet), length))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    age = rng.normal(50, 10, N).round(1)
    age[:4] = np.nan
    bmi = rng.normal(25, 3, N)
    bmi[5] = np.nan
    colour = rng.choice(["red", "blue", "green"], N).astype(object)
    colour[7] = None
    return pl.DataFrame(
        {
            "age": age,
            "bmi": bmi,
            "visits": rng.integers(0, 9, N),
            "colour": colour.tolist(),
            "smoker": rng.random(N) < 0.5,
            "site": [letters(rng, "ACGT", 12) for _ in range(N)],
            "read": [letters(rng, "acgt", rng.integers(8, 15)) for _ in range(N)],
            "peptide": [letters(rng, "ACDEFGHIKLMNPQRSTVWY", 9) for _ in range(N)],
            "patient": [f"P-{i:03d}" for i in range(N)],
            "born": [datetime.date(2000, 1, 1)] * N,
            "seen": [f"{1 + i % 28}/03/2021" for i in range(N)],
            "hospital": ["A"] * N,
            "notes": pl.Series([None] * N, dtype=pl.String),
            "sample_id": rng.permutation(N),
        },
        nan_to_null=True,
    )


def as_pandas(frame):
    return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})


@pytest.fixture(scope="module")
def encoder(table):
    return TableEncoder().fit(table)


def test_roles(encoder):
    assert encoder.roles_ == {
        **dict.fromkeys(["age", "bmi", "visits"], "number"),
        **dict.fromkeys(["colour", "smoker"], "category"),
        **dict.fromkeys(["site", "read", "peptide"], "sequence"),
        **dict.fromkeys(["patient", "born", "seen", "hospital", "notes", "sample_id"], "nothing"),
    }
    assert encoder.sequences_ == {
        "site": {"alphabet": "dna", "length": 12},
        "read": {"alphabet": "dna", "length": None},
        "peptide": {"alphabet": "protein", "length": 9},
    }


def test_what_comes_out(table, encoder):
    out = encoder.transform(table)
    colours = ["colour=blue", "colour=green", "colour=red", "colour=missing"]
    smokers = ["smoker=false", "smoker=true"]
    numbers = ["age", "age missing", "bmi", "visits", *colours, *smokers]
    assert out.columns == [*numbers, "site", "read", "peptide"]
    assert out.columns == encoder.get_feature_names_out().tolist()
    assert out.dtypes == [pl.Float64] * len(numbers) + [pl.String] * 3
    assert encoder.encoded_columns_["colour"] == colours
    assert encoder.encoded_columns_["patient"] == []
    assert out.null_count().sum_horizontal()[0] == 0
    assert out["age"][0] == np.median(table["age"].drop_nulls())
    assert out["age missing"].to_list() == [1.0] * 4 + [0.0] * (N - 4)
    np.testing.assert_array_equal(out.select(colours).to_numpy().sum(1), 1)
    assert out["colour=missing"].arg_max() == 7
    assert out["site"].equals(table["site"])
    np.testing.assert_array_equal(out["smoker=true"], table["smoker"].cast(float))


def test_notes_are_one_line_each(encoder):
    missing, categories, sequences, left_out = encoder.notes_
    assert missing.startswith("3 columns have missing values: age (4), bmi (1), colour (1); filled")
    assert "median" in missing
    assert categories == (
        "2 categorical columns one-hot encoded: colour (3 values), smoker (2 values)"
    )
    assert "3 columns of sequences: site (dna, 12 letters each)" in sequences
    assert left_out == (
        "left out: patient (different in every row), born (dates), seen (dates), hospital (the "
        "same in every row), notes (no values), sample_id (a number of its own for every row)"
    )


def test_pandas_gives_the_same(table, encoder):
    frame = as_pandas(table)
    frame["colour"] = frame["colour"].astype("category")
    twin = TableEncoder().fit(frame)
    assert twin.roles_ == encoder.roles_
    assert twin.notes_ == encoder.notes_
    assert twin.transform(frame).equals(encoder.transform(table))
    assert encoder.transform(frame).equals(encoder.transform(table))


@pytest.mark.parametrize(
    "values",
    [
        pd.array([1, None, 3, 5], dtype="Int64"),
        pd.array([1.0, None, 3.0, 5.0], dtype="Float64"),
        np.array([1, None, 3, 5], dtype=object),
        np.array([1, np.nan, 3, 5], dtype=np.float16),
        np.array([1, np.inf, 3, 5]),
    ],
)
def test_missing_numbers_of_every_make(values):
    out = TableEncoder().fit_transform(pd.DataFrame({"a": values}))
    assert out.rows() == [(1.0, 0.0), (3.0, 1.0), (3.0, 0.0), (5.0, 0.0)]


def test_infinite_values_are_told():
    frame = pl.DataFrame({"a": [1.0, float("inf"), 2.0]})
    assert "infinite values count as missing: a (1)" in TableEncoder().fit(frame).notes_


def test_other_order_and_more_columns(table, encoder):
    mixed = table.select(sorted(table.columns)).with_columns(extra=pl.lit(1))
    assert encoder.transform(mixed).equals(encoder.transform(table))
    # What is not used need not be there.
    assert encoder.transform(table.drop("patient", "born")).equals(encoder.transform(table))


def test_a_missing_column_names_the_closest(table, encoder):
    with pytest.raises(InvalidInputError, match=r"no column 'age'.*did you mean 'Age'"):
        encoder.transform(table.rename({"age": "Age"}))
    with pytest.raises(InvalidInputError, match=r"no column 'age'.*\(2 columns are missing\)"):
        encoder.transform(table.drop("age", "colour"))


def test_new_categories_are_zero_and_told_once(table, encoder):
    strange = table.with_columns(colour=pl.lit("mauve"), smoker=pl.lit("maybe"))
    with pytest.warns(UserWarning, match="colour .'mauve'., smoker .'maybe'.") as caught:
        out = encoder.transform(strange)
    assert len(caught) == 1
    for name in ("colour", "smoker"):
        assert out.select(encoder.encoded_columns_[name]).to_numpy().sum() == 0


def test_missing_categories_only_if_seen_in_training():
    encoder = TableEncoder().fit(pl.DataFrame({"c": ["a", "b", "a"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = encoder.transform(pl.DataFrame({"c": [None, "b"]}))
    assert out.columns == ["c=a", "c=b"]
    assert out.rows() == [(0.0, 0.0), (0.0, 1.0)]


def test_many_categories_are_joined():
    values = [f"v{i:02d}" for i in range(70) for _ in range(70 - i)]
    encoder = TableEncoder().fit(pl.DataFrame({"c": values, "x": np.arange(len(values))}))
    columns = encoder.encoded_columns_["c"]
    assert len(columns) == 50
    assert columns == [*(f"c=v{i:02d}" for i in range(49)), "c=other"]
    out = encoder.transform(pl.DataFrame({"c": ["v00", "v69", "new"], "x": [1, 2, 3]}))
    assert out["c=other"].to_list() == [0.0, 1.0, 1.0]
    assert encoder.notes_[0].endswith("c (70 values)")


@pytest.mark.parametrize(
    ("values", "role", "remark"),
    [
        (["1,234", "5,678", "1,234"], "category", "read as text, not as numbers: a ('1,234')"),
        ([f"text {i // 2 if i < 20 else i}" for i in range(200)], "nothing", "different texts"),
        (["WILLIAMSON", "JOHNSTON", "CRAWFORD", "ROBINSON"], "nothing", "different in every row"),
        (["ACGTACGTAC"] * 20 + ["ACGTACGTAA"] * 20, "category", "2 values"),
        (["AUGGCUAUGGCU", "AUGGCUAUGGCA", "AUGGCUAUGGCN"], "sequence", "rna, 12 letters"),
        (["ACGTACGT", "ACGTACGTT", None], "sequence", "several lengths"),
        (["yes", None, None], "category", "missing values: a (2)"),
        ([1.0, None, None], "number", "missing values"),
        ([[1], [2], [3]], "nothing", "lists"),
        ([b"x", b"y", b"x"], "nothing", "neither"),
        ([3, 1, 2], "number", ""),
        ([True, True, True], "nothing", "the same"),
    ],
)
def test_roles_in_doubt(values, role, remark):
    frame = pl.DataFrame({"a": values, "b": np.arange(len(values))})
    encoder = TableEncoder().fit(frame)
    assert encoder.roles_["a"] == role
    assert remark in " ".join(encoder.notes_)
    encoder.transform(frame)


def test_roles_can_be_said(table):
    roles = {"visits": "category", "age": "nothing", "patient": "category", "site": "nothing"}
    encoder = TableEncoder(roles=roles).fit(table)
    assert {name: encoder.roles_[name] for name in roles} == roles
    assert "age (as asked for)" in encoder.notes_[-1]
    assert "visits=3" in encoder.transform(table).columns
    codes = TableEncoder(roles={"a": "category"}).fit(pl.DataFrame({"a": [1.0, 2.0, None]}))
    assert codes.transform(pl.DataFrame({"a": [2, 1]})).rows() == [(0.0, 1.0, 0.0), (1.0, 0.0, 0.0)]
    text = TableEncoder(roles={"a": "number"}).fit(pl.DataFrame({"a": ["1", " 2", "x"]}))
    assert text.transform(pl.DataFrame({"a": ["4", None]}))["a"].to_list() == [4.0, 1.5]
    short = TableEncoder(roles={"a": "sequence"}).fit(pl.DataFrame({"a": ["AC", "GT", "AC"]}))
    assert short.sequences_["a"] == {"alphabet": "dna", "length": 2}


def test_wrong_parameters(table):
    with pytest.raises(InvalidInputError, match=r"'aeg'.*did you mean 'age'"):
        TableEncoder(roles={"aeg": "number"}).fit(table)
    with pytest.raises(ValueError, match="did you mean 'number'"):
        TableEncoder(roles={"age": "numbers"}).fit(table)
    with pytest.raises(InvalidInputError, match="dict"):
        TableEncoder(roles=["age"]).fit(table)
    with pytest.raises(InvalidInputError, match=r"no column 'row' \(id_column\)"):
        TableEncoder(id_column="row").fit(table)


def test_tables_of_no_use():
    with pytest.raises(InvalidInputError, match="no column of the table is of use: left out: a"):
        TableEncoder().fit(pl.DataFrame({"a": ["x", "x"]}))
    with pytest.raises(InvalidInputError, match="several columns named 'a'"):
        TableEncoder().fit(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))
    with pytest.raises(InvalidInputError, match="0 sample"):
        TableEncoder().fit(pl.DataFrame({"a": []}))


def test_numbers_that_are_none_at_prediction(encoder, table):
    with pytest.raises(InvalidInputError, match="'age' held numbers in training; got 'old'"):
        encoder.transform(table.with_columns(age=pl.lit("old")))
    text = encoder.transform(table.with_columns(age=pl.lit(" 31.5 ")))
    assert text["age"].to_list() == [31.5] * N
    empty = encoder.transform(table.with_columns(age=pl.lit(None)))
    assert empty["age missing"].to_list() == [1.0] * N


def test_the_column_of_ids_passes_untouched(table):
    encoder = TableEncoder(id_column="sample_id").fit(table)
    out = encoder.transform(table)
    assert out.columns[-1] == "sample_id"
    assert out["sample_id"].equals(table["sample_id"])
    assert encoder.roles_["sample_id"] == "id"


def test_names_stay_different():
    frame = pl.DataFrame(
        {"c": ["a", "b", "a"], "c=a": [1, 2, 3], "x": [None, 1, 2], "x missing": [1, 2, 3]}
    )
    out = TableEncoder().fit_transform(frame)
    assert out.columns == ["c=a", "c=b", "c=a (2)", "x", "x missing", "x missing (2)"]


def test_missing_sequences_are_similar_to_none(table):
    gap = table.with_columns(
        site=pl.when(pl.arange(N) > 0).then("site"), read=pl.when(pl.arange(N) > 0).then("read")
    )
    encoder = TableEncoder().fit(gap)
    out = encoder.transform(gap)
    assert (out["site"][0], out["read"][0]) == ("X" * 12, "X")
    model = MKLClassifier(table_kernels("default", encoder)).fit(out, np.arange(N) % 2)
    assert np.isfinite(model.decision_function(out)).all()


def test_state_is_plain_and_survives(encoder, table):
    def plain(value):
        if isinstance(value, dict):
            return all(plain(key) and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(map(plain, value))
        return value is None or type(value) in (str, int, float, bool, np.ndarray)

    for name, value in vars(encoder).items():
        assert plain(value), name
    again = pickle.loads(pickle.dumps(encoder))
    assert again.transform(table).equals(encoder.transform(table))
    assert clone(encoder).get_params() == {"roles": None, "id_column": None}


def test_in_a_pipeline_with_mixed_kernels(table):
    y = np.arange(N) % 2
    X = table.with_columns(age=pl.Series(y * 2.0) + pl.Series(np.linspace(0, 1, N)))
    train, test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
    encoder = TableEncoder().fit(train)
    kernels = table_kernels("default", encoder)
    model = Pipeline([("table", TableEncoder()), ("model", MKLClassifier(kernels))])
    model.fit(train, y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.score(test, y_test) > 0.7
        scores = model.decision_function(test)
        np.testing.assert_allclose(scores, model.decision_function(as_pandas(test)))


@parametrize_with_checks([TableEncoder()])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_very_many_columns_are_encoded_as_few_are():
    rng = np.random.default_rng(5)
    width = 20_000
    values = rng.normal(size=(12, width)).round(3)
    values[rng.random(values.shape) < 0.01] = np.nan
    values[3, ::1000], values[:, 7], values[:, 8] = np.inf, np.nan, 2.5
    wide = pl.DataFrame({f"g{j}": values[:, j] for j in range(width)}).with_columns(
        pl.Series("colour", ["red", "blue"] * 6),
        pl.Series("count", np.arange(12) % 5),
        pl.Series("id", np.arange(12)),
        pl.Series("letters", [letters(rng, "ACGT", 12) for _ in range(12)]),
    )
    encoder = TableEncoder(roles={"g3": "category"}).fit(wide)
    encoded = encoder.transform(wide)
    some = [*(f"g{j}" for j in range(10)), "g19000", "colour", "count", "id", "letters"]
    few = TableEncoder(roles={"g3": "category"}).fit(wide.select(some))
    expected = few.transform(wide.select(some))
    assert encoded.select(expected.columns).equals(expected)
    assert encoder.encoded_columns_ | few.encoded_columns_ == encoder.encoded_columns_
    assert encoder.notes_[1:] == [
        "infinite values count as missing: g0 (1), g1000 (1), g2000 (1), g3000 (1), g4000 (1), "
        "g5000 (1), ... (20 in all)",
        *few.notes_[2:],
    ]
    numbers = [name for name in wide.columns if encoder.roles_[name] == "number"]
    known = wide.select(numbers).to_numpy()
    known[np.isinf(known)] = np.nan
    filled = np.where(np.isnan(known), np.nanmedian(known, axis=0), known)
    np.testing.assert_allclose(encoded.select(numbers).to_numpy(), filled, rtol=1e-12)


def test_very_many_columns_are_fitted_by_name_in_any_order_and_come_back(tmp_path):
    rng = np.random.default_rng(6)
    width = 3000
    y = np.arange(20) % 2
    values = rng.normal(size=(20, width)) + y[:, None]
    names = [f"g{j}" for j in range(width)]
    frame = pl.from_numpy(values, schema=names, orient="row")
    by_name = RBF(gamma=1e-4).on(names)
    turned = by_name(frame, pl.DataFrame(frame.get_columns()[::-1]))
    model = MKLClassifier([by_name, Linear().on(slice("g5", "g9"), StandardScaler())])
    model.fit(frame, y)
    loaded = load(save(model, tmp_path / "wide.skops"))
    np.testing.assert_allclose(turned, by_name(frame), rtol=1e-9)
    decided = model.decision_function(frame)
    np.testing.assert_allclose(loaded.decision_function(frame), decided, rtol=1e-9)
    assert (model.predict(frame) == y).all()
