"""From what an estimator's `kernels` accepts to bound kernels.

Families of kernels expand when the data are seen: the papers' kernel sets and a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.columns import OnColumns, Selection
from kernelweave.kernels.names import describe_columns
from kernelweave.kernels.samples import Samples, as_floats
from kernelweave.kernels.vectors import RBF, Linear, Polynomial
from kernelweave.validation import unknown_name


class Family(ABC):
    """A set of kernels that depends on the data.

    A subclass writes ``expand``; frozen dataclasses make good families, because families are
    compared by their parameters. ``sklearn.base.clone`` returns a family itself.

    Examples
    --------
    >>> family = simplemkl_family()
    >>> len(family.expand(Samples([[0.0, 1.0], [1.0, 0.0]])))
    39
    """

    @abstractmethod
    def expand(self, samples: Samples) -> list[Kernel]:
        """Return the kernels of the family for these training samples, not yet bound."""

    def on(self, columns: Any, transformer: Any = None, label: str | None = None) -> Family:
        """Return the family on chosen columns, as ``kernel.on`` does for one kernel.

        Examples
        --------
        >>> view = default_family().on([0, 1])
        >>> [k.name for k in view.expand(Samples([[0.0, 1.0, 5.0], [1.0, 0.0, 6.0]]))][:2]
        ['linear on columns 0-1', 'polynomial(degree=2, gamma=0.5) on columns 0-1']
        """
        return _FamilyOnColumns(self, Selection(columns, transformer, label))

    def __sklearn_clone__(self) -> Family:
        return self


@dataclass(frozen=True)
class _FamilyOnColumns(Family):
    family: Family
    selection: Selection

    def expand(self, samples: Samples) -> list[Kernel]:
        inner = self.family.expand(samples.derive(self.selection.bind(samples)))
        return [OnColumns(kernel, self.selection) for kernel in inner]

    def __repr__(self) -> str:
        return f"{self.family!r}.on({self.selection!r})"


@dataclass(frozen=True)
class _Grid(Family):
    """The kernels of `_LISTS` on all features, and on each, behind one scaler."""

    title: str = "default_family"
    scaling: str | None = "standard"
    per_feature: bool = False

    def expand(self, samples: Samples) -> list[Kernel]:
        listed, p = _LISTS[self.title], samples.n_columns
        kernels = listed(p, samples)
        if self.per_feature and samples.is_sparse:
            raise InvalidInputError(
                f"{self.title}(per_feature=True) puts kernels on every single one of the {p} "
                f"columns, which needs a dense X; got a sparse matrix. Use "
                f"{self.title}(per_feature=False), or X.toarray()."
            )
        if self.per_feature:
            # Kernels on the same column share a selection, which is then found by identity.
            each, own = [Selection(j) for j in range(p)], listed(1, samples)
            kernels += [OnColumns(kernel, column) for column in each for kernel in own]
        if self.scaling is None:
            return kernels
        scaled = _scaled(kernels, samples, self.scaling)
        # A linear kernel of constant (so, once standardised, zero) features carries nothing.
        pairs = zip(kernels, scaled, strict=True)
        linear = [kernel for own, kernel in pairs if isinstance(own.core, Linear)]
        zero = {id(k) for k in linear if not k.bind(samples).diagonal(samples).any()}
        return [kernel for kernel in scaled if id(kernel) not in zero]

    def __repr__(self) -> str:
        scale = "" if self.title == "default_family" else f", scale={self.scaling is not None}"
        return f"{self.title}(per_feature={self.per_feature}{scale})"


def _scaled(kernels: list[Kernel], samples: Samples, scaling: str | None) -> list[Kernel]:
    """Put one scaler, fitted once, in front of all kernels; names do not mention it."""
    if scaling is None:
        return kernels
    as_floats(samples.base)  # Raises before a scaler stumbles over text.
    if scaling == "standard":
        scaler: Any = StandardScaler(with_mean=not samples.is_sparse)
    else:
        scaler = MaxAbsScaler() if samples.is_sparse else MinMaxScaler()
    front = Selection(slice(None), scaler, label="")
    return [OnColumns(kernel, front) for kernel in kernels]


def _paper(*widths: float) -> Callable[[int, Samples], list[Kernel]]:
    kernels = [*(RBF(width=width) for width in widths), *(Polynomial(q) for q in (1, 2, 3))]
    return lambda p, samples: list(kernels)


def _adapted(p: int, samples: Samples) -> list[Kernel]:
    widths = [float(np.sqrt(p)) * 2.0**j for j in range(-2, 3)]
    return [Linear(), Polynomial(2, gamma=1.0 / p), *(RBF(width=width) for width in widths)]


def _scale_gamma(samples: Samples) -> float:
    """scikit-learn's ``gamma="scale"``."""
    values = samples.array()
    if sparse.issparse(values):
        variance = float(values.multiply(values).mean() - values.mean() ** 2)
    else:
        variance = float(values.var())
    return 1.0 / (samples.n_columns * variance) if variance > 0 else 1.0


# By family, its kernels on so many columns of the samples.
_LISTS: dict[str, Callable[[int, Samples], list[Kernel]]] = {
    "default_family": _adapted,
    "simplemkl_family": _paper(*(2.0**j for j in range(-3, 7))),
    "spicymkl_family": _paper(0.1, 0.25, 0.5, 0.75, *(float(s) for s in range(1, 21))),
    "mwumkl_family": _paper(*(2.0 ** (j / 2) for j in range(9))),
    "linear": lambda p, samples: [Linear()],
    "polynomial": lambda p, samples: [Polynomial(3, gamma=_scale_gamma(samples))],
    "rbf": lambda p, samples: [RBF(gamma=_scale_gamma(samples))],
}


def simplemkl_family(*, per_feature: bool = True, scale: bool = True) -> Family:
    r"""Return the kernels of the SimpleMKL experiments (Rakotomamonjy et al. 2008, section 4).

    .. math:: \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big),\ s = 2^{-3}, 2^{-2}, \dots, 2^6
              \quad\text{and}\quad (x^\top x' + 1)^q,\ q = 1, 2, 3

    on all p features and on every single one: 13 (p + 1) kernels.

    Parameters
    ----------
    per_feature : bool, default=True
        Whether to put the kernels on every single feature as well.
    scale : bool, default=True
        Whether to standardise the features first, as the paper does (constant features become
        zero, and sparse ones are only divided by their standard deviation).

    Examples
    --------
    >>> family = simplemkl_family(per_feature=False)
    >>> [k.name for k in family.expand(Samples([[0.0], [1.0]]))][:2]
    ['rbf(width=0.125)', 'rbf(width=0.25)']
    """
    return _Grid("simplemkl_family", "standard" if scale else None, per_feature)


def spicymkl_family(*, per_feature: bool = True, scale: bool = True) -> Family:
    r"""Return the kernels of the SpicyMKL experiments (Suzuki and Tomioka 2011, section 6).

    .. math:: \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big),\ s = 0.1, 0.25, 0.5, 0.75, 1, 2, 3, \dots,
              20 \quad\text{and}\quad (x^\top x' + 1)^q,\ q = 1, 2, 3

    on all p features and on every single one: 27 (p + 1) kernels.

    Parameters
    ----------
    per_feature : bool, default=True
        Whether to put the kernels on every single feature as well.
    scale : bool, default=True
        Whether to standardise the features first.

    Examples
    --------
    >>> len(spicymkl_family().expand(Samples([[0.0, 1.0], [1.0, 0.0]])))
    81
    """
    return _Grid("spicymkl_family", "standard" if scale else None, per_feature)


def mwumkl_family(*, per_feature: bool = False, scale: bool = True) -> Family:
    r"""Return the kernels of the MWUMKL experiments (Moeller et al. 2014).

    .. math:: (x^\top x' + 1)^q,\ q = 1, 2, 3 \quad\text{and}\quad
              \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big),\ s = 2^0, 2^{1/2}, 2^1, \dots, 2^4

    12 kernels on all p features, or 12 (p + 1) with `per_feature`.

    Parameters
    ----------
    per_feature : bool, default=False
        Whether to put the kernels on every single feature as well.
    scale : bool, default=True
        Whether to scale the features to [0, 1] first (sparse ones to [-1, 1], keeping zeros).

    Examples
    --------
    >>> len(mwumkl_family().expand(Samples([[0.0, 1.0], [1.0, 0.0]])))
    12
    """
    return _Grid("mwumkl_family", "unit" if scale else None, per_feature)


def default_family(*, per_feature: bool = False) -> Family:
    r"""Return kernels that make sense on data never seen before.

    The p features are standardised on the training samples (sparse ones only divided by their
    standard deviation), so that :math:`\|x - x'\|^2 \approx 2p`; then

    .. math:: x^\top x', \quad (x^\top x' / p + 1)^2, \quad
              \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big),\
              s = \sqrt p \cdot 2^{-2}, \sqrt p \cdot 2^{-1}, \dots, \sqrt p \cdot 2^2

    7 kernels on all features, or 7 (p + 1) with `per_feature`. Constant features are harmless:
    they become zero, and a linear kernel that sees nothing else is left out.

    Parameters
    ----------
    per_feature : bool, default=False
        Whether to put such kernels (with p = 1) on every single feature as well.

    Examples
    --------
    >>> X = Samples([[0.0, 1.0, 2.0, 1.0], [1.0, 0.0, 3.0, 5.0]])
    >>> for kernel in default_family().expand(X)[:3]:
    ...     print(kernel.name)
    linear
    polynomial(degree=2, gamma=0.25)
    rbf(width=0.5)
    """
    return _Grid("default_family", "standard", per_feature)


@dataclass(frozen=True)
class _FeatureDistances(Family):
    scaling: str | None

    def expand(self, samples: Samples) -> list[Kernel]:
        each: list[Kernel] = []
        for j in range(samples.n_columns):
            # Without a label the feature's name is all a reader sees.
            kernel = RBF(gamma=1.0, name=describe_columns([j], samples.columns))
            each.append(kernel.on(j, label=""))
        return _scaled(each, samples, self.scaling)

    def __repr__(self) -> str:
        return f"feature_distances(scale={self.scaling is not None})"


def feature_distances(*, scale: bool = True) -> Family:
    r"""Return one Gaussian kernel on each feature, for products of kernels (Jain et al. 2012).

    .. math:: k_j(x, x') = \exp(-(x_j - x'_j)^2), \quad
              \prod_j k_j^{d_j} = \exp\Big(-\sum_j d_j (x_j - x'_j)^2\Big)

    With ``combination="product"`` the weights :math:`d_j` are the learnt relevance of the p
    features. The kernels carry the features' names.

    Parameters
    ----------
    scale : bool, default=True
        Whether to standardise the features first (constant features become zero, and sparse ones
        are only divided by their standard deviation).

    Examples
    --------
    >>> [k.name for k in feature_distances().expand(Samples([[0.0, 1.0], [1.0, 0.0]]))]
    ['column 0', 'column 1']
    """
    return _FeatureDistances("standard" if scale else None)


NAMED_FAMILIES: dict[str, Callable[[], Family]] = {
    "default": default_family,
    "simplemkl": simplemkl_family,
    "spicymkl": spicymkl_family,
    "mwumkl": mwumkl_family,
    "features": feature_distances,
    **{title: partial(_Grid, title, None) for title in ("linear", "polynomial", "rbf")},
}


def resolve(kernels: Any, samples: Samples) -> list[Kernel]:
    """Return kernels bound to the training samples for whatever a user asked for, in that order.

    Names are those of `NAMED_FAMILIES`; "linear", "polynomial" and "rbf" are one kernel each, with
    the width adapted to the data as scikit-learn's ``gamma="scale"`` does.
    """
    bound = []
    for item in resolve_items(kernels, samples):
        if isinstance(item, RBFBatch):
            raise InvalidInputError(
                f"{item!r} is many kernels in one object, which is not allowed here: it works as "
                f"kernels= of an estimator that adds kernels up (combination='sum'). Give single "
                f"kernels such as RBF(width=1).on([0, 1])."
            )
        bound.append(item)
    return bound


def resolve_items(kernels: Any, samples: Samples) -> list[Kernel | RBFBatch]:
    """Return bound kernels as `resolve` does, and batches as they are."""
    flat = list(_flatten(kernels, samples))
    if not flat:
        raise InvalidInputError("kernels is empty; give at least one kernel, family or name.")
    return [item.bind(samples) if isinstance(item, Kernel) else item for item in flat]


def _flatten(kernels: Any, samples: Samples) -> Iterable[Kernel | RBFBatch]:
    if isinstance(kernels, Kernel | RBFBatch):
        yield kernels
    elif isinstance(kernels, Family):
        yield from kernels.expand(samples)
    elif isinstance(kernels, str):
        if kernels not in NAMED_FAMILIES:
            raise unknown_name("kernel", kernels, NAMED_FAMILIES)
        yield from NAMED_FAMILIES[kernels]().expand(samples)
    elif isinstance(kernels, np.ndarray) or sparse.issparse(kernels):
        raise InvalidInputError(
            "kernels holds a matrix. For precomputed Gram matrices use "
            "kernels=from_matrices([K1, K2, ...]) and fit on X=sample_ids(n)."
        )
    elif isinstance(kernels, list | tuple):
        for item in kernels:
            yield from _flatten(item, samples)
    else:
        what = f"the class {kernels.__name__}" if isinstance(kernels, type) else repr(kernels)
        raise InvalidInputError(
            f"kernels must be a kernel such as RBF(width=1), a family such as simplemkl_family(), "
            f"a name, or a list of these; got {what}."
        )
