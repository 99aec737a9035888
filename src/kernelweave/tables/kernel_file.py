"""Kernel files: kernels and views written down in TOML."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

from sklearn.preprocessing import StandardScaler

from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.kernels import RBF, Family, Kernel, Linear, Polynomial, Spectrum, WeightedDegree
from kernelweave.kernels.families import NAMED_FAMILIES
from kernelweave.kernels.names import describe_request
from kernelweave.memory import require_bytes
from kernelweave.reading.bounded import existing_file, unpacked
from kernelweave.tables.encoder import TableEncoder
from kernelweave.tables.kernels import Place, family_kernels, pick_columns, place_of
from kernelweave.validation import unknown_name

# What makes the kernels of each kind; what it takes is what may stand in a file.
_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "rbf": RBF,
    "polynomial": Polynomial,
    "linear": Linear,
}
_ON_STRINGS: dict[str, Callable[..., Kernel]] = {
    "spectrum": Spectrum,
    "weighted_degree": WeightedDegree,
}
_KINDS = (*_ON_NUMBERS, *_ON_STRINGS, "family")
_WHERE = ("columns", "view", "each", "name")


def _parameters(kind: str) -> dict[str, bool]:
    """The parameters of a kind, and whether each must be given."""
    if kind == "family":
        return {"family": True}
    taken = signature(_ON_NUMBERS.get(kind) or _ON_STRINGS[kind]).parameters.values()
    # Pairs of numbers would be read as several kernels.
    left_out = (*_WHERE, "positions", "lengths")
    return {p.name: p.default is p.empty for p in taken if p.name not in left_out}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _are_texts(value: Any) -> bool:
    items = _as_list(value)
    return bool(items) and all(isinstance(item, str) and item.strip() for item in items)


_TEXT = ("text in quotes", lambda value: isinstance(value, str) and _are_texts(value))
_TEXTS = ("text in quotes, or a list of such", _are_texts)
_SWITCH = ("true or false", lambda value: isinstance(value, bool))
_PARAMETER = ("a value, or a list of values", lambda value: value != [])
# What keys may hold; parameters are checked by the kernels that they make.
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("columns", "view"), _TEXTS),
    **dict.fromkeys(("each", "scale"), _SWITCH),
    **dict.fromkeys(("name", "family"), _TEXT),
}
# A kernel of a list, with its parameters.
_KERNEL_BYTES = 1000.0
_FEWER = "Every combination of the values in the lists is a kernel: shorten them."


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
            where = f"{str(self.path)!r}, [[kernel]] number {number}"
            found = _places(entry, encoder, known, columns, where)
            out += _kernels(entry, found, where)
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
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{str(found)!r} is not right TOML: {error}.") from error
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
        _check_entry(entry, f"{shown}, [[kernel]] number {number}")
    views = content.get("views", {})
    if not isinstance(views, dict):
        raise InvalidInputError(f"{shown}: views must be a table: [views], then name = [...].")
    for name, items in views.items():
        if not _are_texts(items):
            raise InvalidInputError(
                f"{shown}: view {name!r} must be a list of columns, such as "
                f'["age", "gene_*"]; got {items!r}.'
            )
    return KernelFile(found, kernels, {name: _as_list(items) for name, items in views.items()})


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


def _check_entry(entry: dict[str, Any], where: str) -> None:
    kind = entry.get("kind")
    if kind is None:
        listed = ", ".join(map(repr, _KINDS))
        raise InvalidInputError(f"{where} has no kind; write kind = 'rbf' or another of {listed}.")
    if kind == "precomputed":
        raise InvalidInputError(
            f"{where}: kernel matrices do not stand here; give them by --kernel-matrix NAME=FILE."
        )
    if isinstance(kind, str) and kind in NAMED_FAMILIES and kind not in _KINDS:
        raise InvalidInputError(
            f'{where}: {kind!r} is a family; write kind = "family" and family = "{kind}".'
        )
    if kind not in _KINDS:
        raise InvalidInputError(f"{where}: {unknown_name('kind', kind, _KINDS)}")
    parameters = _parameters(kind)
    known = ("kind", *parameters, *_WHERE, *(("scale",) if kind in _ON_NUMBERS else ()))
    for key, value in entry.items():
        if key not in known:
            raise InvalidInputError(f"{where}: {unknown_name(f'key of kind {kind!r}', key, known)}")
        allowed, is_right = _RULES.get(key, _PARAMETER)
        if not is_right(value):
            raise InvalidInputError(f"{where}: {key} must be {allowed}; got {value!r}.")
    for name, needed in parameters.items():
        if needed and name not in entry:
            raise InvalidInputError(f"{where}: kind {kind!r} needs {name}.")
    if kind == "family" and entry["family"] not in NAMED_FAMILIES:
        raise InvalidInputError(
            f"{where}: {unknown_name('family', entry['family'], NAMED_FAMILIES)}"
        )
    for first, second in (("columns", "view"), ("each", "name")):
        if entry.get(first) and second in entry:
            raise InvalidInputError(f"{where}: {first} and {second} do not go together.")


def _places(
    entry: dict[str, Any],
    encoder: TableEncoder,
    views: Mapping[str, list[str]],
    columns: list[str],
    where: str,
) -> list[Place]:
    """What the kernels of an entry look at."""
    label = entry.get("name")
    if "view" in entry:
        found = []
        for name in _as_list(entry["view"]):
            if name not in views:
                raise InvalidInputError(f"{where}: {unknown_name('view', name, views)}")
            found.append(place_of(encoder, label or name, views[name], where))
    elif "columns" in entry:
        items = _as_list(entry["columns"])
        own = pick_columns(items, columns, where)
        found = [place_of(encoder, label or describe_request(items), own, where)]
    else:
        found = [place_of(encoder, label, columns, where)]
    return [one for place in found for one in place.each()] if entry.get("each") else found


def _kernels(entry: dict[str, Any], found: list[Place], where: str) -> list[Kernel | Family]:
    kind = entry["kind"]
    out: list[Kernel | Family] = []
    for place in found:
        if kind == "family":
            by_column = not entry.keys() & {"columns", "view", "each"}
            out += family_kernels(entry["family"], place, by_column)
        elif kind in _ON_STRINGS:
            for column, what in place.strings.items():
                made = _variants(_ON_STRINGS[kind], entry, where, alphabet=what["alphabet"])
                out += [kernel.on(column, label=place.string_label(column)) for kernel in made]
        elif place.groups:
            scaler = StandardScaler() if entry.get("scale", True) else None
            made = _variants(_ON_NUMBERS[kind], entry, where)
            out += [kernel.on(place.numbers, scaler, label=place.label) for kernel in made]
    if not out:
        needed = "sequences" if kind in _ON_STRINGS else "numbers or categories"
        other = '"rbf"' if kind in _ON_STRINGS else '"spectrum" or "weighted_degree"'
        raise InvalidInputError(
            f"{where}: kind {kind!r} looks at {needed}, and there are none; for the other "
            f"columns take {other}."
        )
    return out


def _variants(
    make: Callable[..., Any], entry: dict[str, Any], where: str, **given: Any
) -> list[Any]:
    """One kernel for each combination of the values in lists."""
    keys = [key for key in _parameters(entry["kind"]) if key in entry]
    lists = [_as_list(entry[key]) for key in keys]
    count = math.prod(map(len, lists))
    require_bytes(_KERNEL_BYTES * count, f"{where}: {count} kernels", _FEWER)
    try:
        made = [make(**given | dict(zip(keys, values, strict=True))) for values in product(*lists)]
        if entry["kind"] in _ON_NUMBERS:
            for kernel in made:
                kernel.form()  # Checks its parameters.
        return made
    except (InvalidInputError, UnknownNameError) as error:
        raise InvalidInputError(f"{where}: {error}") from error
