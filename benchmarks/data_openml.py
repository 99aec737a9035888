"""Data sets from OpenML, in the form the folder has them."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
import pandas as pd
from data_coding import Features, code_table, join_letters, name_classes
from data_specs import Spec
from sklearn.datasets import fetch_openml

# Views of mfeat, each a set of its own there.
_MFEAT = {
    "fac": "mfeat-factors",
    "fou": "mfeat-fourier",
    "kar": "mfeat-karhunen",
    "mor": "mfeat-morphological",
    "pix": "mfeat-pixel",
    "zer": "mfeat-zernike",
}
# Once it could not be reached, it is not tried for every set.
_unreachable: list[str] = []


def read_openml(name: str, spec: Spec) -> tuple[Features, np.ndarray]:
    """Return features and classes; OSError if OpenML cannot be reached or lacks the set."""
    if spec.openml is None:
        raise LookupError("not there")
    title, version = spec.openml
    if name == "mfeat":
        return _mfeat(version)
    bunch = _fetch(title, version, "selector" if name == "liver" else "default-target")
    labels = name_classes(bunch.target, spec.labels)
    if spec.kind == "sequences":
        return join_letters(bunch.data), labels
    if isinstance(bunch.data, pd.DataFrame):
        X = code_table(name, bunch.data)
    else:
        X = np.asarray(bunch.data.toarray(), dtype=float)
    if name in ("adult", "web"):
        # Training and test rows are together there.
        X, labels = X[: spec.rows], labels[: spec.rows]
    return X, labels


def _mfeat(version: int) -> tuple[Features, np.ndarray]:
    bunches = {key: _fetch(title, version) for key, title in _MFEAT.items()}
    views = {key: code_table(key, bunch.data) for key, bunch in bunches.items()}
    digits = np.asarray(bunches["fac"].target).astype(int)
    # Classes are 1 to 10 there.
    return views, name_classes(digits - digits.min(), {})


def _fetch(title: str, version: int, target: str = "default-target") -> Any:
    if _unreachable:
        raise OSError(_unreachable[0])
    try:
        return fetch_openml(
            title, version=version, target_column=target, as_frame="auto", n_retries=1, delay=0.1
        )
    except HTTPError:
        raise
    except URLError as error:
        _unreachable.append(f"OpenML cannot be reached ({error.reason})")
        raise OSError(_unreachable[0]) from error
