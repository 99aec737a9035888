"""Kernel files: kernels and views written down in TOML."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sklearn.preprocessing import StandardScaler

from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.kernels import RBF, Family, Kernel, Linear, Polynomial, Spectrum, WeightedDegree
from kernelweave.kernels.choose import describe_request
from kernelweave.kernels.families import NAMED_FAMILIES
from kernelweave.memory import require_bytes
from kernelweave.reading.files import existing_file, unpacked
from kernelweave.tables.encoder import TableEncoder
from kernelweave.tables.kernels import Place, family_kernels, place_of
from kernelweave.tables.views import pick_columns
from kernelweave.validation import unknown_name

__all__ = ["KernelFile", "read_kernel_file"]


@dataclass(frozen=True)
class _Value:
    """What a key may hold."""

    allowed: str
    check: Callable[[Any], bool]
    several: bool = True  # Whether a list makes one kernel for each.


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_MOST = 2**31 - 1
_POSITIVE = _Value("a number > 0", lambda v: _is_number(v) and 0 < v < float("inf"))
_NOT_NEGATIVE = _Value("a number >= 0", lambda v: _is_number(v) and 0 <= v < float("inf"))
_COUNT = _Value("a whole number >= 1", lambda v: _is_whole(v) and 1 <= v <= _MOST)
_SHIFT = _Value("a whole number >= 0", lambda v: _is_whole(v) and 0 <= v <= _MOST)
_SWITCH = _Value("true or false", lambda v: isinstance(v, bool), several=False)
_TEXT = _Value("text in quotes", lambda v: isinstance(v, str) and bool(v.strip()), several=False)
_TEXTS = _Value(
    "text in quotes, or a list of such",
    lambda v: _TEXT.check(v) or (isinstance(v, list) and bool(v) and all(map(_TEXT.check, v))),
    several=False,
)

_STRINGS = {"alphabet": _TEXT, "normalize": _SWITCH, "reverse_complement": _SWITCH}
# What each kind of kernel takes; the first key is the one it cannot do without.
_PARAMETERS: dict[str, dict[str, _Value]] = {
    "rbf": {"width": _POSITIVE, "gamma": _POSITIVE},
    "polynomial": {"degree": _COUNT, "coef0": _NOT_NEGATIVE, "gamma": _POSITIVE},
    "linear": {},
    "spectrum": {"k": _COUNT, **_STRINGS},
    "weighted_degree": {"degree": _COUNT, "shift": _SHIFT, **_STRINGS},
    "family": {"family": _TEXT},
}
_MAKERS: dict[str, Callable[..., Kernel]] = {
    "rbf": RBF,
    "polynomial": Polynomial,
    "linear": Linear,
    "spectrum": Spectrum,
    "weighted_degree": WeightedDegree,
}
# A kernel of a list, with its parameters.
_KERNEL_BYTES = 1000.0
_FEWER = "Every combination of the values in the lists is a kernel: shorten them."
_ON_STRINGS = ("spectrum", "weighted_degree")
_WHERE = {"columns": _TEXTS, "view": _TEXTS, "each": _SWITCH, "name": _TEXT}


@dataclass(frozen=True)
class KernelFile:
    """The kernels and views of a kernel file.

    Attributes
    ----------
    path : Path
        The file.
    kernels : list of dict
        The ``[[kernel]]`` tables, checked.
    views : dict of str to list of str
        The ``[views]`` table: names, patterns and ranges of columns.
    """

    path: Path
    kernels: list[dict[str, Any]]
    views: dict[str, list[str]]

    def build(
        self, encoder: TableEncoder, views: Mapping[str, Sequence[str]]
    ) -> list[Kernel | Family]:
        """Return the kernels for what a fitted encoder makes of a table.

        Parameters
        ----------
        encoder : TableEncoder
            Fitted.
        views : dict of str to list of str
            Views from elsewhere, with their columns.
        """
        columns = [name for name, role in encoder.roles_.items() if role != "id"]
        known = {name: list(own) for name, own in views.items()}
        for name, items in self.views.items():
            if name in known:
                raise InvalidInputError(
                    f"{str(self.path)!r}: view {name!r} is also given on its own; one has to go."
                )
            known[name] = pick_columns(items, columns, f"{str(self.path)!r}, view {name!r}")
        out: list[Kernel | Family] = []
        for number, entry in enumerate(self.kernels, start=1):
            builder = _Entry(entry, encoder, known, columns, _place(self.path, number))
            out += builder.kernels()
        return out


def read_kernel_file(path: str | os.PathLike[str]) -> KernelFile:
    r"""Read and check a kernel file.

    Parameters
    ----------
    path : str or path
        A TOML file with a ``[[kernel]]`` table for each kernel and perhaps a ``[views]`` table.

    Returns
    -------
    KernelFile

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "kernels.toml")
    >>> _ = path.write_text('[[kernel]]\nkind = "rbf"\nwidth = [1, 2]\n')
    >>> read_kernel_file(path).kernels
    [{'kind': 'rbf', 'width': [1, 2]}]
    """
    found = existing_file(path)
    try:
        # Windows' editor begins files with a mark that TOML does not have.
        content = tomllib.loads(unpacked(found).decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{str(found)!r} is not right TOML: {error}.") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{str(found)!r} is not a TOML file.") from error
    except ValueError as error:
        # Of whole numbers with thousands of digits.
        raise InvalidInputError(f"{str(found)!r} cannot be read: {error}.") from error
    shown = repr(str(found))
    if _has_huge(content):
        raise InvalidInputError(f"{shown}: whole numbers of TOML have no more than 64 bits.")
    for key in content:
        if key not in ("kernel", "views"):
            raise InvalidInputError(f"{shown}: {unknown_name('key', key, ('kernel', 'views'))}")
    kernels = content.get("kernel", [])
    if not isinstance(kernels, list) or not all(isinstance(entry, dict) for entry in kernels):
        raise InvalidInputError(f"{shown}: write [[kernel]], in double brackets, for each kernel.")
    if not kernels:
        raise InvalidInputError(f"{shown} has no kernels; write [[kernel]] and, below, kind = ...")
    for number, entry in enumerate(kernels, start=1):
        _check_entry(entry, _place(found, number))
    return KernelFile(found, kernels, _check_views(content.get("views", {}), shown))


def _has_huge(content: Any) -> bool:
    """Whether there are whole numbers that are no floats and cannot even be shown."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting.extend(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, int) and item.bit_length() > 64:
            return True
    return False


def _place(path: Path, number: int) -> str:
    return f"{str(path)!r}, [[kernel]] number {number}"


def _check_views(views: Any, shown: str) -> dict[str, list[str]]:
    if not isinstance(views, dict):
        raise InvalidInputError(f"{shown}: views must be a table: [views], then name = [...].")
    for name, items in views.items():
        if not _TEXTS.check(items):
            raise InvalidInputError(
                f"{shown}: view {name!r} must be a list of columns, such as "
                f'["age", "gene_*"]; got {items!r}.'
            )
    return {name: [items] if isinstance(items, str) else items for name, items in views.items()}


def _check_entry(entry: dict[str, Any], where: str) -> None:
    if "kind" not in entry:
        raise InvalidInputError(
            f"{where} has no kind; write kind = 'rbf' or another of {_quoted(_PARAMETERS)}."
        )
    kind = entry["kind"]
    if kind == "precomputed":
        raise InvalidInputError(
            f"{where}: kernel matrices do not stand here; give them by --kernel-matrix NAME=FILE."
        )
    if not isinstance(kind, str) or kind not in _PARAMETERS:
        if isinstance(kind, str) and kind in NAMED_FAMILIES:
            raise InvalidInputError(
                f'{where}: {kind!r} is a family; write kind = "family" and family = "{kind}".'
            )
        raise InvalidInputError(f"{where}: {unknown_name('kind', kind, _PARAMETERS)}")
    own = _PARAMETERS[kind]
    known = {**own, **_WHERE}
    if kind in ("rbf", "polynomial", "linear"):
        known["scale"] = _SWITCH
    for key, value in entry.items():
        if key == "kind":
            continue
        if key not in known:
            error = unknown_name(f"key of kind {kind!r}", key, ("kind", *known))
            raise InvalidInputError(f"{where}: {error}")
        _check_value(known[key], key, value, where)
    if kind == "rbf" and ("width" in entry) == ("gamma" in entry):
        raise InvalidInputError(f"{where}: an rbf kernel needs either width or gamma.")
    needed = next(iter(own), None)
    if kind != "rbf" and needed is not None and needed not in entry:
        raise InvalidInputError(f"{where}: kind {kind!r} needs {needed}: {own[needed].allowed}.")
    if kind == "family" and entry["family"] not in NAMED_FAMILIES:
        raise InvalidInputError(
            f"{where}: {unknown_name('family', entry['family'], NAMED_FAMILIES)}"
        )
    for first, second in (("columns", "view"), ("each", "name")):
        if entry.get(first) and second in entry:
            raise InvalidInputError(f"{where}: {first} and {second} do not go together.")


def _check_value(expected: _Value, key: str, value: Any, where: str) -> None:
    items = value if expected.several and isinstance(value, list) else [value]
    if items and all(map(expected.check, items)):
        return
    listed = ", or a list of such" if expected.several else ""
    raise InvalidInputError(f"{where}: {key} must be {expected.allowed}{listed}; got {value!r}.")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


@dataclass(frozen=True)
class _Entry:
    """One ``[[kernel]]`` and the table it is for."""

    entry: dict[str, Any]
    encoder: TableEncoder
    views: Mapping[str, list[str]]
    columns: list[str]
    where: str

    def kernels(self) -> list[Kernel | Family]:
        kind = self.entry["kind"]
        found = self._places()
        if self.entry.get("each"):
            found = [single for place in found for single in place.each()]
        out: list[Kernel | Family] = []
        for place in found:
            if kind == "family":
                by_column = not self.entry.keys() & {"columns", "view", "each"}
                out += family_kernels(self.entry["family"], place, by_column)
            elif kind in _ON_STRINGS:
                out += self._on_strings(place)
            else:
                out += self._on_numbers(place)
        if not out:
            needed = "sequences" if kind in _ON_STRINGS else "numbers or categories"
            other = '"rbf"' if kind in _ON_STRINGS else '"spectrum" or "weighted_degree"'
            raise InvalidInputError(
                f"{self.where}: kind {kind!r} looks at {needed}, and there are none; for the other "
                f"columns take {other}."
            )
        return out

    def _places(self) -> list[Place]:
        entry, label = self.entry, self.entry.get("name")
        if "view" in entry:
            names = [entry["view"]] if isinstance(entry["view"], str) else entry["view"]
            for name in names:
                if name not in self.views:
                    raise InvalidInputError(
                        f"{self.where}: {unknown_name('view', name, self.views)}"
                    )
            return [
                place_of(self.encoder, label or name, self.views[name], self.where)
                for name in names
            ]
        if "columns" not in entry:
            return [place_of(self.encoder, label, self.columns, self.where)]
        items = [entry["columns"]] if isinstance(entry["columns"], str) else entry["columns"]
        chosen = pick_columns(items, self.columns, self.where)
        return [place_of(self.encoder, label or describe_request(items), chosen, self.where)]

    def _on_numbers(self, place: Place) -> list[Kernel]:
        if not place.groups:
            return []
        scaler = StandardScaler() if self.entry.get("scale", True) else None
        return [
            kernel.on(place.numbers, scaler, label=place.label) for kernel in self._variants({})
        ]

    def _on_strings(self, place: Place) -> list[Kernel]:
        return [
            kernel.on(column, label=place.string_label(column))
            for column, what in place.strings.items()
            for kernel in self._variants({"alphabet": what["alphabet"]})
        ]

    def _variants(self, given: dict[str, Any]) -> list[Kernel]:
        """One kernel for each combination of the values in lists."""
        kind = self.entry["kind"]
        keys = [key for key in _PARAMETERS[kind] if key in self.entry]
        lists = [v if isinstance(v := self.entry[key], list) else [v] for key in keys]
        count = math.prod(map(len, lists))
        require_bytes(_KERNEL_BYTES * count, f"{self.where}: {count} kernels", _FEWER)
        out = []
        for values in product(*lists):
            try:
                out.append(_MAKERS[kind](**{**given, **dict(zip(keys, values, strict=True))}))
            except (InvalidInputError, UnknownNameError) as error:
                raise InvalidInputError(f"{self.where}: {error}") from error
        return out
