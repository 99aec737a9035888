"""The header of a model file: what it is, said without making the model."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelweave.errors import InvalidInputError, ModelFileError
from kernelweave.inspect.ranking import Ranking, find_estimator, is_bayesian

FORMAT = 1
_MOST_KERNELS = 10_000
_PACKAGES = ("kernelweave", "numpy", "scipy", "scikit-learn", "skops")
_CERTIFICATE = ("gap", "gap_kind", "objective", "dual_objective", "lower_bound", "converged")


@dataclass(frozen=True)
class Header:
    """What a model file says about itself.

    Attributes
    ----------
    format : int
        Version of the file format.
    model : str
        Class of the model, such as "Pipeline".
    estimator : str
        Class of the estimator with the kernel weights in it, such as "MKLClassifier"; "" if there
        is none to be found, as in an ensemble of several.
    versions : dict of str
        Of kernelweave, Python, NumPy, SciPy, scikit-learn and skops when the file was written.
    created : str
        When, in UTC.
    n_kernels : int
        How many kernels there are.
    kernels : list of dict
        ``{"name": ..., "weight": ...}`` of those with a weight, the heaviest first and no more than
        10,000; the mean weight where every class has its own.
    certificate : dict
        "gap", "gap_kind", "objective", "dual_objective", "converged", "n_iter" and "tol"; of a
        Bayesian model "lower_bound" and "change" (of the bound, in the last iteration).
    about : dict
        What :func:`save` was given.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier, save
    >>> from kernelweave.model_files import read_header
    >>> model = MKLClassifier().fit(*load_iris(return_X_y=True))
    >>> path = save(model, f"{tempfile.mkdtemp()}/iris.skops", about={"data": "iris"})
    >>> header = read_header(path)
    >>> header.model, header.n_kernels, header.certificate["converged"], header.about
    ('MKLClassifier', 7, True, {'data': 'iris'})
    """

    format: int
    model: str
    estimator: str
    versions: dict[str, str]
    created: str
    n_kernels: int
    kernels: list[dict[str, Any]]
    certificate: dict[str, Any]
    about: dict[str, Any]

    @classmethod
    def from_json(cls, text: bytes) -> tuple[Header, dict[str, str]]:
        """Return the header in a file, and the digests; raises `ValueError` if it is none.

        Entries that this version does not know are left out.
        """
        entries = json.loads(text)
        if not isinstance(entries, dict) or not isinstance(entries.get("format"), int):
            raise ValueError("it has no format number")
        if entries["format"] > FORMAT:
            versions = entries.get("versions")
            versions = versions if isinstance(versions, dict) else {}
            return cls(entries["format"], "", "", versions, "", 0, [], {}, {}), {}
        known = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {name: entries.get(name) for name in known}
        for name, kind in known.items():
            if type(values[name]).__name__ != str(kind).partition("[")[0]:
                raise ValueError(f"its entry {name!r} is missing or of the wrong kind")
        if not all(isinstance(version, str) for version in values["versions"].values()):
            raise ValueError("its versions are no text")
        digests = entries.get("digests")
        if not isinstance(digests, dict):
            raise ValueError("it has no digests")
        return cls(**values), digests


def describe(model: Any, about: Any) -> Header:
    """Return the header of a fitted model."""
    estimator = _estimator(model)
    versions = {package: metadata.version(package) for package in _PACKAGES}
    return Header(
        FORMAT,
        type(model).__name__,
        "" if estimator is None else type(estimator).__name__,
        {"python": platform.python_version(), **versions},
        datetime.now(UTC).isoformat(timespec="seconds"),
        0 if estimator is None else len(estimator.kernel_names_),
        [] if estimator is None else _kernels(estimator),
        {} if estimator is None else certificate_of(estimator),
        _checked_about(about),
    )


def _estimator(model: Any) -> Any:
    """The estimator with the weights; None if the model is fitted but no single one is in it."""
    if isinstance(model, type) or not isinstance(model, BaseEstimator):
        raise ModelFileError(
            "save takes a fitted estimator of kernelweave, or a fitted scikit-learn model such as "
            f"a Pipeline or a search with one inside; got {model!r}."
        )
    try:
        return find_estimator(model)
    except (NotFittedError, InvalidInputError):
        pass
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError) as error:
        raise ModelFileError(
            f"this {type(model).__name__} is not fitted, so there is nothing to save; call fit "
            "first."
        ) from error
    return None


def _kernels(estimator: Any) -> list[dict[str, Any]]:
    ranking, names = Ranking.of(estimator), estimator.kernel_names_
    return [
        {"name": str(names[k]), "weight": float(ranking.weights[k])}
        for k in ranking.used[:_MOST_KERNELS].tolist()
    ]


def certificate_of(estimator: Any) -> dict[str, Any]:
    """Return how good a fit is, as JSON can hold it."""
    known = [name for name in _CERTIFICATE if hasattr(estimator, f"{name}_")]
    found = {name: getattr(estimator, f"{name}_") for name in known}
    if is_bayesian(estimator):
        found["change"] = estimator.history_[-1].change
    found |= {"n_iter": estimator.n_iter_, "tol": estimator.tol}
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in found.items()}
    # JSON has neither infinity nor NaN.
    return {k: None if v in (np.inf, -np.inf) or v != v else v for k, v in plain.items()}


def _checked_about(about: Any) -> dict[str, Any]:
    if about is None:
        return {}
    try:
        if not isinstance(about, Mapping) or not all(isinstance(key, str) for key in about):
            raise TypeError(f"got {about!r}")
        kept: dict[str, Any] = json.loads(json.dumps(dict(about), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            "about must be a dict with text as keys and values that JSON can hold (text, finite "
            f"numbers, True, False, None, lists and dicts of these): {error}."
        ) from error
    return kept
