"""Kernels for a table: families on its numbers, string kernels on its sequences, and its views.

Views are named groups of columns, as they are written on a command line or in a kernel file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from kernelweave.errors import InvalidInputError
from kernelweave.kernels import (
    RBF,
    Family,
    Kernel,
    Precomputed,
    Spectrum,
    WeightedDegree,
    simplemkl_family,
    spicymkl_family,
)
from kernelweave.kernels.families import NAMED_FAMILIES
from kernelweave.tables.encoder import TableEncoder
from kernelweave.validation import closest, some_of, unknown_name

# Those of the families that look at single columns too.
_BY_COLUMN: dict[str, Callable[..., Family]] = {
    "simplemkl": simplemkl_family,
    "spicymkl": spicymkl_family,
}
# Those that take numbers as they are: in a table these have units of all kinds.
_UNSCALED = ("linear", "polynomial", "rbf")
# One object, so that selections with it are found equal without a look inside.
_SCALER = StandardScaler()
_DEGREES, _LENGTHS = (2, 6, 20), {"protein": (1, 2, 3)}
_EVERYTHING, _REST = "*", "rest"


def table_kernels(
    kernels: str | os.PathLike[str],
    encoder: TableEncoder,
    views: Mapping[str, Sequence[str]] | None = None,
    matrices: Mapping[str, Any] | None = None,
) -> list[Kernel | Family]:
    """Return kernels for what an encoder makes of a table.

    Without views a family sees all columns together; "simplemkl" and "spicymkl" also see every
    column by itself (all values of a category as one). With views it sees each view, and nothing
    else. Columns of sequences get string kernels: spectrum kernels, and weighted degree kernels if
    all sequences are of the same length.

    Parameters
    ----------
    kernels : str or path
        "default", "simplemkl", "spicymkl", "mwumkl", "features", "linear", "polynomial", "rbf", or
        the path of a kernel file (``.toml``).
    encoder : TableEncoder
        Fitted.
    views : dict of str to list of str, optional
        Names of views to columns of the table, as `parse_views` gives.
    matrices : dict of str to array of shape (n, n), optional
        Kernel matrices over the rows that the encoder's `id_column` numbers.

    Returns
    -------
    list of Kernel and Family
        What an estimator takes as ``kernels``.

    Examples
    --------
    >>> import polars as pl
    >>> from kernelweave.kernels import Samples, resolve
    >>> table = pl.DataFrame({"age": [31, 50, 40], "colour": ["red", "blue", "red"]})
    >>> encoder = TableEncoder().fit(table)
    >>> views = {"looks": ["colour"], "all": ["age", "colour"]}
    >>> kernels = table_kernels("linear", encoder, views)
    >>> [kernel.name for kernel in resolve(kernels, Samples(encoder.transform(table)))]
    ['linear on looks', 'linear on all']
    """
    check_is_fitted(encoder)
    given = dict(views or {})
    out: list[Kernel | Family] = []
    if isinstance(kernels, os.PathLike) or str(kernels).lower().endswith(".toml"):
        from kernelweave.tables.kernel_file import read_kernel_file

        out = read_kernel_file(kernels).build(encoder, given)
    elif kernels not in NAMED_FAMILIES:
        error = unknown_name("family of kernels", kernels, NAMED_FAMILIES)
        raise InvalidInputError(f"{error} Or give a kernel file: a path that ends in .toml.")
    else:
        found = [place_of(encoder, name, own, f"view {name!r}") for name, own in given.items()]
        for place in found or [place_of(encoder, None, list(encoder.roles_), "the table")]:
            out += family_kernels(kernels, place, by_column=not given)
    if matrices and encoder.id_column is None:
        raise InvalidInputError(
            "kernel matrices need a column of row numbers in the table: add one, and name it with "
            "TableEncoder(id_column='row')."
        )
    out += [Precomputed(K, name).on(encoder.id_column) for name, K in (matrices or {}).items()]
    if not out:
        raise InvalidInputError("there is no column that a kernel could look at.")
    return out


@dataclass(frozen=True)
class Place:
    """Columns that kernels look at together."""

    label: str  # What names call them.
    groups: dict[str, list[str]]  # Columns of the table to the numbers they became.
    strings: dict[str, dict[str, Any]]  # Columns of sequences to their alphabet and length.
    # All numbers: told by the first and the last where that is possible, so that thousands of
    # kernels on the same columns are found equal at once.
    numbers: list[str] | slice

    def string_label(self, column: str) -> str:
        """What names call a column of sequences."""
        if self.label in ("", "all columns", "all numbers"):
            return column
        return self.label if len(self.strings) == 1 else f"{self.label}: {column}"

    def each(self) -> list[Place]:
        """Every column by itself."""
        numbers = [Place(name, {name: own}, {}, _span(own)) for name, own in self.groups.items()]
        return numbers + [Place(name, {}, {name: what}, []) for name, what in self.strings.items()]


def place_of(encoder: TableEncoder, label: str | None, columns: Sequence[str], where: str) -> Place:
    """Return some columns of the table as a place; without a label they are all there are."""
    groups, strings = {}, {}
    for name in columns:
        if name not in encoder.roles_:
            raise InvalidInputError(
                f"{where}: the table has no column {name!r}{closest(name, encoder.roles_)}"
            )
        role = encoder.roles_[name]
        if role in ("number", "category"):
            groups[name] = encoder.encoded_columns_[name]
        elif role == "sequence":
            strings[name] = encoder.sequences_[name]
    has_ids = encoder.id_column is not None
    if not groups and not strings and not (label is None and has_ids):
        raise InvalidInputError(
            f"{where} has no column of use: {'; '.join(encoder.notes_) or 'none is known'}."
        )
    if label is None:
        # Names need not say what goes without saying.
        label = "all numbers" if strings else "all columns" if has_ids else ""
    chosen = [title for own in groups.values() for title in own]
    order = encoder.get_feature_names_out().tolist()
    start = order.index(chosen[0]) if chosen else 0
    beside = order[start : start + len(chosen)] == chosen
    return Place(label, groups, strings, _span(chosen) if beside else chosen)


def _span(titles: list[str]) -> Any:
    """Columns that stand side by side, by the first and the last."""
    return slice(titles[0], titles[-1]) if len(titles) > 1 else titles


def family_kernels(family: str, place: Place, by_column: bool) -> list[Kernel | Family]:
    """Return a family at a place, and string kernels for the sequences there."""
    out: list[Kernel | Family] = []
    if place.groups:
        out += _number_kernels(family, place, by_column)
    for column, what in place.strings.items():
        label = place.string_label(column)
        out += [kernel.on(column, label=label) for kernel in _default_strings(what)]
    return out


def _number_kernels(family: str, place: Place, by_column: bool) -> list[Kernel | Family]:
    at = place.numbers
    if family == "features":
        whole = [title for own in place.groups.values() for title in own]
        apart = place.groups if by_column else {place.label: whole}
        return [_scaled(RBF(gamma=1.0, name=name), own, "", at) for name, own in apart.items()]
    if family not in _BY_COLUMN:
        scaler = _SCALER if family in _UNSCALED else None
        return [NAMED_FAMILIES[family]().on(at, scaler, label=place.label)]
    make = partial(_BY_COLUMN[family], per_feature=False)
    out: list[Kernel | Family] = [make().on(at, label=place.label)]
    if by_column and len(place.groups) > 1:
        plain = make(scale=False)
        out += [_scaled(plain, own, name, at) for name, own in place.groups.items()]
    return out


def _scaled(kernel: Any, own: list[str], label: str, numbers: Any) -> Any:
    """Put a kernel on some of the numbers of a place, behind one scaler for all of them."""
    return kernel.on(own, label=label).on(numbers, _SCALER, label="")


def _default_strings(what: Mapping[str, Any]) -> list[Kernel]:
    """Return string kernels for sequences of some alphabet and, if all have the same, length."""
    alphabet, length = what["alphabet"], what["length"]
    most = 12 if alphabet == "protein" else 31
    longest = most if length is None else min(most, length)
    lengths = [k for k in _LENGTHS.get(alphabet, (2, 4, 6)) if k <= longest]
    # Counts grow with the length of a sequence; the kernel should not.
    unequal = length is None
    out: list[Kernel] = [Spectrum(k, alphabet=alphabet, normalize=unequal) for k in lengths]
    if length is not None:
        degrees = dict.fromkeys(min(degree, longest) for degree in _DEGREES)
        out += [WeightedDegree(degree, alphabet=alphabet) for degree in degrees]
    return out


def parse_views(texts: Iterable[str], columns: Sequence[str]) -> dict[str, list[str]]:
    """Read views such as ``"clinical=age,sex"`` and find their columns.

    Between commas stand names of columns, patterns such as ``gene_*`` (with ``*``, ``?`` and
    ``[abc]``) and ranges such as ``age:bmi``, from the first to the last in the order of the
    table. A name that is written as it is goes before all patterns. ``rest=*`` is all the columns
    that no other view takes; under any other name ``*`` is every column. Views may overlap.

    Parameters
    ----------
    texts : iterable of str
        Views, ``NAME=COLUMNS`` each.
    columns : sequence of str
        Columns of the table, without the target.

    Returns
    -------
    dict of str to list of str
        Names of views to their columns.

    Examples
    --------
    >>> columns = ["age", "sex", "bmi", "gene_1", "gene_2"]
    >>> parse_views(["clinical=age:bmi", "genes=gene_*"], columns)
    {'clinical': ['age', 'sex', 'bmi'], 'genes': ['gene_1', 'gene_2']}
    """
    views: dict[str, list[str]] = {}
    wants_rest = False
    for text in texts:
        name, mark, wanted = text.partition("=")
        name = name.strip()
        if not mark or not name:
            raise InvalidInputError(
                f"a view is NAME=COLUMNS, such as clinical=age,sex,gene_*; got {text!r}."
            )
        if name in views:
            raise InvalidInputError(f"view {name!r} is given twice; put its columns into one.")
        items = [item.strip() for item in wanted.split(",") if item.strip()]
        if not items:
            raise InvalidInputError(f"view {name!r} has no columns; write {name}=age,sex,gene_*.")
        if name == _REST and items == [_EVERYTHING]:
            wants_rest = True
            views[name] = []  # Keeps its place.
        else:
            views[name] = pick_columns(items, columns, f"view {name!r}")
    if wants_rest:
        taken = {column for own in views.values() for column in own}
        views[_REST] = [column for column in columns if column not in taken]
        if not views[_REST]:
            raise InvalidInputError("view 'rest' is empty: the other views take every column.")
    return views


def pick_columns(items: Sequence[str], columns: Sequence[str], where: str) -> list[str]:
    """Return the columns that names, patterns and ranges stand for, each once."""
    there = set(columns)
    listed = some_of(columns, 10)
    chosen: dict[str, None] = {}
    for item in items:
        first, is_range, last = (part.strip() for part in item.partition(":"))
        found = [item if item in there else first]
        if item in there:
            pass
        elif any(letter in item for letter in "*?["):
            found = [column for column in columns if fnmatchcase(column, item)]
            if not found:
                raise InvalidInputError(f"{where}: no column matches {item!r}. Columns: {listed}.")
        elif unknown := [end for end in (first, last) if end and end not in there]:
            raise InvalidInputError(
                f"{where}: the table has no column {unknown[0]!r}{closest(unknown[0], columns)} "
                f"Columns: {listed}."
            )
        elif is_range:
            start = columns.index(first) if first else 0
            stop = columns.index(last) if last else len(columns) - 1
            if start > stop:
                raise InvalidInputError(
                    f"{where}: the range {item!r} is empty, as {first!r} (column {start + 1}) "
                    f"comes after {last!r} (column {stop + 1})."
                )
            found = list(columns[start : stop + 1])
        chosen.update(dict.fromkeys(found))
    return list(chosen)
