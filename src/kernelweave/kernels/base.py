"""What a kernel is: a description that can be bound to data and evaluated on pairs of rows."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from kernelweave.arrays import Array, Index
from kernelweave.compiled.exp import exp_inplace
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.names import short
from kernelweave.kernels.samples import Samples, as_samples

if TYPE_CHECKING:
    from kernelweave.kernels.algebra import Compound, Product, Sum
    from kernelweave.kernels.columns import OnColumns
    from kernelweave.kernels.evaluate import Pair

# Every squaring doubles the relative error: 12 of them keep it below 4096 * 2.3e-16 < 1e-12.
_MOST_SQUARINGS = 12


class Given(NamedTuple):
    """The matrix that a kernel is known by, over all samples that it was given for.

    Its entries are the values of the kernel, or distances D with k = exp(-rate D). The matrix may
    be the user's own: do not write into it.
    """

    matrix: Array
    rate: float | None = None


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
    def evaluate(self, pair: Pair) -> Array:
        """Return the values for a pair of sets of rows, shape (q, n), in ``pair.dtype``.

        The array may be shared with other kernels: do not write into it.
        """

    @abstractmethod
    def diagonal(self, samples: Samples) -> Array:
        """Return k(x, x) for every sample."""

    def bind(self, samples: Samples) -> Kernel:
        """Return the kernel with everything it learns from training samples frozen."""
        return self

    def _after_load(self) -> None:
        """Raise unless the parameters, which came from a file, are there and allowed."""
        _ = self.name

    @classmethod
    def examples(cls) -> list[Kernel]:
        """Return small instances for the contract tests."""
        return [cls()]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        """Return data the examples can be evaluated on."""
        return rng.normal(size=(12, 3))

    # Kernels of the form exp(-D), for products of kernels

    def exponent(self, pair: Pair) -> Array:
        """Return D with k = exp(-D), shape (q, n), in ``pair.dtype``; do not write into it."""
        raise no_exponent(self.name)

    @property
    def squared_rate(self) -> float | None:
        """The rate g of exp(-g D), D the squared distance, if the kernel is that; else None."""
        form = self.form()
        squared = form is not None and (form.ingredient, form.code) == ("sqdist", 0)
        return form.p0 if form is not None and squared else None

    # What operators ask for: of `core`, on the samples seen through `path`

    @property
    def path(self) -> tuple[Any, ...]:
        """Column blocks between the samples and the core kernel, outermost first."""
        return ()

    @property
    def core(self) -> Kernel:
        """The kernel that is evaluated on the samples seen through `path`."""
        return self

    def leaves(
        self, kind: type[Compound], path: tuple[Any, ...] = ()
    ) -> Iterator[tuple[tuple[Any, ...], Kernel]]:
        """Yield what a `Sum`, or a `Product`, is made of: column blocks, and the kernel behind.

        Another kernel is made of itself.
        """
        path, core = (*path, *self.path), self.core
        if isinstance(core, kind):
            for part in core.parts:
                yield from part.leaves(kind, path)
        else:
            yield path, core

    def form(self) -> ElementwiseForm | None:
        """Return the kernel as a function of one number for each pair, if it is one."""
        return None

    def features(self, samples: Samples) -> Any:
        """Return features phi with k(x, x') = phi(x)'phi(x'), or None if there are none.

        A CSR matrix with one row for each sample, a dense array, or a `PositionalFactor` of aligned
        sequences. A column means the same for any samples, and a CSR matrix may have far more
        columns than are ever used. It may be the user's own: do not write into it. Fits keep a
        kernel by its features where these are few, and predictions take time in proportion to them,
        whatever the number of support vectors.
        """
        return None

    @property
    def given(self) -> Given | None:
        """The matrix that a kernel on sample ids reads; None of another kernel."""
        return None

    def ids(self, samples: Samples) -> Index | None:
        """Return the sample ids that a kernel known by a matrix reads, else None."""
        return None

    # What users call

    def __call__(self, X: Any, Z: Any = None) -> Array:
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


def comparable(value: Any) -> Any:
    """Return something hashable that is equal for equal parameters (identity for arrays)."""
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    if isinstance(value, slice):
        return ("slice", value.start, value.stop, value.step)
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return value


@dataclass(frozen=True)
class ElementwiseForm:
    """A kernel that is a function of one number for each pair, for compiled code.

    Attributes
    ----------
    ingredient : {"sqdist", "inner"}
        The number t: squared distance or inner product of the two rows of the block.
    code : int
        0 for ``exp(-p0 * t)``, 1 for ``(p2 * t + p1) ** p0`` with a whole number p0.
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

    def features(self, samples: Samples) -> Any:
        """Return the features of an affine function of the inner product; None of any other."""
        if (self.ingredient, self.code, self.p0) != ("inner", 1, 1.0):
            return None
        values = samples.array()
        if self.p2 != 1.0:
            values = np.sqrt(self.p2) * values
        if self.p1 == 0.0:
            return values
        constant = np.full((samples.n, 1), np.sqrt(self.p1))
        if not samples.is_sparse:
            return np.hstack([values, constant])
        return sparse.hstack([values, sparse.csr_array(constant)], format="csr")

    def write(self, pair: Pair, out: Array) -> None:
        """Write the values for a pair; see `Pair.write`."""
        t = pair.inner if self.ingredient == "inner" else pair.sqdist
        (self._power if self.code == 1 else self._exponential)(pair, t, out)

    def _exponential(self, pair: Pair, t: Array, out: Array) -> None:
        # Exponentials whose rates differ by a power of two alone are squares of each other, which
        # takes a fraction of the time. By what their rates share: the binary exponents of the first
        # of them and of the last, and the values of that.
        known = pair.memo.setdefault(("exponentials", self.ingredient), {})
        share, power = math.frexp(self.p0)
        first, last, values = known.get(share, (power, power + 1, out))
        most = _MOST_SQUARINGS if pair.dtype == np.float64 else 0
        if last <= power <= first + most:
            for _ in range(power - last):
                values = np.square(values, out=out)
            if values is not out:
                np.copyto(out, values)
        else:
            first = power
            np.copyto(out, t)
            exp_inplace(out, -pair.finite_rate(self.p0))
        known[share] = first, power, out

    def _power(self, pair: Pair, t: Array, out: Array) -> None:
        # The affine function once for all degrees. Binary powers from the highest bit down need no
        # memory but `out`.
        key = ("affine", self.ingredient, self.p1, self.p2)
        if key not in pair.memo:
            base = t if self.p2 == 1 else t * self.p2
            pair.memo[key] = base if self.p1 == 0 else base + self.p1
        base = pair.memo[key]
        np.copyto(out, base)
        for bit in bin(int(self.p0))[3:]:
            out *= out
            if bit == "1":
                out *= base


class Elementwise(Kernel):
    """A function of one number for each pair of samples: a subclass writes `_form`."""

    @property
    @abstractmethod
    def _form(self) -> ElementwiseForm:
        """The function, computed once; raises if a parameter is not allowed."""

    def form(self) -> ElementwiseForm:
        return self._form

    def features(self, samples: Samples) -> Any:
        return self._form.features(samples)

    def bind(self, samples: Samples) -> Kernel:
        self.form()
        return self

    def evaluate(self, pair: Pair) -> Array:
        out = np.empty(pair.shape, dtype=pair.dtype)
        self._form.write(pair, out)
        return out

    def diagonal(self, samples: Samples) -> Array:
        form = self.form()
        t = samples.square_norms() if form.ingredient == "inner" else np.zeros(samples.n)
        if form.code == 0:
            return np.exp(-form.p0 * t)
        return (form.p2 * t + form.p1) ** int(form.p0)
