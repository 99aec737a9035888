"""What a kernel is: a description that can be bound to data and evaluated on pairs of rows."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.columns import Block, Selection, comparable, describe_request
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.validation import require_kind

if TYPE_CHECKING:
    from kernelweave.kernels.algebra import Product, Sum
    from kernelweave.kernels.evaluate import Pair
    from kernelweave.kernels.vectors import ElementwiseForm

__all__ = [
    "Kernel",
    "LookUp",
    "OnColumns",
    "Terms",
    "no_exponent",
    "numbered",
    "unique_names",
]

# Values of new samples, and the kernels of a weighted sum, each with its factor.
LookUp = Callable[[Samples], NDArray[np.float64]]
Terms = Sequence[tuple[Any, float]]


class Kernel(ABC):
    """Base class of all kernels.

    A kernel is an immutable description. ``bind`` freezes what has to be learnt from the training
    samples (columns, transformers, scales); ``evaluate`` and ``diagonal`` work on bound kernels.
    A new kernel is one small subclass with ``name``, ``evaluate`` and ``diagonal``; it joins
    ``Kernel.registry``, and with it the contract tests, by being defined.

    Two kernels are equal if their parameters are (matrices count as equal only if they are the
    same object). ``sklearn.base.clone`` returns a kernel itself.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Linear, RBF
    >>> X = np.array([[0.0, 1.0], [1.0, 1.0]])
    >>> Linear()(X)
    array([[1., 1.],
           [1., 2.]])
    >>> (RBF(width=2).on(0) * Linear()).name
    'rbf(width=2) on column 0 * linear'
    """

    registry: ClassVar[list[type[Kernel]]] = []
    # Whether it reads a column of sample ids, because it is known by a matrix.
    reads_ids: ClassVar[bool] = False
    # Whether it is exp(-D) with a distance D, so that `exponent` has an answer.
    has_exponent: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Abstractness is only known after the class exists, so readers of the registry skip
        # abstract classes with inspect.isabstract.
        Kernel.registry.append(cls)

    @property
    @abstractmethod
    def name(self) -> str:
        """Readable name, shown in every output."""

    @abstractmethod
    def evaluate(self, pair: Pair) -> NDArray[Any]:
        """Return the values for a pair of sets of rows, shape (q, n), in ``pair.dtype``.

        The array may be shared with other kernels: do not write into it.
        """

    @abstractmethod
    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        """Return k(x, x) for every sample."""

    def bind(self, samples: Samples) -> Kernel:
        """Return the kernel with everything it learns from training samples frozen."""
        return self

    def _after_load(self) -> None:
        """Raise unless the parameters, which came from a file, are there and allowed."""
        _ = self.name

    def check_bound(self, samples: Samples) -> None:
        """Raise unless this bound kernel, which came from a file, fits its training samples."""
        self.bind(samples)
        if self.form() is not None:
            samples.array()  # Raises unless these are finite numbers.

    @classmethod
    def examples(cls) -> list[Kernel]:
        """Return small instances for the contract tests."""
        return [cls()]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        """Return data the examples can be evaluated on."""
        return rng.normal(size=(12, 3))

    # Kernels of the form exp(-D), for products of kernels

    def exponent(self, pair: Pair) -> NDArray[Any]:
        """Return D with k = exp(-D), shape (q, n), in ``pair.dtype``; do not write into it."""
        raise no_exponent(self.name)

    def exponent_terms(self) -> list[tuple[tuple[Any, ...], Kernel]]:
        """Return D as a sum: each kernel with the column blocks through which it is evaluated."""
        return [((), self)]

    @property
    def squared_rate(self) -> float | None:
        """The rate g of exp(-g D), D the squared distance, if the kernel is that; else None."""
        form = self.form()
        gaussian = form is not None and (form.ingredient, form.code) == ("sqdist", 0)
        return form.p0 if form is not None and gaussian else None

    # What operators ask for: of `core`, on the samples seen through `path`

    @property
    def path(self) -> tuple[Any, ...]:
        """Column blocks between the samples and the core kernel, outermost first."""
        return ()

    @property
    def core(self) -> Kernel:
        """The kernel that is evaluated on the samples seen through `path`."""
        return self

    def form(self) -> ElementwiseForm | None:
        """Return the kernel as a function of one number for each pair, if it is one."""
        return None

    def features(self, samples: Samples) -> Any:
        """Return features phi with k(x, x') = phi(x)'phi(x'), or None if there are none.

        A CSR matrix with one row for each sample, a dense array, or a `PositionalFactor` of aligned
        sequences. A column means the same for any samples, and a CSR matrix may have far more
        columns than are ever used. It may be the user's own: do not write into it.
        """
        return None

    # Prediction through features ("linadd"), for kernels whose features can be looked up

    def weigh(
        self, samples: Samples, v: NDArray[np.float64], terms: Terms | None = None
    ) -> LookUp | None:
        """Return x -> sum_j v_j k(x_j, x), at a cost that does not depend on the number of x_j.

        With `terms`, kernels of the same `merge_key` and their factors, k is the sum of these. None
        if the kernel has no such form; then values against all x_j are computed.
        """
        used = np.flatnonzero(v)
        features = self.features(samples.take(used))
        if not isinstance(features, np.ndarray):
            return None
        w = features.T @ v[used]
        return lambda new: self.features(new) @ w

    @property
    def merge_key(self) -> Any:
        """Kernels with equal keys, not None, can be looked up together by `weigh`."""
        return None

    def whole_matrix(self) -> NDArray[Any] | None:
        """Return the matrix of a precomputed kernel over all samples it was given for, else None.

        `ids` says which of them are meant. It may be the user's own array: do not write into it.
        """
        return None

    def ids(self, samples: Samples) -> NDArray[np.intp] | None:
        """Return the sample ids a precomputed kernel would read, else None."""
        return None

    # What users call

    def __call__(self, X: Any, Z: Any = None) -> NDArray[np.float64]:
        """Return the Gram matrix of `X` against `Z` (against itself if `Z` is None).

        Whatever the kernel learns from data, it learns from `X`.
        """
        from kernelweave.kernels.evaluate import evaluate_stack

        left = as_samples(X)
        right = left if Z is None else as_samples(Z)
        return evaluate_stack([self.bind(left)], left, right)[0]

    def on(self, columns: Any, transformer: Any = None, label: str | None = None) -> OnColumns:
        """Return this kernel on chosen columns, with an optional transformer in front.

        Parameters
        ----------
        columns : int, str, list of int or str, slice, boolean mask or callable
            The columns. A callable is given the data and returns any of the others
            (``sklearn.compose.make_column_selector`` works).
        transformer : scikit-learn transformer, default=None
            Cloned and fitted on those columns of the training samples.
        label : str, default=None
            What names call these columns, such as the name of a view.

        Examples
        --------
        >>> from sklearn.preprocessing import StandardScaler
        >>> from kernelweave.kernels import RBF
        >>> RBF(width=2).on([0, 1, 2], StandardScaler()).name
        'rbf(width=2) on columns 0-2 via StandardScaler'
        >>> RBF(width=2).on(slice(0, 200), label="mRNA").name
        'rbf(width=2) on mRNA'
        """
        return OnColumns(self, Selection(columns, transformer, label))

    def __mul__(self, other: Kernel) -> Product:
        from kernelweave.kernels.algebra import Product

        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __add__(self, other: Kernel) -> Sum:
        from kernelweave.kernels.algebra import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    # Value semantics

    def _parameters(self) -> dict[str, Any]:
        if type(self).__init__ is object.__init__:
            return {}
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        # A name that was given is kept beside the property `name`.
        return {name: getattr(self, "_name" if name == "name" else name) for name in names}

    def _key(self) -> tuple[Any, ...]:
        return (type(self), *(comparable(value) for value in self._parameters().values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __sklearn_clone__(self) -> Kernel:
        return self

    def __repr__(self) -> str:
        shown = (
            f"{name}={short(value)}"
            for name, value in self._parameters().items()
            if value is not None
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def no_exponent(name: str) -> InvalidInputError:
    """Build the error for a kernel that a product of kernels cannot weigh."""
    return InvalidInputError(
        f"kernel '{name}' is not of the form exp(-distance), which combination='product' needs. "
        f"Allowed are RBF, Distance, these on columns, and products of them; kernels='features' "
        f"takes one squared distance for each feature."
    )


def not_bound(name: str) -> InvalidInputError:
    """Build the error for a kernel that has not seen the training samples."""
    return InvalidInputError(
        f"kernel '{name}' must be bound to training samples first: kernel.bind(Samples(X)), or "
        "call kernel(X)."
    )


def short(value: Any) -> str:
    """Return a short text for one parameter, such as "0.3" or "<array 3 x 3>"."""
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    shape = getattr(value, "shape", None)
    if shape:
        return f"<array {' x '.join(str(size) for size in shape)}>"
    return repr(value)


def unique_names(kernels: Sequence[Kernel]) -> list[str]:
    """Return the names of kernels, numbered where several would read the same.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> unique_names([Linear(), RBF(width=1), Linear()])
    ['linear', 'rbf(width=1)', 'linear (2)']
    """
    return numbered([kernel.name for kernel in kernels])


def numbered(names: Sequence[str]) -> list[str]:
    """Return names with a number behind each that was there before."""
    taken = set(names)
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        shown = name
        while seen[name] > 1 and (shown := f"{name} ({seen[name]})") in taken:
            seen[name] += 1
        taken.add(shown)
        out.append(shown)
    return out


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
            raise not_bound(self.name)
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
