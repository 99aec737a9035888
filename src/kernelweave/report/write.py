"""A fitted model as one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelweave.archive import replacing, why_no_place
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.validation import whole_number

_HERE = Path(__file__).parent


def write_html(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    about: Sequence[tuple[str, str]] = (),
    max_kernels: int | None = None,
) -> Path:
    """Write a report on a fitted model: one HTML file that opens offline, for reading and print.

    It says what was learnt in a sentence, shows the weights of kernels, views, columns and
    families, a table of all kernels to sort and search, how the fit went and what its certificate
    proves, which kernels say the same, and the settings to make it again. With held-out samples
    also ROC, precision and recall, calibration and confusion, or residuals, each with 95 %
    intervals. Models of sequences, Bayesian models and models with a path over C have sections of
    their own.

    Parameters
    ----------
    model : any estimator of kernelweave
        Fitted; or a pipeline or search that ends in one.
    path : str or path
        Where to write; a file that is there is replaced, once the new one is complete.
    X : array, CSR matrix, frame or sequences, optional
        Held-out samples, as for ``model.predict``. Of more than 20,000 so many are drawn.
    y : array-like, optional
        Their labels or targets; for outlier models +1 (normal) or -1 (outlier).
    title : str, optional
        What the page is called.
    about : sequence of (label, text), default=()
        Lines about the data, shown with the settings.
    max_kernels : int, optional
        Most kernels in the table, those with most weight; 5,000 by default.

    Returns
    -------
    pathlib.Path
        Where it was written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.report import write_html
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier().fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_html(model, Path(folder) / "iris.html", X[1::2], y[1::2])
    ...     "held-out samples" in report.read_text(encoding="utf-8")
    True
    """
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    from kernelweave.inspect.held_out import read_held_out
    from kernelweave.plot.svg import page_style
    from kernelweave.report.page import gather

    find_estimator(model)
    try:
        target = Path(path)
    except TypeError:
        raise InvalidInputError(f"path must be the path of a file; got {path!r}.") from None
    if wrong := why_no_place(target):
        raise InvalidInputError(wrong)
    lines = list(about.items()) if isinstance(about, dict) else list(about)
    for line in lines:
        if isinstance(line, str) or len(line) != 2:
            raise InvalidInputError(f"about must hold pairs of (label, text); got {line!r}.")
    if title is not None and not isinstance(title, str):
        raise InvalidInputError(f"title must be text or None; got {title!r}.")
    if max_kernels is not None:
        whole_number("max_kernels", max_kernels)
    held = read_held_out(model, X, y)
    with page_style():
        page = gather(model, max_kernels, held, title, lines)
    rooms = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    rooms.policies["json.dumps_kwargs"] = known
    files = {"style": "report.css", "script": "report.js"}
    inside = {name: Markup((_HERE / file).read_text("utf-8")) for name, file in files.items()}
    # The whole file or nothing: a reader never sees half of it.
    with replacing(target) as file:
        file.write(rooms.get_template("report.html.j2").render(page=page, **inside).encode())
    return target
