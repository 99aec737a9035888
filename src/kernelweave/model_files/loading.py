"""From files to fitted models; nothing that a file says is believed before it has been checked."""

from __future__ import annotations

import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sklearn.exceptions import InconsistentVersionWarning

from kernelweave.archive import HEADER, OF_JSON, DamagedFileError, opened, unpacked, why_no_file
from kernelweave.errors import (
    InvalidInputError,
    MemoryBudgetError,
    ModelFileError,
    ModelFileWarning,
)
from kernelweave.model_files.header import FORMAT, Header
from kernelweave.model_files.names import MOVED, trusted_names
from kernelweave.model_files.restoring import check_names, restore
from kernelweave.model_files.schema import PROTOCOL, SCHEMA, walk
from kernelweave.reading.bounded import OF_ARRAYS, Allowance

# How much memory a byte of other members takes: as arrays, and on the way to skops.
_OF_DATA = 2.0


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
    header, schema, members = _read(Path(path))
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

    # An archive for skops, of what was checked and nothing else.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {SCHEMA: json.dumps(schema).encode(), **members}.items():
            archive.writestr(name, content)
    data = buffer.getvalue()
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


# The file


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a model file says about itself; the model is not made.

    Parameters
    ----------
    path : str or path
        A file written by :func:`kernelweave.save`.

    Returns
    -------
    Header
    """
    file = Path(path)
    with _opened(file) as archive:
        header, _ = _header(file, archive, Allowance(file, OF_ARRAYS))
    return header


def _read(file: Path) -> tuple[Header, dict[str, Any], dict[str, bytes]]:
    """Read a model file: header, schema, and all other members; raises unless they are whole."""
    allowance = Allowance(file, OF_ARRAYS)
    with _opened(file) as archive:
        header, digests = _header(file, archive, allowance)
        try:
            members = dict(unpacked(archive, digests, allowance, _OF_DATA))
        except DamagedFileError as error:
            raise _changed(file, str(error)) from error
    try:
        schema = json.loads(members.pop(SCHEMA))
        if not isinstance(schema, dict):
            raise ValueError("it is no dict")
    except (KeyError, ValueError, RecursionError) as error:
        raise _changed(file, f"{SCHEMA}: {error}") from error
    # An array is made for each part that refers to it.
    files = [node["file"] for node in walk(schema) if isinstance(node.get("file"), str)]
    allowance.take(sum(len(members.get(name, b"")) for name in files), "the arrays of the model")
    return header, schema, members


def _opened(file: Path) -> zipfile.ZipFile:
    if missing := why_no_file(file):
        raise ModelFileError(f"{missing} Give the path of a file written by save.")
    try:
        return opened(file)
    except DamagedFileError as error:
        raise _no_model(file, str(error)) from error


def _header(
    file: Path, archive: zipfile.ZipFile, allowance: Allowance
) -> tuple[Header, dict[str, str]]:
    names = archive.namelist()
    # Checkpoints have the same header, and this array.
    if names.count(HEADER) != 1 or "format.npy" in names:
        if SCHEMA in names:
            why = "it has no header. For a file written by skops itself use skops.io.load"
        elif any(name.endswith(".npy") for name in names):
            why = "it is an archive of arrays. A Checkpoint is taken up by warm_start_from=path"
        else:
            why = "it is another kind of zip archive"
        raise _no_model(file, why)
    try:
        header, digests = Header.from_json(allowance.read_member(archive, HEADER, OF_JSON))
    except MemoryBudgetError:
        raise
    except Exception as error:
        raise _no_model(file, f"its header cannot be read ({error})") from error
    if header.format > FORMAT:
        writer = f" ({version})" if (version := header.versions.get("kernelweave")) else ""
        raise ModelFileError(
            f"{str(file)!r} was written by a newer kernelweave{writer}: it has format "
            f"{header.format}, and this version reads formats up to {FORMAT}. Update kernelweave: "
            "pip install -U kernelweave."
        )
    return header, digests


def _no_model(file: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{str(file)!r} is no model file of kernelweave: {why}.")


def _changed(file: Path, what: str) -> ModelFileError:
    return ModelFileError(
        f"{str(file)!r} is damaged, or has been changed since it was written ({what}). Copy it "
        "again, or save the model again."
    )
