"""Views: named groups of columns, as they are written on a command line or in a kernel file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from kernelweave.errors import InvalidInputError
from kernelweave.tables.frames import closest

__all__ = ["parse_views", "pick_columns"]

_EVERYTHING, _REST = "*", "rest"


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
    chosen: dict[str, None] = {}
    for item in items:
        if item in there:
            found = [item]
        elif any(letter in item for letter in "*?["):
            found = [column for column in columns if fnmatchcase(column, item)]
            if not found:
                raise InvalidInputError(f"{where}: no column matches {item!r}. {_listed(columns)}")
        elif ":" in item:
            found = _range(item, columns, where)
        else:
            raise _no_column(item, columns, where)
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _range(item: str, columns: Sequence[str], where: str) -> list[str]:
    first, _, last = (part.strip() for part in item.partition(":"))
    for end in (first, last):
        if end and end not in columns:
            raise _no_column(end, columns, where)
    start = columns.index(first) if first else 0
    stop = columns.index(last) if last else len(columns) - 1
    if start > stop:
        raise InvalidInputError(
            f"{where}: the range {item!r} is empty, as {first!r} (column {start + 1}) comes after "
            f"{last!r} (column {stop + 1})."
        )
    return list(columns[start : stop + 1])


def _no_column(item: str, columns: Sequence[str], where: str) -> InvalidInputError:
    return InvalidInputError(
        f"{where}: the table has no column {item!r}{closest(item, columns)} {_listed(columns)}"
    )


def _listed(columns: Sequence[str]) -> str:
    some = ", ".join(columns[:10])
    more = "" if len(columns) <= 10 else f", ... ({len(columns)})"
    return f"Columns: {some}{more}."
