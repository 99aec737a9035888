"""From what a file holds to a model that can be used: every part is checked before any is used.

A class of kernelweave that files hold may have a method ``_after_load``. It raises
`InvalidInputError` (or anything else) unless the state that came from the file could be one that a
fit has left, by the same checks that the constructor and the fit make, and makes anew what files do
not hold. It is called for every object, parts first: what it finds in its attributes is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import getattr_static, isroutine
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.validation import require_array, require_kind, require_sparse

# Types that need no check of their own.
_VALUES, _CONTAINERS = frozenset({str, float, int, bool}), frozenset({dict, list, tuple})
# What the annotations of dataclasses are checked for.
_PLAIN: dict[Any, Any] = {"int": Integral, "float": Real, "str": str, "bool": (bool, np.bool_)}


def check_names(nodes: Iterable[dict[str, Any]]) -> None:
    """Raise if the state of an object has an entry in the place of a method of its class.

    Such an entry would hide the method, or be taken for what a property has computed.
    """
    for node in nodes:
        if node["__loader__"] != "ObjectNode" or not str(node["__module__"]).startswith(
            ("kernelweave", "sklearn.")
        ):
            continue
        cls = getattr(import_module(node["__module__"]), node["__class__"])
        for name in _names(node):
            there = getattr_static(cls, name, None)
            if isroutine(there) or isinstance(there, property | cached_property):
                raise InvalidInputError(f"a {cls.__name__} cannot hold {name!r}: it is a method.")


def _names(node: dict[str, Any]) -> Iterable[str]:
    """The attributes that an object is given."""
    content = node.get("content")
    if not isinstance(content, dict):
        return ()
    inner = content.get("content")
    if content["__loader__"] == "JsonNode":
        inner = json.loads(str(inner))
    return inner if isinstance(inner, dict) else ()


def restore(model: Any) -> None:
    """Check every part of a model that came from a file, and make what files do not hold."""
    for part in _parts_first(model):
        if isinstance(part, BaseEstimator):
            part.get_params(deep=False)  # Raises if one is missing.
            names = getattr(part, "feature_names_in_", None)
            if isinstance(names, list):
                part.feature_names_in_ = np.array(names, dtype=object)
        elif is_dataclass(part):
            _check_fields(part)
        if sparse.issparse(part):
            _check_sparse(part)
        elif any(cls.__name__ == "BaseLibSVM" for cls in type(part).__mro__):
            _check_libsvm(part)
        elif type(part).__module__ == "sklearn.tree._tree":
            _check_tree(part)
        elif hasattr(part, "_after_load"):
            part._after_load()


def _parts_first(model: Any) -> Iterator[Any]:
    """Every object that a model consists of, once, after its parts; no plain values and lists."""
    waiting, seen = [(model, False)], set()
    while waiting:
        part, done = waiting.pop()
        if done:
            yield part
        elif id(part) not in seen and not isinstance(part, type | str | bytes | Real | None):
            seen.add(id(part))
            if type(part) not in _CONTAINERS:
                waiting.append((part, True))
            inside = _inside(part)
            # There may be a text for each of very many columns.
            waiting.extend((inner, False) for inner in inside if type(inner) not in _VALUES)


def _inside(part: Any) -> Iterable[Any]:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list | tuple | set | frozenset):
        return part
    if isinstance(part, np.ndarray):
        return part.ravel().tolist() if part.dtype == object else ()
    # Types of others hold values only, and tables of theirs refer to much that is no part of it.
    library = type(part).__module__.partition(".")[0]
    return (
        () if library in ("pandas", "polars", "scipy") else getattr(part, "__dict__", {}).values()
    )


def _check_fields(part: Any) -> None:
    """Raise unless the fields of a dataclass are there, and the plain ones what they should be."""
    for field in fields(part):
        value, name = getattr(part, field.name), f"{type(part).__name__}.{field.name}"
        if field.type in _PLAIN:
            require_kind(name, value, _PLAIN[field.type])


def _check_sparse(matrix: Any) -> None:
    if matrix.format not in ("csr", "csc", "bsr", "coo"):
        raise InvalidInputError(
            f"a sparse matrix must be CSR, CSC, BSR or COO; got {matrix.format}."
        )
    require_sparse("a sparse matrix", matrix)
    if not matrix.data.dtype.isnative:
        raise InvalidInputError(f"the values of a sparse matrix cannot be {matrix.data.dtype}.")


def _check_libsvm(svm: Any) -> None:
    """Raise unless the arrays that libsvm reads without looking fit together."""
    if not hasattr(svm, "support_"):
        return
    n_fit = int(svm.shape_fit_[0])
    count, pairs = len(svm.support_), len(svm.intercept_)
    classes = len(svm.classes_) if hasattr(svm, "classes_") else 2
    require_array("support_", svm.support_, (None,), whole=True, low=0, high=n_fit - 1)
    if svm.kernel != "precomputed" and svm.support_vectors_.shape != (count, svm.n_features_in_):
        raise InvalidInputError("support_vectors_ and support_ must be of the same samples.")
    if svm.kernel == "precomputed" and svm.n_features_in_ != n_fit:
        raise InvalidInputError("a precomputed kernel must have a column for each sample.")
    require_array("_n_support", svm._n_support, (None,), whole=True, low=0, high=count)
    if pairs != classes * (classes - 1) // 2 or svm._n_support[:classes].sum() != count:
        raise InvalidInputError("_n_support and intercept_ must fit the classes.")
    for name in ("dual_coef_", "_dual_coef_"):
        value = getattr(svm, name)
        if sparse.issparse(value):
            value = value.toarray()
        require_array(name, value, (classes - 1, count))
    for name in ("intercept_", "_intercept_"):
        require_array(name, getattr(svm, name), (pairs,))
    for name in ("_probA", "_probB"):
        value = getattr(svm, name)
        require_array(name, value, (pairs if len(value) else 0,))


def _check_tree(tree: Any) -> None:
    """Raise unless every branch of a decision tree leads on, to a node that is there."""
    count = tree.node_count
    for children in (tree.children_left, tree.children_right):
        inner = children != -1
        require_array("children in a tree", children, (count,), whole=True, low=-1, high=count - 1)
        if (children[inner] <= np.flatnonzero(inner)).any():
            raise InvalidInputError("the children of a tree must come after their parents.")
    if (tree.feature[tree.children_left != -1] >= tree.n_features).any():
        raise InvalidInputError("a tree must read features that are there.")
