"""What each kernel of a fitted model is: its family, its view, its columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from kernelweave.inspect.ranking import find_estimator
from kernelweave.kernels import OnColumns, Product, Sum
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.names import describe_columns, describe_request, whereabouts
from kernelweave.kernels.samples import Samples
from kernelweave.operators import GaussianOperator, StackedOperator

ALL_COLUMNS = "all columns"

# Family, view and columns.
_Words = tuple[str, str, tuple[str, ...]]


class KernelInfo(NamedTuple):
    """One kernel in words.

    Attributes
    ----------
    name : str
        Its name in the model.
    family : str
        What kind of kernel it is: "rbf", "linear", "polynomial", "distance", "spectrum", "weighted
        degree", "precomputed", "product", "sum", or the words of a class of your own.
    view : str
        What it looks at: the label of its columns, "all columns", or the name of a given matrix.
    columns : tuple of str
        Names of its columns, or their numbers where they have none. A given matrix has no columns.
    """

    name: str
    family: str
    view: str
    columns: tuple[str, ...]


class _Sight(NamedTuple):
    """Columns of the data that a kernel sees, by position."""

    # Positions in the data behind each column seen; None where a transformer has mixed them.
    own: list[int] | None
    # All positions that have gone in.
    under: list[int]
    # What the user calls the view, if that was said.
    label: str | None = None
    # The transformer that has mixed them, and what was chosen from what it made.
    mixer: str = ""
    chosen: str = ""


def describe_kernels(model: Any, kernels: Iterable[int] | None = None) -> list[KernelInfo]:
    """Say of each kernel what it is and what it looks at.

    Parameters
    ----------
    model : fitted estimator
        Or a pipeline or search that ends in one.
    kernels : iterable of int, optional
        Which kernels; all by default. Of a million kernels only those asked for are looked at.

    Returns
    -------
    list of KernelInfo

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.inspect import describe_kernels
    >>> from kernelweave.kernels import RBF, Linear
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> sepals = RBF(width=1.0).on(["sepal length (cm)", "sepal width (cm)"], label="sepals")
    >>> model = MKLClassifier([Linear(), sepals]).fit(X, y)
    >>> for info in describe_kernels(model):
    ...     print(info.family, "|", info.view, "|", len(info.columns))
    linear | all columns | 4
    rbf | sepals | 2
    """
    estimator = find_estimator(model)
    kernel_set = estimator._kernel_set
    every = range(kernel_set.m)
    asked = [every[int(k)] for k in (every if kernels is None else kernels)]
    parts, homes = [kernel_set], [(0, k) for k in asked]
    if isinstance(kernel_set, StackedOperator):
        part, place = whereabouts(kernel_set.members)
        parts, homes = list(kernel_set.parts), [(int(part[k]), int(place[k])) for k in asked]
    names = estimator.kernel_names_
    return [
        KernelInfo(str(names[k]), *_describe(parts[part], place))
        for k, (part, place) in zip(asked, homes, strict=True)
    ]


def _describe(kernel_set: Any, k: int) -> _Words:
    samples = kernel_set.samples
    every = list(range(samples.n_columns))
    sight = _Sight(every, every)
    if not isinstance(kernel_set, GaussianOperator):
        return _look(kernel_set.kernels[k], sight, samples)
    # There is no object for a kernel of an `RBFBatch`, only a row of two arrays.
    batch = kernel_set.batch
    chosen = sorted(int(j) for j in np.asarray(batch.columns)[k] if j >= 0)
    if not _one_to_one(batch.transformer):
        sight = _mixed(sight, batch.transformer, samples)
    return "rbf", *_words(_choose(sight, chosen), samples)


def _look(kernel: Kernel, sight: _Sight, samples: Samples) -> _Words:
    """Family, view and columns of a bound kernel that is given these columns."""
    while isinstance(kernel, OnColumns) and not kernel.core.reads_ids:
        (block, *_), label = kernel.path, kernel.selection.label
        sight = _choose(sight, list(block.indices))
        if sight.own is not None and not _keeps_columns(block):
            sight = _mixed(sight, block.transformer, samples)
        # Of views within views the outer one is what the user calls the data.
        if label and not sight.label:
            sight = sight._replace(label=label)
        kernel = kernel.kernel
    inner = kernel.kernel if isinstance(kernel, OnColumns) else kernel
    # Words of the class: WeightedDegree is "weighted degree", RBF is "rbf".
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", type(inner).__name__)
    family = " ".join(words).lower()
    if kernel.core.reads_ids:
        return family, inner.name, ()
    if isinstance(kernel, Product | Sum):
        parts = kernel.factors if isinstance(kernel, Product) else kernel.terms
        seen = [_look(part, sight, samples) for part in parts]
        columns = dict.fromkeys(column for _, _, own in seen for column in own)
        return family, " and ".join(dict.fromkeys(view for _, view, _ in seen)), tuple(columns)
    return family, *_words(sight, samples)


def _choose(sight: _Sight, indices: list[int]) -> _Sight:
    """Some of the columns seen."""
    if sight.own is None:
        return sight._replace(chosen=f"{describe_request(indices)} of {sight.mixer}")
    own = [sight.own[j] for j in indices]
    return sight._replace(own=own, under=list(dict.fromkeys(own)))


def _mixed(sight: _Sight, transformer: Any, samples: Samples) -> _Sight:
    """The columns that a transformer makes of those seen."""
    steps = getattr(transformer, "steps", [("", transformer)])
    title = type(steps[-1][1]).__name__
    return sight._replace(own=None, mixer=f"{title} of {_label(sight.under, samples)}")


def _one_to_one(transformer: Any) -> bool:
    """Whether a transformer, fitted or not, is known to leave every column where it is."""
    steps = getattr(transformer, "steps", None)
    if isinstance(steps, list):
        return all(_one_to_one(step) for _, step in steps)
    return transformer in (None, "passthrough") or isinstance(transformer, OneToOneFeatureMixin)


def _keeps_columns(block: Any) -> bool:
    if _one_to_one(block.transformer):
        return True
    try:
        after = [str(name) for name in block.transformer.get_feature_names_out()]
    except Exception:
        return False  # Names only decorate: no names, no claim.
    return after == (block.names or [f"x{j}" for j in range(len(block.indices))])


def _words(sight: _Sight, samples: Samples) -> tuple[str, tuple[str, ...]]:
    """View and names of columns."""
    seen = sight.under if sight.own is None else sight.own
    view = sight.label or sight.chosen or _label(seen, samples)
    titles = samples.columns
    return view, tuple(str(j) if titles is None else titles[j] for j in sight.under)


def _label(indices: list[int], samples: Samples) -> str:
    if indices == list(range(samples.n_columns)):
        return ALL_COLUMNS
    return describe_columns(indices, samples.columns)
