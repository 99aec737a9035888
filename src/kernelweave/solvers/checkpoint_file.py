"""The file of a checkpoint: what is in it, how it is written, how it is read and refused."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.archive import replacing, why_no_file, why_no_place
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.reading.bounded import OF_ARRAYS, Allowance, read_npz
from kernelweave.solvers.kept import Numbers, prefixed

__all__ = [
    "Header",
    "Saved",
    "digest_of",
    "names_digest",
    "read",
    "refuse_path",
    "refused_by_name",
    "write",
]

_FORMAT = "kernelweave checkpoint"
_VERSION = 1
# Those of a batch are written when they are read, and a million take half a minute.
_MOST_NAMES = 10_000
# Under this name a file has the digest of all that is in it.
_WHOLE = "sha256"


@dataclass(frozen=True)
class Header:
    """What a fit must have in common with the one it goes on with.

    Attributes
    ----------
    kind : str
        The estimator.
    n_tasks, n_groups : int
        Tasks, and the groups of them that share their kernel weights: one fit each.
    n, m : int
        Samples, kernels.
    kernels : str
        Digest of the names of the kernels.
    """

    kind: str
    n_tasks: int
    n_groups: int
    n: int
    m: int
    kernels: str


# What the messages call them.
_WORDS = {
    "kind": "of a {}",
    "n_tasks": "of {} tasks (classes, labels or outputs)",
    "n_groups": "of {} sets of kernel weights (multi_class)",
    "n": "on {} samples",
    "m": "with {} kernels",
    "kernels": "with other kernels: the digest of their names is {}",
}


@dataclass(frozen=True)
class Saved:
    """What is known of a fit that another one can go on with.

    Attributes
    ----------
    where : str
        What messages call it.
    header : Header
    groups : dict of int to mapping of arrays
        Numbers of each group that was begun.
    """

    where: str
    header: Header
    groups: Mapping[int, Numbers]

    def check(self, **wanted: Any) -> None:
        """Raise unless the header has these values."""
        for name, value in wanted.items():
            found = getattr(self.header, name)
            if found != value:
                word = _WORDS[name]
                needed = word.removeprefix("with other kernels: ")
                raise InvalidInputError(
                    f"warm_start_from: {self.where} is {word.format(_short(found))}, but this fit "
                    f"is {needed.format(_short(value))}. A fit can only go on from one of the same "
                    "estimator, classes, samples and kernels; leave warm_start_from=None to start "
                    "anew."
                )


def _short(value: object) -> str:
    return str(value)[:12] if isinstance(value, str) and len(value) == 64 else str(value)


def digest_of(*parts: Any) -> str:
    """Return one name for all of these: arrays by their numbers, others by what they print.

    Examples
    --------
    >>> digest_of(np.arange(3.0), "hinge") == digest_of(np.arange(3.0), "hinge")
    True
    >>> digest_of(np.arange(3.0), "hinge") == digest_of(np.arange(4.0), "hinge")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(repr(part).encode())
        found.update(b"\0")
    return found.hexdigest()


def names_digest(names: Sequence[str]) -> str:
    """Return one name for all the kernels; of very many it reads some, evenly spread."""
    some = np.unique(np.linspace(0, len(names) - 1, min(len(names), _MOST_NAMES)).astype(int))
    found = hashlib.sha256()
    for k in some:
        found.update(names[int(k)].encode())
        found.update(b"\0")
    return found.hexdigest()


def refuse_path(path: Path) -> None:
    """Raise unless a file can be written there."""
    if wrong := why_no_place(path):
        raise InvalidInputError(f"Checkpoint: {wrong}")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InvalidInputError(
            f"Checkpoint: nothing can be written to the folder of {str(path)!r}: {error}"
        ) from error


def write(path: Path, header: Header, groups: Mapping[int, Numbers]) -> None:
    """Write a file, in the place of an older one once it is whole."""
    arrays: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "groups": sorted(groups)}
    arrays |= asdict(header)
    for group, numbers in groups.items():
        arrays |= prefixed(str(group), numbers)
    made: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    objects = sorted(name for name, value in made.items() if value.dtype.hasobject)
    if objects:
        raise TypeError(f"a checkpoint holds numbers and text only; got objects in {objects}.")
    made[_WHOLE] = np.asarray(_digest_of_all(made))
    with replacing(path) as file:
        np.savez(file, **made)


def read(path: str | os.PathLike[str]) -> Saved:
    """Read the file of a checkpoint, or raise saying what it is instead."""
    file = Path(path)
    where = repr(str(file))
    if missing := why_no_file(file):
        raise InvalidInputError(
            f"warm_start_from: {missing} Give the path of a checkpoint, a fitted estimator of the "
            "same kind or None."
        )
    arrays = _load(file, where)
    version = str(arrays.get("version"))
    if version.isdigit() and version != str(_VERSION):
        raise InvalidInputError(
            f"warm_start_from: {where} has version {version} of the checkpoint format; this "
            f"kernelweave reads version {_VERSION}. Take it up with the kernelweave that wrote it, "
            "or start anew."
        )
    try:
        header = Header(**{f.name: arrays[f.name].item() for f in fields(Header)})
        groups: dict[int, dict[str, Any]] = {int(g): {} for g in arrays["groups"]}
        for key, value in arrays.items():
            number, _, name = key.partition(".")
            if name:
                groups[int(number)][name] = value
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_one(where, f"parts of it are missing ({error})") from error
    if str(arrays.pop(_WHOLE, "")) != _digest_of_all(arrays):
        raise _not_one(where, "it is damaged, or has been changed since it was written")
    return Saved(f"the checkpoint {where}", header, groups)


def _load(file: Path, where: str) -> dict[str, Any]:
    try:
        # Nothing is unpickled, so a file from elsewhere cannot run anything.
        arrays: dict[str, Any] = read_npz(file, Allowance(file, OF_ARRAYS))
    except MemoryBudgetError:
        raise
    except Exception as error:
        # There is no end to what damaged archives and headers of arrays make Python raise.
        raise _not_one(where, f"it cannot be read ({error})") from error
    if "format" not in arrays or str(arrays["format"]) != _FORMAT:
        raise _not_one(where, "it holds other arrays")
    return arrays


@contextmanager
def refused_by_name(where: str) -> Iterator[None]:
    """Say of numbers that are refused where they come from."""
    try:
        yield
    except Exception as error:
        raise InvalidInputError(
            f"warm_start_from: {where} cannot be gone on with: {str(error).rstrip('.')}. It is "
            "damaged, or has been changed; leave warm_start_from=None to start anew."
        ) from error


def _digest_of_all(arrays: Mapping[str, Any]) -> str:
    return digest_of(*(part for name in sorted(arrays) for part in (name, arrays[name])))


def _not_one(where: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"warm_start_from: {where} is no checkpoint of kernelweave: {why}. Checkpoints are written "
        "by callbacks=[Checkpoint(path)]."
    )
