"""Links to other libraries need no network: the names are in files beside the documentation."""

from __future__ import annotations

import importlib.util

import pytest
from doc_pages import ROOT

FOLDER = ROOT / "docs" / "inventories"
WANTED = {
    "python": "pathlib.Path",
    "numpy": "numpy.ndarray",
    "scipy": "scipy.sparse.csr_array",
    "scikit-learn": "sklearn.svm.SVC",
    "pandas": "pandas.DataFrame",
    "matplotlib": "matplotlib.axes.Axes",
}


@pytest.fixture(scope="module")
def reduce():
    spec = importlib.util.spec_from_file_location("reduce_inventories", FOLDER / "reduce.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("project", "name"), WANTED.items())
def test_an_inventory_knows_the_names_that_are_linked_to(reduce, project, name):
    _, lines = reduce.read(FOLDER / f"{project}.inv")
    roles = {line.split(" ")[0]: line.split(" ")[1] for line in lines}
    assert roles[name] == "py:class"
    assert set(roles.values()) <= reduce.KEPT


def test_every_inventory_is_in_the_configuration_and_small():
    configuration = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    files = list(FOLDER.glob("*.inv"))
    assert {path.stem for path in files} == set(WANTED)
    assert all(f'"{path.stem}": "https://' in configuration for path in files)
    assert sum(path.stat().st_size for path in files) < 300_000


def test_reducing_keeps_classes_and_drops_methods(reduce, tmp_path, monkeypatch):
    monkeypatch.setattr(reduce, "HERE", tmp_path)
    head = "# Sphinx inventory version 2\n# Project: x\n# Version: 1\n# zlib\n"
    lines = ["x.A py:class 1 a.html#$ -", "x.A.m py:method 1 a.html#$ -", "x._b.C py:class 1 b -"]
    reduce.write("whole", head, lines)
    reduce.reduce("small", tmp_path / "whole.inv")
    assert reduce.read(tmp_path / "small.inv") == (head, lines[:1])
