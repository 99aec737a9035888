"""Write the model files that every later version must load.

``python tests/helpers/write_model_fixtures.py`` made what is in ``tests/fixtures``. Files of a
format are written once, by the version that brought it, and never again: an old file
that is written anew is not old. Another format or kind of model gets another name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelweave import BayesianMKLRegressor, MKLClassifier, MKLRegressor, save
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch, Spectrum, WeightedDegree
from kernelweave.model_files.header import FORMAT

FOLDER = Path(__file__).resolve().parents[1] / "fixtures"


def table():
    """24 patients: columns as lists, and a target of two classes."""
    rng = np.random.default_rng(3)
    y = np.arange(24) % 2
    age = np.round(50 + 10 * y + 8 * rng.normal(size=24), 1)
    dose = np.round(rng.normal(size=24) + y, 2)
    ward = [str(name) for name in rng.choice(["north", "south", "west"], 24)]
    return {"age": age.tolist(), "dose": dose.tolist(), "ward": ward}, y


def sequences():
    """20 short sequences; those of the second class begin with GGT."""
    rng = np.random.default_rng(4)
    y = np.arange(20) % 2
    texts = ["".join(rng.choice(list("ACGT"), 9)) for _ in y]
    return [("GGT" if c else "AAC") + text for c, text in zip(y, texts, strict=True)], y


def frame_model(library):
    columns, y = table()
    kernels = [
        RBF(width=1).on(["age", "dose"], StandardScaler()),
        Polynomial(degree=2).on("dose"),
        Linear().on("ward", OneHotEncoder(handle_unknown="ignore")),
    ]
    X = library.DataFrame(columns)
    return MKLClassifier(kernels).fit(X, y), X


def sequence_model():
    X, y = sequences()
    return MKLClassifier([Spectrum((1, 2)).by_length(), WeightedDegree(3)]).fit(X, y), X


def bayesian_model():
    columns, y = table()
    X = np.column_stack([columns["age"], columns["dose"]])
    batch = RBFBatch([[0, -1], [0, 1]], [1.0, 0.5], transformer=StandardScaler())
    return BayesianMKLRegressor([Linear(), batch], max_iter=10).fit(X, X[:, 1] + y), X


def regressor_model():
    """Written before there was `target_scale`: C and epsilon refer to the raw targets."""
    columns, y = table()
    X = np.column_stack([columns["age"], columns["dose"]])
    kernels = [RBF(width=1).on([0, 1], StandardScaler()), Linear().on(1)]
    return MKLRegressor(kernels, C=50.0, epsilon=5.0).fit(X, 300 + 40 * X[:, 1] + 20 * y), X


def pipeline_model():
    columns, y = table()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    steps = [("numbers", numbers, ["age", "dose"]), ("wards", OneHotEncoder(), ["ward"])]
    X = pd.DataFrame(columns)
    model = MKLClassifier([RBF(width=2), Linear().on([0, 1])], loss="logistic", normalize="center")
    return make_pipeline(ColumnTransformer(steps), model).fit(X, y), X


MODELS = {
    "pandas": lambda: frame_model(pd),
    "polars": lambda: frame_model(pl),
    "sequences": sequence_model,
    "bayesian": bayesian_model,
    "pipeline": pipeline_model,
    "regressor": regressor_model,
}


def answers(model, X):
    """What a model says of its training samples, as JSON has it."""
    ask = model.decision_function if hasattr(model, "decision_function") else model.predict
    return np.asarray(ask(X)).tolist()


def main():
    expected = FOLDER / f"model_v{FORMAT}_expected.json"
    if expected.exists():
        sys.exit(f"{expected} exists: these files are written once.")
    FOLDER.mkdir(exist_ok=True)
    found = {}
    for name, make in MODELS.items():
        model, X = make()
        save(model, FOLDER / f"model_v{FORMAT}_{name}.skops", about={"fixture": name})
        found[name] = answers(model, X)
    expected.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
