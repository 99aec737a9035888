"""Model files and checkpoints that a forger has changed are refused, or what they hold works.

A few mutations in every run, in one process; 5,000 by KERNELWEAVE_HARD=full.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from collections import Counter

import model_file_kinds as kinds
import numpy as np
import pandas as pd
import polars as pl
import pytest
import write_model_fixtures as fixtures
from cut_fits import KERNELS, cut_short, resumed
from forged_model_files import SCHEMA, forge, parts_of, put_together, several, value
from mutated_files import arrays_of, bytes_of, run, sites, solvers, write_arrays

from kernelweave import MKLClassifier, load, save
from kernelweave.errors import InvalidInputError, ModelFileError

FULL = os.environ.get("KERNELWEAVE_HARD") == "full"

pytestmark = pytest.mark.filterwarnings("ignore")


def old_models(folder):
    columns, _ = fixtures.table()
    numbers = np.column_stack([columns["age"], columns["dose"]])
    samples = {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "pipeline": pd.DataFrame(columns),
        "sequences": fixtures.sequences()[0],
        "bayesian": numbers,
        "regressor": numbers,
    }
    for name, X in samples.items():
        shutil.copy(fixtures.FOLDER / f"model_v1_{name}.skops", folder / f"v1 {name}.skops")
        (folder / f"v1 {name}.pickle").write_bytes(pickle.dumps(X))


def new_models(folder):
    for name in kinds.KINDS:
        model, X = kinds.fitted(name)
        save(model, folder / f"model {name}.skops")
        (folder / f"model {name}.pickle").write_bytes(pickle.dumps(X))


def checkpoints(folder, names):
    every = solvers()
    for name in names or every:
        estimator, X, y = every[name]
        cut_short(estimator, folder / f"{name}.npz", 3, X, y)


def test_mutations(tmp_path):
    """No process dies, and no error is one that Python or a library raised by itself.

    Of scikit-learn's own parts only the first is promised.
    """
    old_models(tmp_path)
    if FULL:
        new_models(tmp_path)
    checkpoints(tmp_path, None if FULL else ["silp", "spicy", "bayes"])
    found = run(tmp_path, 5000 if FULL else 36)
    counts = Counter(came for _, came in found)
    print(json.dumps(counts, indent=1))
    assert not [pair for pair in found if pair[1].startswith(("BARE", "DIED"))]
    # The mutations are no mere noise: much of it is found, and much does not matter.
    assert min(counts["refused"], counts["works"]) > len(found) // 8


# What crashed a process once


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        name: save(kinds.fitted(name)[0], folder / f"{name}.skops")
        for name in ("sequences", "batch", "csr", "classifier")
    }


def changed(saved, there, kind, attribute, new):
    """Give every object of a class, named by the end of its name, another attribute."""

    def change(schema):
        hits = 0
        for _, _, node in sites(schema):
            if node["__loader__"] == "ObjectNode" and node["__class__"] == kind:
                if "content" in node["content"] and node["content"]["__loader__"] == "DictNode":
                    content = node["content"]
                    if attribute not in content["content"]:
                        content["key_types"]["content"].append(content["key_types"]["content"][0])
                    content["content"][attribute] = new
                else:
                    state = json.loads(node["content"]["content"])
                    node["content"]["content"] = json.dumps(state | {attribute: new})
                hits += 1
        assert hits

    return forge(saved, there, change)


@pytest.mark.parametrize(
    ("file", "kind", "attribute", "new", "words"),
    [
        ("sequences", "WeightedDegree", "degree", value(0), "degree must be an integer from 1"),
        ("sequences", "WeightedDegree", "degree", value(10**6), "degree must be an integer from 1"),
        ("sequences", "Spectrum", "k", value(0), "k must be an integer from 1"),
        ("sequences", "Spectrum", "positions", several(-100_000, 100_000), "positions must be two"),
        ("sequences", "WeightedDegree", "positions", several(-100_000, 100_000), "positions must"),
        ("sequences", "WeightedDegree", "_length", value(10**6), "sequences of length 1000000"),
        ("sequences", "Alphabet", "letters", "A" * 200, "2 to 64 different ASCII letters"),
        ("classifier", "Block", "indices", value([0, 10**6]), "columns from 0 to 3"),
        ("classifier", "RBF", "form", 1.0, "'form': it is a method"),
        ("classifier", "ComputedOperator", "block", value(1), "'block': it is a method"),
        ("classifier", "MKLClassifier", "kernel_names_", value(["a"]), "'kernel_names_': it is"),
    ],
)
def test_values_that_no_constructor_takes(file, kind, attribute, new, words, saved, tmp_path):
    path = changed(saved[file], tmp_path / "forged.skops", kind, attribute, new)
    with pytest.raises(ModelFileError, match=rf"forged.skops' cannot be loaded: .*{words}"):
        load(path)


@pytest.mark.parametrize("shift", [5, 10**6, -7])
def test_a_batch_that_reads_beyond_its_table(shift, saved, tmp_path):
    """Also where the table and the columns in it come along, as nothing writes them."""
    there = tmp_path / "forged.skops"
    parts = parts_of(saved["batch"])
    schema = json.loads(parts[SCHEMA])
    batch = next(n for _, _, n in sites(schema) if n.get("__class__") == "RBFBatch")
    columns = batch["content"]["content"]["columns"]["file"]
    array = np.load(io.BytesIO(parts[columns]))
    there_too = next(n for _, _, n in sites(schema) if n.get("__class__") == "GaussianOperator")[
        "content"
    ]
    for name, made in (("table", np.zeros((2, 75))), ("columns", array + np.int32(shift))):
        node = {**batch["content"]["content"]["columns"], "file": f"{name}.npy", "__id__": name}
        parts[f"{name}.npy"] = bytes_of(made)
        there_too["content"][name] = node
        there_too["key_types"]["content"].append(there_too["key_types"]["content"][0])
    parts[SCHEMA] = json.dumps(schema).encode()
    X = kinds.iris()[0]
    good = load(saved["batch"]).decision_function(X)
    np.testing.assert_array_equal(load(put_together(there, parts)).decision_function(X), good)
    parts[columns] = bytes_of(array + np.int32(shift))
    with pytest.raises(ModelFileError, match="columns of RBFBatch must be"):
        load(put_together(there, parts))


def test_a_sparse_matrix_with_indices_out_of_range(saved, tmp_path):
    parts = parts_of(saved["csr"])
    name = next(name for name in parts if name.endswith(".npz"))
    with np.load(io.BytesIO(parts[name])) as file:
        arrays = dict(file)
    arrays["indices"][0] = 10**6
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path = put_together(tmp_path / "forged.skops", {**parts, name: buffer.getvalue()})
    with pytest.raises(ModelFileError, match=r"cannot be loaded: .*a sparse matrix .* is damaged"):
        load(path)


# Checkpoints


@pytest.fixture(scope="module")
def iris():
    X, y = kinds.iris()
    return X[::3], y[::3]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("0.alpha", lambda a: np.full_like(a, np.nan), "'alpha' must be from -1e.100 .*got nan"),
        ("0.alpha", lambda a: np.full_like(a, np.inf), "'alpha' must be .*got inf"),
        ("0.alpha", lambda a: a[:, :-1], "'alpha' must be an array of float64 .3 x 25."),
        ("0.alpha", lambda a: np.tile(a, (1, 9)), "'alpha' must be an array of float64"),
        ("0.alpha", lambda a: a.astype(np.float32), "got shape .3, 25. of float32"),
        ("0.d", lambda d: -d - 1, "'d' must be from 0"),
        ("0.d", lambda d: d[:2], "'d' must be an array of float64 .4."),
        ("0.C", lambda C: C * np.nan, "'C' must be from 0"),
        ("0.intercept", lambda b: b[:1], "'intercept' must be an array"),
        ("0.record.gap", lambda gap: np.asarray("x"), "'gap' must be an array of float64"),
        ("0.extra.inner_tol", lambda tol: -tol, "'inner_tol' must be from"),
    ],
)
def test_checkpoints_with_numbers_that_no_fit_leaves(name, change, words, iris, tmp_path):
    path = tmp_path / "forged.npz"
    model = MKLClassifier(KERNELS, solver="silp", tol=1e-9)
    cut_short(model, path, 2, *iris)
    arrays = arrays_of(path)
    write_arrays(path, {**arrays, name: change(arrays[name])})
    with pytest.raises(InvalidInputError, match=f"forged.npz' cannot be gone on with: .*{words}"):
        resumed(model, path, *iris)
