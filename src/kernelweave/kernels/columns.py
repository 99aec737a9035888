"""Columns of the data: which ones a user means, and what a transformer makes of them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, clone

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel, comparable, not_bound
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.names import all_bool, describe_columns, describe_request, items_of
from kernelweave.kernels.samples import Samples, refuse_huge
from kernelweave.validation import require_kind, require_names, unknown_name

_ALLOWED = (
    "an index, a name, a list of indices or names, a slice, a boolean mask, or a callable that "
    "takes X and returns one of these"
)


@dataclass(eq=False, repr=False)
class Selection:
    """Which columns, and what is done to them: the unbound half of a `Block`.

    Parameters
    ----------
    columns : int, str, list of int or str, slice, boolean mask or callable
        The columns, as in ``kernel.on``.
    transformer : scikit-learn transformer, default=None
        Cloned and fitted on the chosen columns when bound.
    label : str, optional
        What kernel names show instead of the columns; "" shows nothing.

    Examples
    --------
    >>> block = Selection(slice(1, 3)).bind(Samples([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    >>> block.label
    'columns 1-2'
    """

    columns: Any
    transformer: Any = None
    label: str | None = None

    @property
    def _plain_columns(self) -> Any:
        # Arrays and pandas' Index are given as readily as lists.
        return self.columns.tolist() if hasattr(self.columns, "tolist") else self.columns

    def _file_state(self) -> dict[str, Any]:
        return {**self.__dict__, "columns": self._plain_columns}

    def _after_load(self) -> None:
        require_kind("the label of a selection", self.label, (str, type(None)))
        if self.transformer is not None:
            _check_transformer(self.transformer)
        hash(self)

    def bind(self, samples: Samples) -> Block:
        """Find the columns and fit the transformer, once for all equal selections."""
        # By identity first: comparing selections takes longer. That it is kept here keeps its id.
        known: tuple[Selection, Block] | None = samples.bound.get(id(self))
        if known is None:
            block = samples.bound.get(self)
            if block is None:
                block = samples.bound[self] = self._fit(samples)
            known = samples.bound[id(self)] = self, block
        return known[1]

    def _fit(self, samples: Samples) -> Block:
        indices = choose_columns(self.columns, samples)
        label = self.text(describe_columns(indices, samples.columns))
        names = None if samples.columns is None else [samples.columns[j] for j in indices]
        if self.transformer is None:
            # However a user wrote the columns, kernels on the same ones share a block.
            own = (label, *indices)
            return samples.bound.setdefault(own, Block(indices, samples.n_columns, names, label))
        _check_transformer(self.transformer)
        fitted = clone(self.transformer)
        part = Block(indices, samples.n_columns, names, label).native(samples)
        refuse_huge(part, indices)
        try:
            fitted.fit(part)
        except Exception as error:
            error.add_note(f"while fitting {fitted!r} on {label or 'all columns'}")
            raise
        return Block(indices, samples.n_columns, names, label, fitted)

    def text(self, columns: str) -> str:
        """Return what a kernel name shows for these columns."""
        if self.label is not None:
            return self.label
        return columns if self.transformer is None else f"{columns} via {_title(self.transformer)}"

    def _columns_key(self) -> Any:
        columns = self._plain_columns
        # True and 1 are equal, but a mask and a list of indices are not.
        return isinstance(columns, list) and all_bool(columns), comparable(columns)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Selection)
            and self.label == other.label
            and self._columns_key() == other._columns_key()
            and _same_transformer(self.transformer, other.transformer)
        )

    def __hash__(self) -> int:
        return hash((self._columns_key(), type(self.transformer)))

    def __repr__(self) -> str:
        second = "" if self.transformer is None else f", {self.transformer!r}"
        return f"{self.columns!r}{second}"


@dataclass(eq=False)
class Block:
    """A bound selection: column positions, and a fitted transformer or None.

    Blocks are the keys under which kernels share what they compute: kernels bound to the same
    samples through equal selections, or without a transformer to the same columns, have the same.

    Parameters
    ----------
    indices : list of int
        Positions of the columns.
    n_columns : int
        Number of columns of the data they were chosen from.
    names : list of str or None
        Names of the chosen columns.
    label : str
        What kernel names show.
    transformer : fitted transformer, default=None
        Applied to the chosen columns.

    Examples
    --------
    >>> block = Block([2, 0], 3, None, "columns 0, 2")
    >>> block.apply(Samples([[1.0, 2.0, 3.0]])).array()
    array([[3., 1.]])
    """

    indices: list[int]
    n_columns: int
    names: list[str] | None
    label: str
    transformer: Any = None

    def _after_load(self) -> None:
        for j in self.indices:
            require_kind("a column of a block", j, Integral)
        if not self.indices or not 0 <= min(self.indices) <= max(self.indices) < self.n_columns:
            raise InvalidInputError(
                f"a block must have columns from 0 to {self.n_columns - 1}; got {self.indices!r}."
            )
        if self.names is not None:
            require_names("the columns of a block", self.names, len(self.indices))
        if self.transformer is not None:
            _check_transformer(self.transformer)

    def apply(self, samples: Samples) -> Samples:
        """Return samples seen through this block."""
        if self.transformer is None:
            if self._positions(samples) == list(range(self.n_columns)):
                return samples
            return Samples(self.native(samples))
        part = self.native(samples)
        refuse_huge(part, self.indices)
        out = self.transformer.transform(part)
        if getattr(out, "ndim", 2) != 2:
            raise InvalidInputError(
                f"{_title(self.transformer)} on {self.label or 'all columns'} must give a 2-D "
                f"array; got shape {np.shape(out)}."
            )
        transformed = Samples(out)
        if transformed.columns is None and self.names is not None:
            transformed.columns = self._names_out(transformed.n_columns)
        return transformed

    def native(self, samples: Samples) -> Any:
        """Return the chosen columns in the type of the data."""
        data, chosen = samples.native, self._positions(samples)
        if hasattr(data, "iloc"):
            return data.iloc[:, chosen]
        if isinstance(data, np.ndarray) and chosen == list(range(chosen[0], chosen[-1] + 1)):
            return data[:, chosen[0] : chosen[-1] + 1]
        if hasattr(data, "schema") and chosen == list(range(samples.n_columns)):
            return data  # A frame of polars: nothing can be written into it.
        return data[:, chosen]

    def _positions(self, samples: Samples) -> list[int]:
        if samples.n_columns != self.n_columns:
            raise InvalidInputError(
                f"the kernel was bound to data with {self.n_columns} columns; "
                f"got {samples.n_columns}."
            )
        if self.names is None or samples.columns is None:
            return self.indices
        # Frames may come with their columns in another order.
        if [samples.columns[j] for j in self.indices] == self.names:
            return self.indices
        missing = [name for name in self.names if name not in samples.places]
        if missing:
            raise InvalidInputError(f"X has no column {missing[0]!r}, which the kernel needs.")
        return [samples.places[name][0] for name in self.names]

    def _names_out(self, count: int) -> list[str] | None:
        if isinstance(self.transformer, OneToOneFeatureMixin):
            return self.names
        try:
            names = [str(name) for name in self.transformer.get_feature_names_out()]
        except Exception:
            # Names only decorate: a transformer that cannot give them is as good as any.
            return None
        return names if len(names) == count else None


def _title(transformer: Any) -> str:
    steps = getattr(transformer, "steps", None)
    if isinstance(steps, list):
        return "+".join(type(step).__name__ for _, step in steps)
    return type(transformer).__name__


def _check_transformer(transformer: Any) -> None:
    ready = all(hasattr(transformer, method) for method in ("fit", "transform", "get_params"))
    if isinstance(transformer, type) or not ready:
        raise InvalidInputError(
            f"transformer must be a scikit-learn transformer such as StandardScaler(); "
            f"got {transformer!r}."
        )


def _same_transformer(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if first is None or type(first) is not type(second):
        return False
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except Exception:
        # Not comparable (a lambda inside): fitted twice, which is slower but right.
        return False


class OnColumns(Kernel):
    r"""A kernel on chosen columns of the data, written ``kernel.on(columns, transformer)``.

    .. math:: k(x, x') = k_0(T(x_S), T(x'_S))

    with the columns S and the transformer T, fitted on the training samples (the identity if none
    is given). ``kernel.on(a).on(b)`` applies b to the data first, and a to what b gives.

    Parameters
    ----------
    kernel : Kernel
        The kernel :math:`k_0`.
    selection : Selection
        Columns and transformer.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from kernelweave.kernels import Linear
    >>> frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]})
    >>> colours = Linear().on("colour", OneHotEncoder())
    >>> colours.name
    'linear on colour via OneHotEncoder'
    >>> colours(frame)
    array([[1., 0., 1.],
           [0., 1., 0.],
           [1., 0., 1.]])
    """

    def __init__(self, kernel: Kernel, selection: Selection) -> None:
        self.kernel = kernel
        self.selection = selection
        self._block: Block | None = None

    @property
    def name(self) -> str:
        inner = self.kernel.name
        if self.kernel.core.reads_ids:
            return inner
        asked, block = self.selection, self._block
        label = asked.text(describe_request(asked.columns)) if block is None else block.label
        if not label:
            return inner
        return f"({inner}) on {label}" if self._of_several else f"{inner} on {label}"

    @property
    def _of_several(self) -> bool:
        return hasattr(self.kernel, "parts")  # A sum or a product.

    def bind(self, samples: Samples) -> OnColumns:
        block = self.selection.bind(samples)
        out = OnColumns(self.kernel.bind(samples.derive(block)), self.selection)
        out._block = block
        return out

    def _after_load(self) -> None:
        require_kind("the kernel on some columns", self.kernel, Kernel)
        require_kind("a selection of columns", self.selection, Selection)
        require_kind("a block of columns", self._block, (Block, type(None)))
        super()._after_load()

    @property
    def _bound(self) -> Block:
        if self._block is None:
            raise not_bound(self.name)
        return self._block

    @cached_property
    def path(self) -> tuple[Any, ...]:
        return (self._bound, *self.kernel.path)

    @cached_property
    def core(self) -> Kernel:
        return self.kernel.core

    def evaluate(self, pair: Pair) -> Array:
        return self.core.evaluate(pair.through(self.path))

    def diagonal(self, samples: Samples) -> Array:
        return self.core.diagonal(samples.through(self.path))

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if self._of_several else repr(self.kernel)
        return f"{inner}.on({self.selection!r})"

    @classmethod
    def examples(cls) -> list[Kernel]:
        from sklearn.preprocessing import StandardScaler

        from kernelweave.kernels.vectors import RBF, Linear

        return [
            RBF(width=1).on([0, 2]),
            Linear().on(slice(1, None), StandardScaler()),
            (RBF(gamma=1) * Linear()).on(1),
            RBF(gamma=1).on(1).on([0, 2], StandardScaler()),
        ]


# Which columns a user means, and what names call them


def choose_columns(columns: Any, samples: Samples) -> list[int]:
    """Return the positions of the columns that a user means by `columns`."""
    if callable(columns):
        columns = columns(samples.native)
    items = items_of(columns)
    if isinstance(columns, slice):
        start, stop = columns.start, columns.stop
        start = _position(start, samples) if isinstance(start, str) else start
        # By name the last column is included, as in pandas and scikit-learn.
        stop = _position(stop, samples) + 1 if isinstance(stop, str) else stop
        try:
            chosen = list(range(samples.n_columns)[start : stop : columns.step])
        except TypeError as error:
            raise InvalidInputError(f"columns must be {_ALLOWED}; got {columns!r}.") from error
    elif items is None or isinstance(columns, bool | dict | bytes):
        raise InvalidInputError(f"columns must be {_ALLOWED}; got {columns!r}.")
    elif items and all_bool(items):
        if len(items) != samples.n_columns:
            raise InvalidInputError(
                f"a boolean mask needs one entry for each of the {samples.n_columns} columns of "
                f"X; got {len(items)}."
            )
        chosen = [j for j, kept in enumerate(items) if kept]
    else:
        chosen = [_position(item, samples) for item in items]
    if not chosen:
        raise InvalidInputError(f"columns {columns!r} select no column of X.")
    return chosen


def _position(item: Any, samples: Samples) -> int:
    if isinstance(item, str):
        if samples.columns is None:
            raise InvalidInputError(
                f"column {item!r} was asked for by name, but X has no column names; use indices, "
                f"or pass a DataFrame."
            )
        places = samples.places.get(item, [])
        if not places:
            raise unknown_name("column", item, samples.columns)
        if len(places) > 1:
            raise InvalidInputError(f"X has several columns named {item!r}; use indices.")
        return places[0]
    if isinstance(item, Integral) and not isinstance(item, bool | np.bool_):
        p = samples.n_columns
        if not -p <= int(item) < p:
            raise InvalidInputError(
                f"column {int(item)} does not exist: X has {p} columns, 0 to {p - 1}."
            )
        return int(item) % p
    raise InvalidInputError(f"columns must be {_ALLOWED}; got an item {item!r}.")
