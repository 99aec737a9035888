"""A table of any columns as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.packing import polars_frame
from kernelweave.kernels.samples import is_frame
from kernelweave.tables.frames import as_polars
from kernelweave.tables.roles import (
    MISSING,
    OTHER,
    ROLES,
    Column,
    as_numbers,
    as_text,
    look_at,
    look_at_numbers,
    write_notes,
)
from kernelweave.validation import closest, require_kind, require_names, some_of, unknown_name

_SHOWN = 5
# What is known of a column that is no number, by its role.
_PLANS: dict[str, dict[str, type[Any]]] = {
    "category": {"values": list, "other": bool, "missing": bool},
    "sequence": {"fill": str},
}


class TableEncoder(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Turn the columns of a table into numbers, and say what was done.

    Each column gets a role:

    * number: missing values are filled with the median; if more than 5 % are missing, a column
      such as "age missing" says where.
    * category (text with few values, booleans, categorical types): a column of zeros and ones for
      each value, "colour=red". Missing values are a value ("colour=missing") if there were any in
      training. Of more than 50 values the rarest go together as "colour=other".
    * sequence (DNA, RNA or protein): text that stays as it is, for string kernels.
    * nothing, left out: a value that is the same in every row, no values, dates, text that is
      different in (nearly) every row, and whole numbers that are and are called "id" or the like.

    Parameters
    ----------
    roles : dict, default=None
        Roles of columns that know better: ``{"zip code": "category", "born": "nothing"}``.
    id_column : str, default=None
        A column that passes through as it is, last: the row numbers that precomputed kernels read.

    Attributes
    ----------
    roles_ : dict
        Column to role: "number", "category", "sequence", "nothing" or "id".
    encoded_columns_ : dict
        Column to the list of the columns it became.
    sequences_ : dict
        Column of sequences to its "alphabet" and its "length", if all have the same, or None.
    notes_ : list of str
        What was done, in one line each: missing values, categories, sequences, what was left out.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Their names.

    Examples
    --------
    >>> table = pl.DataFrame({"age": [31, None, 40], "colour": ["red", "blue", "red"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.transform(table).rows()
    [(31.0, 0.0, 0.0, 1.0), (35.5, 1.0, 1.0, 0.0), (40.0, 0.0, 0.0, 1.0)]
    >>> for line in encoder.notes_:
    ...     print(line)
    1 column has missing values: age (1); filled with the median, with a column that says where
    1 categorical column one-hot encoded: colour (2 values)
    """

    roles_: dict[str, str]
    encoded_columns_: dict[str, list[str]]
    sequences_: dict[str, dict[str, Any]]
    notes_: list[str]

    def __init__(self, roles: dict[str, str] | None = None, id_column: str | None = None) -> None:
        self.roles = roles
        self.id_column = id_column

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Decide what each column is.

        Parameters
        ----------
        X : pandas or polars DataFrame, or 2-D array
            The table, without the target.
        y : ignored
        """
        frame = as_polars(X)
        _check_size(frame)
        asked = self._asked(frame.columns)
        found = self._look(frame, asked)
        self.n_features_in_ = frame.width
        if is_frame(X):
            self.feature_names_in_ = np.array(frame.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._names = list(frame.columns)
        self.roles_ = {name: column.role for name, column in found.items()}
        plans = {name: column.plan for name, column in found.items() if column.plan}
        self._set_plans(plans)
        self.sequences_ = {
            name: {"alphabet": plan["alphabet"], "length": plan["length"]}
            for name, plan in plans.items()
            if self.roles_[name] == "sequence"
        }
        self._name_outputs()
        self.notes_ = write_notes(found, frame)
        if not any(self.encoded_columns_.values()):
            alone = " (of 1 sample nothing can be learnt)" if frame.height == 1 else ""
            raise InvalidInputError(
                f"no column of the table is of use{alone}: {self.notes_[-1]}. Say what a column is "
                f"with roles={{'name': 'category'}}."
            )
        return self

    def _look(self, frame: pl.DataFrame, asked: dict[str, str]) -> dict[str, Column]:
        said = {name for name, role in asked.items() if role == "number"}
        names = frame.columns
        pairs = zip(names, frame.dtypes, strict=True)
        plain = {name for name, kind in pairs if kind.is_numeric()}
        wanted = ((plain - asked.keys()) | said) - {self.id_column}
        found = look_at_numbers(_chosen(frame, [name for name in names if name in wanted]), said)
        for name in names:
            if name == self.id_column:
                found[name] = Column("id", {}, 0)
            elif name not in found:
                found[name] = look_at(frame[name], asked.get(name))
        return {name: found[name] for name in names}

    def _asked(self, names: Sequence[str]) -> dict[str, str]:
        asked = {} if self.roles is None else self.roles
        if not isinstance(asked, dict):
            raise InvalidInputError(f"roles must be a dict of column to role; got {asked!r}.")
        there = set(names)
        for name, role in asked.items():
            if name not in there:
                raise InvalidInputError(
                    f"roles names a column {name!r} that the table has not"
                    f"{closest(str(name), names)}"
                )
            if role not in ROLES:
                raise unknown_name(f"role of column {name!r}", role, ROLES)
        if self.id_column is not None and self.id_column not in names:
            raise InvalidInputError(
                f"the table has no column {self.id_column!r} (id_column)"
                f"{closest(str(self.id_column), names)}"
            )
        return asked

    def _set_plans(self, plans: dict[str, dict[str, Any]]) -> None:
        """Keep those of numbers as arrays, for there may be very many."""
        numbers = [plans[name] for name in self._number_names()]
        self._plans = {n: plan for n, plan in plans.items() if self.roles_[n] in _PLANS}
        self._number_plans = {
            "fill": np.array([plan["fill"] for plan in numbers], dtype=np.float64),
            "indicator": np.array([plan["indicator"] for plan in numbers], dtype=bool),
        }

    def _number_names(self) -> list[str]:
        return [name for name in self._names if self.roles_[name] == "number"]

    def _name_outputs(self) -> None:
        """Name the columns that come out, each name once: numbers, then sequences, then the ids."""
        taken: set[str] = set()
        by_role: dict[str, list[str]] = {}
        self.encoded_columns_ = {}
        flags = dict(zip(self._number_names(), self._number_plans["indicator"], strict=True))
        for name in self._names:
            role = self.roles_[name]
            titles = [] if role == "nothing" else [name]
            if role == "category":
                titles = [f"{name}={value}" for value in _values(self._plans[name])]
            elif flags.get(name):
                titles.append(f"{name} missing")
            own = [_free(title, taken) for title in titles]
            self.encoded_columns_[name] = own
            by_role.setdefault("number" if role == "category" else role, []).extend(own)
        self._numbers = by_role.get("number", [])
        self._outputs = [*self._numbers, *by_role.get("sequence", []), *by_role.get("id", [])]

    def _file_state(self) -> dict[str, Any]:
        """The state without what follows from the rest."""
        derived = ("encoded_columns_", "_numbers", "_outputs")
        return {n: value for n, value in super().__getstate__().items() if n not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_names" in state and "_number_plans" not in state:
            self._set_plans(self._plans)  # A file of an earlier version.

    def _after_load(self) -> None:
        if not hasattr(self, "_names"):
            return
        require_names("the columns of the table", self._names, self.n_features_in_)
        for name in self._names:
            role = self.roles_[name]
            if role not in (*ROLES, "id"):
                raise unknown_name(f"role of column {name!r}", role, ROLES)
            for entry, kind in _PLANS.get(role, {}).items():
                require_kind(f"{entry!r} of column {name!r}", self._plans[name][entry], kind)
            if role == "category":
                values = self._plans[name]["values"]
                require_names(f"values of column {name!r}", values, len(values))
        count = len(self._number_names())
        for entry, dtype in (("fill", np.float64), ("indicator", np.bool_)):
            found = self._number_plans[entry]
            require_kind(f"{entry!r} of the numbers", found, np.ndarray)
            if found.shape != (count,) or found.dtype != dtype:
                raise InvalidInputError(f"{entry!r} of the numbers does not fit {count} columns.")
        self._name_outputs()

    def transform(self, X: Any) -> pl.DataFrame:
        """Return the table as numbers (and text of sequences).

        Parameters
        ----------
        X : pandas or polars DataFrame, or 2-D array
            The table; columns may come in another order, and others may be there too.

        Returns
        -------
        polars.DataFrame
            Columns of float64, then those of sequences, then the ids.
        """
        check_is_fitted(self)
        frame = as_polars(X)
        self._check_columns(X, frame)
        place = {title: j for j, title in enumerate(self._numbers)}
        numbers = np.empty((frame.height, len(place)), order="F")
        self._fill_numbers(frame, numbers, place)
        others: dict[str, pl.Series] = {}
        strange: dict[str, list[str]] = {}
        for name in self._names:
            role, titles = self.roles_[name], self.encoded_columns_[name]
            if role == "category":
                text, unseen = _as_known(frame[name], self._plans[name])
                for title, value in zip(titles, _values(self._plans[name]), strict=True):
                    numbers[:, place[title]] = (text == value).fill_null(False).to_numpy()
                if unseen:
                    strange[name] = unseen
            elif role == "sequence":
                others[titles[0]] = as_text(frame[name]).fill_null(self._plans[name]["fill"])
            elif role == "id":
                others[titles[0]] = frame[name]
        if strange:
            _warn_unseen(strange)
        rest = [others[title].alias(title) for title in self._outputs[len(place) :]]
        return polars_frame(numbers, self._numbers).hstack(rest) if place else pl.DataFrame(rest)

    def _fill_numbers(self, frame: pl.DataFrame, out: Array, place: dict[str, int]) -> None:
        """Write the columns of numbers where they belong, missing values filled."""
        names = self._number_names()
        if not names:
            return
        frame = _chosen(frame, names)
        values = as_numbers(frame)
        missing = np.isnan(values)
        for j, (name, kind) in enumerate(zip(names, frame.dtypes, strict=True)):
            if not kind.is_numeric():
                _check_number(frame[name], missing[:, j])
        np.copyto(values, self._number_plans["fill"], where=missing)
        titles = [self.encoded_columns_[name] for name in names]
        out[:, [place[own[0]] for own in titles]] = values
        flagged = np.flatnonzero(self._number_plans["indicator"])
        out[:, [place[titles[j][1]] for j in flagged]] = missing[:, flagged]

    def _check_columns(self, X: Any, frame: pl.DataFrame) -> None:
        _check_size(frame)
        if not is_frame(X) and frame.width != self.n_features_in_:
            # The words are scikit-learn's.
            raise InvalidInputError(
                f"X has {frame.width} features, but TableEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        needed = [name for name in self._names if self.roles_[name] != "nothing"]
        there = set(frame.columns)
        missing = [name for name in needed if name not in there]
        if missing:
            others = there.difference(self._names)
            more = f" ({len(missing)} columns are missing)" if len(missing) > 1 else ""
            raise InvalidInputError(
                f"the table has no column {missing[0]!r}, which the model was trained on{more}"
                f"{closest(missing[0], others)}"
            )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` gives.

        Parameters
        ----------
        input_features : sequence of str, default=None
            Only checked: the columns the table had in `fit`.
        """
        check_is_fitted(self)
        if input_features is not None and list(input_features) != self._names:
            raise InvalidInputError(
                f"input_features is not equal to feature_names_in_: {self._names!r}."
            )
        return np.array(self._outputs, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _check_size(frame: pl.DataFrame) -> None:
    if frame.height == 0 or frame.width == 0:
        # The words "Found array with 0 ..." are scikit-learn's.
        what = "sample" if frame.height == 0 and frame.width else "feature"
        raise InvalidInputError(
            f"Found array with 0 {what}(s) (shape={frame.shape}) while a minimum of 1 is required."
        )


def _chosen(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The columns of these names; to select very many takes long, even if it is all of them."""
    return frame if names == frame.columns else frame.select(names)


def _values(plan: dict[str, Any]) -> list[str]:
    """The values of a category that have columns of their own."""
    extra = [OTHER] if plan["other"] else []
    if plan["missing"] and MISSING not in plan["values"]:
        extra.append(MISSING)
    return [*plan["values"], *extra]


def _free(title: str, taken: set[str]) -> str:
    out, number = title, 2
    while out in taken:
        out, number = f"{title} ({number})", number + 1
    taken.add(out)
    return out


def _check_number(column: pl.Series, missing: Flags) -> None:
    """Refuse what is no number in a column that held numbers."""
    wrong = column.filter(column.is_not_null() & pl.Series(missing))
    if column.dtype == pl.String:
        wrong = as_text(wrong).drop_nulls()
    if len(wrong) and column.dtype != pl.Boolean:
        raise InvalidInputError(
            f"column {column.name!r} held numbers in training; got {wrong[0]!r}."
        )


def _as_known(column: pl.Series, plan: dict[str, Any]) -> tuple[pl.Series, list[str]]:
    """A category as text with its rare values as one, and those that training did not have."""
    text = as_text(column)
    if plan["missing"]:
        text = text.fill_null(MISSING)
    known = [*plan["values"], MISSING] if plan["missing"] else plan["values"]
    unseen = sorted(set(text.drop_nulls().unique().to_list()).difference(known))
    if plan["other"] and unseen:
        return text.set(text.is_in(unseen), OTHER), []
    return text, unseen


def _warn_unseen(strange: dict[str, list[str]]) -> None:
    told = [f"{name} ({some_of(map(repr, v), _SHOWN)})" for name, v in strange.items()]
    warnings.warn(
        f"values that were not there in training count as none of the known ones: "
        f"{some_of(told, _SHOWN)}.",
        UserWarning,
        stacklevel=3,
    )
