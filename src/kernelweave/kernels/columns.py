"""A kernel on chosen columns, with an optional transformer fitted on them first."""

from __future__ import annotations

import copy
import pickle
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin, clone

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel, LookUp, Terms, comparable, no_exponent
from kernelweave.kernels.choose import choose_columns, describe_columns, describe_request
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.sample_checks import refuse_huge
from kernelweave.kernels.samples import Samples
from kernelweave.validation import require_kind, require_names

__all__ = ["Block", "OnColumns", "Selection"]


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

    def __init__(self, columns: Any, transformer: Any = None, label: str | None = None) -> None:
        self.columns = columns
        self.transformer = transformer
        self.label = label

    def _file_state(self) -> dict[str, Any]:
        # An Index of pandas is given as readily as a list.
        columns = self.columns
        if hasattr(columns, "tolist") and not isinstance(columns, np.ndarray | np.generic):
            columns = columns.tolist()
        return {**self.__dict__, "columns": columns}

    def _after_load(self) -> None:
        require_kind("the label of a selection", self.label, (str, type(None)))
        if self.transformer is not None:
            _check_transformer(self.transformer)
        hash(self)

    def bind(self, samples: Samples) -> Block:
        """Find the columns and fit the transformer, once for all equal selections."""
        known = samples.bound.get(self)
        if known is None:
            known = samples.bound[self] = self._fit(samples)
        return known

    def _fit(self, samples: Samples) -> Block:
        indices = choose_columns(self.columns, samples)
        label = self.text(describe_columns(indices, samples))
        names = None if samples.columns is None else [samples.columns[j] for j in indices]
        if self.transformer is None:
            return Block(indices, samples.n_columns, names, label)
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
        if isinstance(self.columns, np.ndarray):
            return (str(self.columns.dtype), tuple(self.columns.tolist()))
        # True and 1 are equal, but a mask and a list of indices are not.
        kind = bool if isinstance(self.columns, list) and _all_bool(self.columns) else None
        return (kind, comparable(self.columns))

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


class Block:
    """A bound selection: column positions, and a fitted transformer or None.

    Blocks are the keys under which kernels share what they compute. Without a transformer two
    blocks are equal if their columns are; with one only if they hold the same fitted object.

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

    def __init__(
        self,
        indices: list[int],
        n_columns: int,
        names: list[str] | None,
        label: str,
        transformer: Any = None,
    ) -> None:
        self.indices = tuple(indices)
        self.n_columns = n_columns
        self.names = names
        self.label = label
        self.transformer = transformer
        self._set_key()

    def _set_key(self) -> None:
        which = None if self.transformer is None else id(self.transformer)
        self._key = (self.indices, self.n_columns, which)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Block) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Without the key, because the identity of the transformer is part of it.
        names = ("n_columns", "names", "label", "transformer")
        return {"indices": list(self.indices), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.indices = tuple(self.indices)
        self._set_key()

    def _after_load(self) -> None:
        require_kind("the number of columns of a block", self.n_columns, Integral)
        for j in self.indices:
            require_kind("a column of a block", j, Integral)
        if not self.indices or not 0 <= min(self.indices) <= max(self.indices) < self.n_columns:
            raise InvalidInputError(
                f"a block must have columns from 0 to {self.n_columns - 1}; got {self.indices!r}."
            )
        require_kind("the label of a block", self.label, str)
        if self.names is not None:
            require_names("the columns of a block", self.names, len(self.indices))
        if self.transformer is not None:
            _check_transformer(self.transformer)

    @property
    def _everything(self) -> bool:
        return self.indices == tuple(range(self.n_columns))

    def apply(self, samples: Samples) -> Samples:
        """Return samples seen through this block."""
        if self.transformer is None:
            if self._everything and self._positions(samples) == self.indices:
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
        data, chosen = samples.native, list(self._positions(samples))
        if hasattr(data, "iloc"):
            return data.iloc[:, chosen]
        if not sparse.issparse(data) and not isinstance(data, np.ndarray):
            # A frame of polars: nothing can be written into it.
            everything = chosen == list(range(samples.n_columns))
            return data if everything else data[:, chosen]
        if sparse.issparse(data):
            return data[:, chosen]
        steps = np.diff(chosen)
        if len(chosen) == 1 or (steps == 1).all():
            return data[:, chosen[0] : chosen[-1] + 1]
        return data[:, chosen]

    def _positions(self, samples: Samples) -> tuple[int, ...]:
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
        return tuple(samples.places[name][0] for name in self.names)

    def _names_out(self, count: int) -> list[str] | None:
        if isinstance(self.transformer, OneToOneFeatureMixin):
            return self.names
        try:
            names = [str(name) for name in self.transformer.get_feature_names_out()]
        except Exception:
            # Names only decorate: a transformer that cannot give them is as good as any.
            return None
        return names if len(names) == count else None


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
        from kernelweave.kernels.algebra import Compound

        inner = self.kernel.name
        if self.kernel.reads_ids:
            return inner
        if self._block is not None:
            label = self._block.label
        else:
            label = self.selection.text(describe_request(self.selection.columns))
        if not label:
            return inner
        compound = isinstance(self.kernel, Compound)
        return f"({inner}) on {label}" if compound else f"{inner} on {label}"

    def bind(self, samples: Samples) -> OnColumns:
        out = copy.copy(self)
        out._block = self.selection.bind(samples)
        out.kernel = self.kernel.bind(samples.derive(out._block))
        return out

    def _after_load(self) -> None:
        super()._after_load()
        require_kind("the kernel on some columns", self.kernel, Kernel)
        require_kind("a selection of columns", self.selection, Selection)
        require_kind("a block of columns", self._block, (Block, type(None)))

    def check_bound(self, samples: Samples) -> None:
        self.kernel.check_bound(samples.derive(self._bound))

    @property
    def _bound(self) -> Block:
        if self._block is None:
            raise InvalidInputError(
                f"kernel '{self.name}' must be bound to training samples first: "
                "kernel.bind(Samples(X)), or call kernel(X)."
            )
        return self._block

    @property
    def path(self) -> tuple[Any, ...]:
        return (self._bound, *self.kernel.path)

    @property
    def core(self) -> Kernel:
        return self.kernel.core

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        return self.kernel.evaluate(pair.on(self._bound))

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return self.kernel.diagonal(samples.derive(self._bound))

    @property
    def has_exponent(self) -> bool:
        return self.kernel.has_exponent

    def exponent(self, pair: Pair) -> NDArray[Any]:
        if not self.has_exponent:
            raise no_exponent(self.name)
        return self.kernel.exponent(pair.on(self._bound))

    def exponent_terms(self) -> list[tuple[tuple[Any, ...], Kernel]]:
        return [((self._bound, *path), leaf) for path, leaf in self.kernel.exponent_terms()]

    def weigh(
        self, samples: Samples, v: NDArray[np.float64], terms: Terms | None = None
    ) -> LookUp | None:
        cores = None if terms is None else [(kernel.kernel, factor) for kernel, factor in terms]
        inner = self.kernel.weigh(samples.derive(self._bound), v, cores)
        return None if inner is None else lambda new: inner(new.derive(self._bound))

    @property
    def merge_key(self) -> Any:
        key = self.kernel.merge_key
        return None if key is None else (self._bound, key)

    def ids(self, samples: Samples) -> NDArray[np.intp] | None:
        return self.kernel.ids(samples.derive(self._bound))

    @property
    def reads_ids(self) -> bool:  # type: ignore[override]
        return self.kernel.reads_ids

    def _parameters(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "selection": self.selection}

    def __repr__(self) -> str:
        from kernelweave.kernels.algebra import Compound

        inner = f"({self.kernel!r})" if isinstance(self.kernel, Compound) else repr(self.kernel)
        return f"{inner}.on({self.selection!r})"

    @classmethod
    def examples(cls) -> list[Kernel]:
        from sklearn.preprocessing import StandardScaler

        from kernelweave.kernels.inner_product import Linear
        from kernelweave.kernels.rbf import RBF

        return [
            RBF(width=1).on([0, 2]),
            Linear().on(slice(1, None), StandardScaler()),
            (RBF(gamma=1) * Linear()).on(1),
            RBF(gamma=1).on(1).on([0, 2], StandardScaler()),
        ]


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


def _all_bool(items: list[Any]) -> bool:
    return all(isinstance(item, bool | np.bool_) for item in items)
