"""Fitted models into files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelweave.archive import why_no_place, write_archive
from kernelweave.errors import ModelFileError
from kernelweave.model_files.header import describe
from kernelweave.model_files.schema import SCHEMA, SchemaWriter


def save(
    model: Any, path: str | os.PathLike[str], *, about: Mapping[str, Any] | None = None
) -> Path:
    """Save a fitted model to a file that :func:`load` opens without running code from it.

    The file takes the place of an older one in one step: a save that fails leaves that as it was.
    Callbacks and `warm_start_from` are not part of a model and are left out.

    Parameters
    ----------
    model : estimator
        A fitted estimator of kernelweave, or a fitted scikit-learn model with one inside: a
        ``Pipeline``, a ``GridSearchCV``, ...
    path : str or path
        The file, by custom ``something.skops``; its folder must exist.
    about : dict, optional
        Anything that JSON can hold, to be kept with the model: where the data came from, what the
        scores were. :func:`~kernelweave.model_files.read_header` reads it back.

    Returns
    -------
    Path
        Where the file is.

    See Also
    --------
    load : Opens the file.

    Notes
    -----
    The file is one of `skops <https://skops.readthedocs.io>`_ (a zip archive) with one member more,
    ``kernelweave.json``: versions, kernel names and weights, the certificate, and digests of all
    other members. It holds the training samples, which prediction needs.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier().fit(X, y)
    >>> path = save(model, f"{tempfile.mkdtemp()}/iris.skops")
    >>> (load(path).decision_function(X) == model.decision_function(X)).all()
    np.True_
    """
    file = Path(path)
    if wrong := why_no_place(file):
        raise ModelFileError(wrong)
    header = describe(model, about)
    writer = SchemaWriter()
    schema = json.dumps(writer.schema(model), separators=(",", ":")).encode()
    try:
        write_archive(file, asdict(header), {SCHEMA: schema, **writer.members})
    except OSError as error:
        raise ModelFileError(f"{str(file)!r} cannot be written: {error}") from error
    return file
