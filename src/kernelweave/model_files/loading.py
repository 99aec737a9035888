"""Models from files, without running what a file brings along."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from sklearn.exceptions import InconsistentVersionWarning

from kernelweave.errors import (
    InvalidInputError,
    MemoryBudgetError,
    ModelFileError,
    ModelFileWarning,
)
from kernelweave.model_files.archive import as_skops, read
from kernelweave.model_files.header import Header
from kernelweave.model_files.names import MOVED, trusted_names
from kernelweave.model_files.restoring import check_names, restore
from kernelweave.model_files.schema import PROTOCOL, walk

__all__ = ["load"]


def load(path: str | os.PathLike[str], *, trusted: Sequence[str | type[Any]] = ()) -> Any:
    """Load a model that :func:`save` has written.

    Only types of kernelweave, and those of NumPy, SciPy and scikit-learn that skops knows to be
    safe, are made; nothing in a file is run. A file with any other type is refused, unless you name
    the type.

    Parameters
    ----------
    path : str or path
        The file.
    trusted : sequence of str or type, default=()
        Types of your own that the model is known to hold, such as
        ``["my_kernels.Wavelet"]``. The modules they are in are imported.

    Returns
    -------
    estimator
        The fitted model; it predicts what it predicted when it was saved.

    Raises
    ------
    ModelFileError
        If the file is no model, is damaged, was changed, is too new or holds types that are not
        trusted; the message says which.

    Warns
    -----
    ModelFileWarning
        If it was written with another version of scikit-learn (and holds something of it), or with
        a newer kernelweave.

    See Also
    --------
    save : Writes the file.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier, load, save
    >>> model = MKLClassifier().fit(*load_iris(return_X_y=True))
    >>> load(save(model, f"{tempfile.mkdtemp()}/iris.skops")).gap_ == model.gap_
    True
    """
    by_user = _names(trusted)
    where = repr(str(path))
    header, schema, members = read(path)
    protocol = schema.get("protocol")
    if type(protocol) is not int or protocol < PROTOCOL:
        raise ModelFileError(f"{where} is damaged: it was not written by kernelweave.save.")
    nodes = _checked_nodes(schema, where)
    ours, refused = trusted_names(nodes, by_user)
    if refused:
        raise _untrusted(where, refused, header)
    model = _made(schema, nodes, members, sorted(ours | by_user), where, header)
    _warn_of_versions(where, header, nodes)
    return model


def _names(trusted: Any) -> frozenset[str]:
    allowed = 'a sequence of types or of their names, such as ["my_module.MyKernel"]'
    if isinstance(trusted, str | type) or not hasattr(trusted, "__iter__"):
        raise InvalidInputError(f"trusted must be {allowed}; got {trusted!r}.")
    names = [t if isinstance(t, str) else f"{t.__module__}.{t.__name__}" for t in trusted]
    return frozenset(names)


def _checked_nodes(schema: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """All nodes, under the names that their types have now."""
    nodes = list(walk(schema))
    for node in nodes:
        named = [node.get(key) for key in ("__loader__", "__module__", "__class__")]
        if named == ["CachedNode", None, None]:
            continue
        if not all(isinstance(name, str) for name in named):
            raise ModelFileError(f"{where} is damaged: it holds a part without a type.")
        new = MOVED.get(f"{named[1]}.{named[2]}")
        if new is not None:
            node["__module__"], _, node["__class__"] = new.rpartition(".")
    return nodes


def _made(
    schema: dict[str, Any],
    nodes: list[dict[str, Any]],
    members: Mapping[str, bytes],
    trusted: list[str],
    where: str,
    header: Header,
) -> Any:
    import skops.io  # type: ignore[import-untyped]
    from skops.io.exceptions import (  # type: ignore[import-untyped]
        UntrustedTypesFoundException,
    )

    data = as_skops(schema, members)
    try:
        with warnings.catch_warnings():
            # `_warn_of_versions` says it once, and not for every transformer.
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            check_names(nodes)
            model = skops.io.loads(data, trusted=trusted)
            restore(model)
            return model
    except UntrustedTypesFoundException:
        found = set(skops.io.get_untrusted_types(data=data)) - set(trusted)
    except ModelFileError as error:
        raise ModelFileError(f"{where}: {error}") from error
    except (MemoryBudgetError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # Panics of polars are no `Exception`.
        told = _too_new(header) or "It is damaged, or needs something that is not installed here."
        reason = str(error).rstrip(".")
        raise ModelFileError(
            f"{where} cannot be loaded: {type(error).__name__}: {reason}. {told}"
        ) from error
    raise _untrusted(where, found, header)


def _untrusted(where: str, found: set[str], header: Header) -> ModelFileError:
    names = sorted(found)
    kinds = "a type that is" if len(names) == 1 else "types that are"
    return ModelFileError(
        f"{where} holds {kinds} not known to be safe: {', '.join(names)}. {_too_new(header)}"
        "If you know where the file comes from and what that is, load it with "
        f"load(path, trusted={names!r})."
    )


def _too_new(header: Header) -> str:
    theirs, ours = header.versions.get("kernelweave", ""), metadata.version("kernelweave")
    if _minor(theirs) <= _minor(ours):
        return ""
    return f"It was written by kernelweave {theirs}, and this is {ours}: update it first. "


def _warn_of_versions(where: str, header: Header, nodes: list[dict[str, Any]]) -> None:
    told = []
    theirs, ours = header.versions.get("scikit-learn", ""), metadata.version("scikit-learn")
    has_some = any(str(node["__module__"]).startswith("sklearn.") for node in nodes)
    if has_some and _minor(theirs) != _minor(ours):
        told.append(
            f"its parts from scikit-learn were fitted with version {theirs}, and this is {ours}. "
            "They may behave differently: compare some predictions, or fit the model again."
        )
    if _too_new(header):
        told.append(_too_new(header).strip())
    if told:
        warnings.warn(f"{where}: {' '.join(told)}", ModelFileWarning, stacklevel=3)


def _minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version)[:2])
