"""What a kernel is: a description that can be bound to data and evaluated on pairs of rows."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples, as_samples

if TYPE_CHECKING:
    from kernelweave.kernels.algebra import Product, Sum
    from kernelweave.kernels.columns import OnColumns
    from kernelweave.kernels.evaluate import Pair

__all__ = ["ElementwiseForm", "Kernel", "LookUp", "Terms", "no_exponent"]

# Values of new samples, and the kernels of a weighted sum, each with its factor.
LookUp = Callable[[Samples], NDArray[np.float64]]
Terms = Sequence[tuple[Any, float]]


@dataclass(frozen=True)
class ElementwiseForm:
    """A kernel that is a function of one number for each pair, for compiled code.

    Attributes
    ----------
    ingredient : {"sqdist", "inner"}
        The number t: squared distance or inner product of the two rows of the block.
    code : int
        0 for ``exp(-p0 * t)``, 1 for ``(p2 * t + p1) ** p0``.
    p0, p1, p2 : float
        Parameters of the formula.

    Examples
    --------
    >>> from kernelweave.kernels import RBF
    >>> RBF(gamma=0.5).form()
    ElementwiseForm(ingredient='sqdist', code=0, p0=0.5, p1=0.0, p2=0.0)
    """

    ingredient: str
    code: int
    p0: float
    p1: float = 0.0
    p2: float = 0.0


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
    reads_ids: ClassVar[bool] = False

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

    def evaluate_into(self, pair: Pair, out: NDArray[Any]) -> None:
        """Write the values into a C-contiguous array.

        The pair may keep `out` and read it for other kernels: leave it alone until the pair goes.
        """
        out[...] = self.evaluate(pair)

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

    @property
    def has_exponent(self) -> bool:
        """Whether the kernel is exp(-D) with a distance D, so that `exponent` has an answer."""
        return False

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
        if form is None or form.ingredient != "sqdist" or form.code != 0:
            return None
        return form.p0

    # What operators ask for: of `core`, on the samples seen through `path`

    @property
    def path(self) -> tuple[Any, ...]:
        """Column blocks between the samples and the core kernel, outermost first."""
        return ()

    @property
    def core(self) -> Kernel:
        """The kernel that is evaluated on the samples seen through `path`."""
        return self

    @property
    def order(self) -> float:
        """Kernels on one block are evaluated in this order, so that later ones can reuse."""
        return 0.0

    def form(self) -> ElementwiseForm | None:
        """Return the kernel as a function of one number for each pair, if it is one."""
        return None

    def features(self, samples: Samples) -> Any:
        """Return features phi with k(x, x') = phi(x)'phi(x'), or None if there are none.

        A CSR matrix with one row for each sample, or a dense array. A column means the same for any
        samples, and a CSR matrix may have far more columns than are ever used. It may be the user's
        own: do not write into it.
        """
        return None

    def positional(self, samples: Samples) -> Any:
        """Return the Gram matrix as a `PositionalFactor` if it is one of aligned sequences."""
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
        from kernelweave.kernels.columns import OnColumns, Selection

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
        return {name: getattr(self, name) for name in names}

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
    """Build the error for a kernel that a product of kernels cannot weigh.

    Examples
    --------
    >>> str(no_exponent("linear"))[:50]
    "kernel 'linear' is not of the form exp(-distance),"
    """
    return InvalidInputError(
        f"kernel '{name}' is not of the form exp(-distance), which combination='product' needs. "
        f"Allowed are RBF, Distance, these on columns, and products of them; kernels='features' "
        f"takes one squared distance for each feature."
    )


def comparable(value: Any) -> Any:
    """Return something hashable that is equal for equal parameters (identity for arrays).

    Examples
    --------
    >>> comparable([1, 2]) == comparable((1, 2))
    True
    """
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return value


def short(value: Any) -> str:
    """Return a short text for one parameter.

    Examples
    --------
    >>> short(0.1 + 0.2), short(np.zeros((3, 3))), short("mean")
    ('0.3', '<array 3 x 3>', "'mean'")
    """
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    shape = getattr(value, "shape", None)
    if shape:
        return f"<array {' x '.join(str(size) for size in shape)}>"
    return repr(value)
