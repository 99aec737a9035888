"""Files that were damaged in any way are read or refused by an error that names them.

More examples by KERNELWEAVE_HARD=full.
"""

from __future__ import annotations

import io
import zipfile

import good_files
import model_file_kinds as kinds
import polars as pl
import pytest
from cut_fits import KERNELS, cut_short, resumed
from damaged_bytes import DEEDS, damaged, hard
from forged_model_files import HEADER, put_together
from hypothesis import given
from hypothesis import strategies as st
from same_numbers import assert_same_numbers
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from kernelweave import BayesianMKLClassifier, MKLClassifier, load, read_sequences, read_table, save
from kernelweave.errors import InvalidInputError, MemoryBudgetError, ModelFileError
from kernelweave.kernels import RBF, Linear
from kernelweave.model_files import read_header
from kernelweave.reading import read_matrix
from kernelweave.tables import TableEncoder, table_kernels

pytestmark = pytest.mark.filterwarnings("ignore")

TABLES = good_files.tables()


def read_or_refused(path, *readers):
    for reader in readers:
        try:
            reader(path)
        except (InvalidInputError, MemoryBudgetError) as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, tmp_path):
    readers = [read_table, read_matrix]
    if "sequence" in read_of(tmp_path / name, TABLES[name]).columns:
        readers.append(read_sequences)

    @hard(15)
    @given(DEEDS)
    def check(deeds):
        path = tmp_path / name
        path.write_bytes(damaged(TABLES[name], deeds))
        read_or_refused(path, *readers)

    check()


def read_of(path, data):
    path.write_bytes(data)
    return read_table(path)


def parts_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@st.composite
def changed_parts(draw, data):
    """The members of an archive, some of them damaged, gone, renamed or in the place of others."""
    parts = parts_of(data)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(parts)))
        what = draw(st.sampled_from(["damage", "damage", "damage", "drop", "copy", "rename"]))
        if what == "damage":
            parts[name] = damaged(parts[name], draw(DEEDS))
        elif what == "copy":
            parts[name] = parts[draw(st.sampled_from(sorted(parts)))]
        else:
            taken = parts.pop(name)
            if what == "rename":
                parts[draw(st.sampled_from(["x.npy", "7.d.npy", "a.b.npy", "x", name]))] = taken
        if not parts:
            break
    return parts


def archive(path, parts):
    with zipfile.ZipFile(path, "w") as out:
        for name, data in parts.items():
            out.writestr(name, data)


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith(".npz")])
def test_arrays_in_archives(name, tmp_path):
    """With the right check sums, as a forger would write them."""

    @hard(30)
    @given(changed_parts(TABLES[name]))
    def check(parts):
        archive(tmp_path / name, parts)
        read_or_refused(tmp_path / name, read_table, read_matrix)

    check()


@hard(80)
@given(DEEDS)
def test_kernel_files(tmp_path_factory, deeds):
    path = tmp_path_factory.getbasetemp() / "k.toml"
    path.write_bytes(damaged(good_files.TOML, deeds))
    read_or_refused(path, lambda path: table_kernels(path, encoder()))


def encoder():
    columns = {"age": [1.0, 2.0, 3.0], "gene_1": [1.0, 3.0, 2.0], "gene_2": [0.0, 1.0, 1.0]}
    texts = {"colour": ["a", "b", "a"], "site": ["ACGTACGTACGT", "ACGTACGTACGG", "CCGTACGTACGT"]}
    return TableEncoder().fit(pl.DataFrame(columns | texts))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    X, y = kinds.iris()
    model = MKLClassifier([RBF(width=1).on([0, 2], StandardScaler()), Linear()]).fit(X, y)
    path = save(model, tmp_path_factory.mktemp("models") / "good.skops")
    return path.read_bytes(), model.decision_function(X)


def test_model_files(model, tmp_path):
    data, values = model

    @hard(30)
    @given(DEEDS)
    def check(deeds):
        path = tmp_path / "m.skops"
        path.write_bytes(damaged(data, deeds))
        read_or_refused(path, read_header)
        try:
            again = load(path)
        except ModelFileError as error:
            assert str(path) in str(error)
        else:
            assert_same_numbers(again.decision_function(kinds.iris()[0]), values)

    check()


def test_model_files_with_the_right_digests(model, tmp_path):
    """What a forger writes is refused or made; nothing else is raised and nothing is run."""

    @hard(30)
    @given(changed_parts(model[0]))
    def check(parts):
        path = tmp_path / "m.skops"
        try:
            put_together(path, parts, honest=HEADER in parts)
        except (ValueError, TypeError):
            put_together(path, parts, honest=False)
        read_or_refused(path, read_header, load)

    check()


@pytest.mark.parametrize(
    "estimator",
    [
        MKLClassifier(KERNELS, solver="silp"),
        MKLClassifier(KERNELS, solver="spg"),
        BayesianMKLClassifier(KERNELS, max_iter=5),
    ],
    ids=["silp", "spg", "bayes"],
)
def test_checkpoints(estimator, tmp_path):
    X, y = load_iris(return_X_y=True)
    X, y = X[::6], y[::6]
    path = tmp_path / "c.npz"
    cut_short(estimator, path, 3, X, y)
    data = path.read_bytes()

    def fit(path):
        resumed(estimator, path, X, y)

    @hard(15)
    @given(changed_parts(data) | DEEDS)
    def check(change):
        if isinstance(change, dict):
            archive(path, change)
        else:
            path.write_bytes(damaged(data, change))
        read_or_refused(path, fit)

    check()
