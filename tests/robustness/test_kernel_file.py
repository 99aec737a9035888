"""Kernels for tables: views, families, and kernel files, right and wrong."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Samples, Spectrum, resolve, unique_names
from kernelweave.tables import TableEncoder, parse_views, read_kernel_file, table_kernels

N = 30


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "age": rng.normal(50, 10, N),
            "colour": rng.choice(["red", "blue", "green"], N),
            "gene_1": rng.normal(size=N),
            "gene_2": rng.normal(size=N),
            "hospital": ["A"] * N,
            "site": ["".join(rng.choice(list("ACGT"), 10)) for _ in range(N)],
            "row": np.arange(N),
        }
    )


@pytest.fixture(scope="module")
def encoder(table):
    return TableEncoder(id_column="row").fit(table)


@pytest.fixture(scope="module")
def plain(table):
    """No sequences, no ids."""
    return TableEncoder().fit(table.drop("site", "row"))


def bound(kernels, encoder, table):
    return resolve(kernels, Samples(encoder.transform(table)))


def names(kernels, encoder, table):
    return unique_names(bound(kernels, encoder, table))


# Views

COLUMNS = ["age", "sex", "bmi", "gene_1", "gene_2", "a:b", "x[1]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v=age,sex", ["age", "sex"]),
        (" v = sex , age, sex ", ["sex", "age"]),
        ("v=gene_*", ["gene_1", "gene_2"]),
        ("v=gene_[2-9],?ge", ["gene_2", "age"]),
        ("v=age:bmi", ["age", "sex", "bmi"]),
        ("v=gene_2:", ["gene_2", "a:b", "x[1]"]),
        ("v=:sex", ["age", "sex"]),
        ("v=a:b,x[1]", ["a:b", "x[1]"]),  # Names go before ranges and patterns.
        ("v=*", COLUMNS),
        ("rest=*", COLUMNS),
    ],
)
def test_columns_of_a_view(text, expected):
    (columns,) = parse_views([text], COLUMNS).values()
    assert columns == expected


def test_several_views_and_the_rest():
    views = parse_views(["rest=*", "clinical=age:bmi", "genes=gene_*", "both=age,gene_1"], COLUMNS)
    assert list(views) == ["rest", "clinical", "genes", "both"]
    assert views["rest"] == ["a:b", "x[1]"]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["age,sex"], "NAME=COLUMNS"),
        (["=age"], "NAME=COLUMNS"),
        (["v="], "has no columns"),
        (["v=,"], "has no columns"),
        (["v=aeg"], "view 'v': the table has no column 'aeg'; did you mean 'age'?"),
        (["v=AGE"], "did you mean 'age'?"),
        (["v=age:bmj"], "did you mean 'bmi'?"),
        (["v=bmi:age"], "comes after"),
        (["v=protein_*"], "no column matches 'protein_*'. Columns: age, sex"),
        (["v=age", "v=sex"], "given twice"),
        (["all=*", "rest=*"], "take every column"),
    ],
)
def test_wrong_views(texts, words):
    with pytest.raises(InvalidInputError) as caught:
        parse_views(texts, COLUMNS)
    assert words in str(caught.value)


# Families


def test_a_family_on_a_plain_table(plain, table):
    assert names(table_kernels("default", plain), plain, table)[:3] == [
        "linear",
        "polynomial(degree=2, gamma=0.166667)",
        "rbf(width=0.612372)",
    ]


def test_simplemkl_looks_at_columns_with_all_values_of_a_category(plain, table):
    found = names(table_kernels("simplemkl", plain), plain, table)
    assert len(found) == 13 * (1 + 4)
    assert found[0] == "rbf(width=0.125)"
    on_one = {name.partition(" on ")[2] for name in found[13:]}
    assert on_one == {"age", "colour", "gene_1", "gene_2"}
    assert "polynomial(degree=1) on colour" in found


def test_kernels_of_a_family_are_those_of_the_library(plain, table):
    """The scaler in front and the groups change names, not numbers."""
    out = plain.transform(table)
    family = bound(table_kernels("simplemkl", plain), plain, table)
    kernels = dict(zip(unique_names(family), family, strict=True))
    by_hand = {
        "rbf(width=2)": RBF(width=2.0).on(slice(None), StandardScaler()),
        "rbf(width=2) on gene_2": RBF(width=2.0).on("gene_2", StandardScaler()),
        "rbf(width=2) on colour": RBF(width=2.0).on(slice(1, 4), StandardScaler()),
    }
    for name, expected in by_hand.items():
        np.testing.assert_allclose(kernels[name](out), expected(out), atol=1e-12)


def test_sequences_and_matrices_beside_the_numbers(encoder, table):
    kernels = table_kernels("rbf", encoder, matrices={"network": np.eye(N)})
    assert names(kernels, encoder, table) == [
        "rbf(gamma=0.166667) on all numbers",
        *(f"spectrum(k={k}) on site" for k in (2, 4, 6)),
        *(f"weighted degree(degree={d}) on site" for d in (2, 6, 10)),
        "network",
    ]


def test_views_are_what_kernels_are_called_by(encoder, table):
    views = parse_views(["clinical=age,colour,hospital", "genes=gene_*", "dna=site"], table.columns)
    kernels = table_kernels("linear", encoder, views)
    assert names(kernels, encoder, table)[:4] == [
        "linear on clinical",
        "linear on genes",
        "spectrum(k=2) on dna",
        "spectrum(k=4) on dna",
    ]
    # Of views whole families look at views alone.
    assert (
        len(bound(table_kernels("simplemkl", encoder, {"genes": ["gene_1"]}), encoder, table)) == 13
    )
    found = names(table_kernels("simplemkl", encoder, {"genes": ["gene_1", "age"]}), encoder, table)
    assert len(found) == 13 and all(name.endswith(" on genes") for name in found)


def test_features_of_a_product(plain, table):
    kernels = table_kernels("features", plain)
    assert names(kernels, plain, table) == ["age", "colour", "gene_1", "gene_2"]
    model = MKLClassifier(kernels, combination="product").fit(
        plain.transform(table), np.arange(N) % 2
    )
    assert len(model.weights_) == 4
    views = {"genes": ["gene_1", "gene_2"], "rest": ["age", "colour"]}
    assert names(table_kernels("features", plain, views), plain, table) == ["genes", "rest"]


def test_a_refitted_encoder_with_other_values_is_no_silent_mistake(table):
    encoder = TableEncoder().fit(table.drop("site", "row"))
    kernels = table_kernels("simplemkl", encoder)
    part = table.drop("site", "row").filter(pl.col("colour") != "green")
    other = TableEncoder().fit(part)
    with pytest.raises(ValueError, match="colour=green"):
        bound(kernels, other, part)


def test_what_table_kernels_refuses(encoder, plain, table, tmp_path):
    with pytest.raises(InvalidInputError, match=r"did you mean 'simplemkl'.*\.toml"):
        table_kernels("simpelmkl", encoder)
    with pytest.raises(InvalidInputError, match="no such file"):
        table_kernels(tmp_path / "kernels.toml", encoder)
    with pytest.raises(InvalidInputError, match="id_column='row'"):
        table_kernels("rbf", plain, matrices={"network": np.eye(N)})
    with pytest.raises(InvalidInputError, match=r"view 'v'.*did you mean 'gene_1'"):
        table_kernels("rbf", plain, views={"v": ["gen_1"]})
    with pytest.raises(InvalidInputError, match=r"view 'v' has no column of use: .*hospital"):
        table_kernels("rbf", plain, views={"v": ["hospital"]})


# Kernel files

EXAMPLE = """
[views]
clinical = ["age", "colour"]
genes = "gene_*"

[[kernel]]                 # 1: one for each width
kind = "rbf"
width = [0.5, 2]
view = ["clinical", "genes"]

[[kernel]]                 # 2: one for each column
kind = "linear"
each = true

[[kernel]]                 # 3
kind = "polynomial"
degree = [2, 3]
gamma = [0.5, 1]
columns = ["age", "gene_*"]
scale = false

[[kernel]]                 # 4
kind = "rbf"
gamma = 0.1
columns = "age:gene_1"
name = "the left"

[[kernel]]                 # 5
kind = "spectrum"
k = [2, 3]
normalize = true

[[kernel]]                 # 6
kind = "weighted_degree"
degree = 4
shift = 1
reverse_complement = true
columns = "site"

[[kernel]]                 # 7
kind = "family"
family = "default"
view = "genes"
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "kernels.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_a_whole_kernel_file(write, encoder, table):
    kernels = table_kernels(write(EXAMPLE), encoder, matrices={"network": np.eye(N)})
    found = names(kernels, encoder, table)
    poly = [f"polynomial(degree={d}{g})" for d in (2, 3) for g in (", gamma=0.5", "")]
    assert found[:-8] == [
        *(f"rbf(width={w}) on clinical" for w in ("0.5", "2")),
        *(f"rbf(width={w}) on genes" for w in ("0.5", "2")),
        *(f"linear on {column}" for column in ("age", "colour", "gene_1", "gene_2")),
        *(f"{kernel} on age, gene_*" for kernel in poly),
        "rbf(gamma=0.1) on the left",
        *(f"spectrum(k={k}, normalized) on site" for k in (2, 3)),
        "weighted degree(degree=4, shift=1, both strands) on site",
    ]
    assert found[-8] == "linear on genes"
    assert found[-1] == "network"


def test_values_of_kernels_from_a_file(write, encoder, table):
    text = """
    [[kernel]]
    kind = "rbf"
    width = 2
    columns = ["gene_2", "age"]
    [[kernel]]
    kind = "rbf"
    width = 2
    columns = ["gene_*"]
    scale = false
    [[kernel]]
    kind = "spectrum"
    k = 3
    """
    out = encoder.transform(table)
    made = table_kernels(write(text), encoder)
    by_hand = [
        RBF(width=2).on(["gene_2", "age"], StandardScaler()),
        RBF(width=2).on(["gene_1", "gene_2"]),
        Spectrum(3).on("site"),
    ]
    for kernel, expected in zip(made, by_hand, strict=True):
        np.testing.assert_allclose(kernel(out), expected(out), atol=1e-12)


def test_views_from_the_command_line_are_known_in_the_file(write, encoder, table):
    text = '[[kernel]]\nkind = "linear"\nview = "mine"\n'
    kernels = table_kernels(write(text), encoder, {"mine": ["age"]})
    assert names(kernels, encoder, table) == ["linear on mine"]
    both = write(text + '[views]\nmine = ["age"]\n')
    with pytest.raises(InvalidInputError, match="view 'mine' is also given"):
        table_kernels(both, encoder, {"mine": ["age"]})


def test_a_fit_with_a_kernel_file(write, table):
    X = table.drop("row")
    y = np.where(X["gene_1"] > 0, "high", "low")
    kernels = table_kernels(write(EXAMPLE), TableEncoder().fit(X))
    model = make_pipeline(TableEncoder(), MKLClassifier(kernels)).fit(X, y)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[kernel]]\nkind = "rbf\n', ["not right TOML", "line 2", "column"]),
        ("kernels = 1\n", ["unknown key 'kernels'; did you mean 'kernel'"]),
        ("[kernel]\nkind = 'rbf'\n", ["[[kernel]], in double brackets"]),
        ("[views]\na = ['age']\n", ["has no kernels"]),
        ("[[kernel]]\nwidth = 1\n", ["[[kernel]] number 1", "has no kind", "'rbf'"]),
        ("[[kernel]]\nkind = 3\n", ["number 1", "unknown kind 3"]),
        ("[[kernel]]\nkind = ['rbf']\n", ["number 1", "unknown kind"]),
        (
            "[[kernel]]\nkind = 'linear'\n[[kernel]]\nkind = 'polynom'\n",
            ["number 2", "did you mean 'polynomial'"],
        ),
        ("[[kernel]]\nkind = 'simplemkl'\n", ['kind = "family" and family = "simplemkl"']),
        ("[[kernel]]\nkind = 'precomputed'\n", ["--kernel-matrix NAME=FILE"]),
        ("[[kernel]]\nkind = 'rbf'\nwidht = 1\n", ["unknown key", "'widht'", "'width'"]),
        ("[[kernel]]\nkind = 'linear'\nwidth = 1\n", ["key of kind 'linear' 'width'"]),
        ("[[kernel]]\nkind = 'rbf'\n", ["number 1", "exactly one of gamma and width"]),
        (
            "[[kernel]]\nkind = 'rbf'\nwidth = 1\ngamma = 1\n",
            ["number 1", "exactly one of gamma and width"],
        ),
        (
            "[[kernel]]\nkind = 'rbf'\nwidth = 'wide'\n",
            ["number 1", "width", "number > 0", "'wide'"],
        ),
        ("[[kernel]]\nkind = 'rbf'\nwidth = [1, -2]\n", ["width", "number > 0", "-2"]),
        ("[[kernel]]\nkind = 'rbf'\nwidth = []\n", ["width must be", "[]"]),
        ("[[kernel]]\nkind = 'rbf'\nwidth = true\n", ["width", "must be", "True"]),
        ("[[kernel]]\nkind = 'rbf'\nwidth = inf\n", ["width", "must be", "inf"]),
        (
            "[[kernel]]\nkind = 'polynomial'\ndegree = 1.5\n",
            ["degree", "must be an integer", "1.5"],
        ),
        ("[[kernel]]\nkind = 'polynomial'\n", ["needs degree"]),
        ("[[kernel]]\nkind = 'linear'\neach = 'yes'\n", ["each must be true or false"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 3\n", ["columns must be text in quotes, or a"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = []\n", ["columns must be"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 'a'\nview = 'b'\n", ["do not go together"]),
        ("[[kernel]]\nkind = 'linear'\neach = true\nname = 'b'\n", ["do not go together"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 'aeg'\n", ["number 1", "did you mean 'age'"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 'row'\n", ["no column 'row'"]),
        ("[[kernel]]\nkind = 'linear'\nview = 'genes'\n", ["unknown view 'genes'"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 'site'\n", ["numbers or categories", "spectrum"]),
        ("[[kernel]]\nkind = 'spectrum'\nk = 3\ncolumns = 'age'\n", ["looks at sequences"]),
        ("[[kernel]]\nkind = 'spectrum'\nk = 99\n", ["number 1", "k must be an integer from 1"]),
        ("[[kernel]]\nkind = 'spectrum'\nk = 2\nalphabet = 'dnaa'\n", ["alphabet", "'dna'"]),
        ("[[kernel]]\nkind = 'spectrum'\nk = 2\nscale = true\n", ["'scale'"]),
        ("[[kernel]]\nkind = 'family'\nfamily = 'defualt'\n", ["did you mean 'default'"]),
        ("[[kernel]]\nkind = 'linear'\ncolumns = 'hospital'\n", ["no column of use"]),
        ("views = 3\n[[kernel]]\nkind = 'linear'\n", ["views must be a table"]),
        ("[views]\na = 3\n[[kernel]]\nkind = 'linear'\n", ["view 'a' must be a list of columns"]),
        ("[views]\na = ['aeg']\n[[kernel]]\nkind = 'linear'\n", ["view 'a'", "'age'"]),
        (b"\xff\xfe\x00", ["not right TOML"]),
        ("a = " + "[" * 5000, ["TOML"]),
        ("", ["is empty"]),
    ],
)
def test_wrong_kernel_files(write, encoder, text, words):
    path = write(text)
    with pytest.raises(InvalidInputError) as caught:
        table_kernels(path, encoder)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


VALUES = st.sampled_from(
    ['"rbf"', '"linear"', '"spectrum"', '"family"', '"default"', '"age"', '"site"', '"x"', "1",
     "0", "-1.5", "true", "[1, 2]", '["age", "gene_*"]', "[]", "{}", "1979-05-27", "nan"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["kind", "width", "gamma", "k", "degree", "columns", "view", "each", "scale", "name", "family"]
)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3), st.binary(max_size=8))
def test_any_file_is_read_or_refused(write, encoder, entries, junk):
    lines = ["[[kernel]]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for e in entries]
    for content in ("".join(lines).encode() or b"\n", junk + "".join(lines).encode() or b"\n"):
        path = write(content)
        try:
            assert table_kernels(path, encoder)
        except InvalidInputError as error:
            assert str(path) in str(error)


def test_the_file_alone_can_be_looked_at(write):
    file = read_kernel_file(write(EXAMPLE))
    assert len(file.kernels) == 7
    assert file.views == {"clinical": ["age", "colour"], "genes": ["gene_*"]}
