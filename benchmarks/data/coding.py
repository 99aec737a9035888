"""From columns of text to numbers and sequences: what all routes to a data set share."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

Features = Any  # An array, a list of sequences, or a dictionary of views.


def code_table(name: str, frame: pd.DataFrame) -> np.ndarray:
    """Return the columns as numbers; what is missing is NaN."""
    if name == "vote":
        # Votes are 0 (no), 1 (yes) and one half (none).
        votes = frame.apply(lambda column: column.astype(object).map({"n": 0.0, "y": 1.0}))
        return votes.astype(float).fillna(0.5).to_numpy()
    if name == "splice":
        return code_bases(frame)
    if name == "mushroom" and frame.shape[1] == 22:
        # Unused categories must not become columns, so the text is taken.
        return pd.get_dummies(frame.drop(columns="stalk-root").astype(str)).to_numpy(float)
    return frame.apply(pd.to_numeric, errors="coerce").to_numpy(float)


def code_bases(table: pd.DataFrame) -> np.ndarray:
    """A, G, C, T as 1 to 4, as the IDA repository has them; other letters are missing values."""
    bases = {"A": 1.0, "G": 2.0, "C": 3.0, "T": 4.0}
    codes = {**bases, **{str(int(code)): code for code in bases.values()}}
    return single_letters(table).apply(lambda column: column.map(codes)).to_numpy(float)


def join_letters(table: pd.DataFrame) -> list[str]:
    """Return sequences from a table with one letter in a cell; names of rows are left out."""
    return ["".join(row) for row in single_letters(table).to_numpy()]


def single_letters(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns whose cells are single characters, as upper-case text."""
    text = table.apply(lambda column: column.astype(str).str.strip().str.upper())
    return text.loc[:, [bool((text[column].str.len() == 1).all()) for column in text]]


def name_classes(labels: Any, names: Mapping[str, str]) -> np.ndarray:
    """Return the labels as text by their names here; whole numbers lose their decimals."""
    out = []
    for label in np.asarray(labels).tolist():
        if isinstance(label, bytes):
            label = label.decode()
        text = f"{label:g}" if isinstance(label, int | float) else str(label).strip()
        out.append(names.get(text, text))
    return np.array(out)
