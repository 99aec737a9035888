"""From what an estimator's `kernels` accepts to a list of bound kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.families import NAMED_FAMILIES, Family
from kernelweave.kernels.samples import Samples
from kernelweave.validation import unknown_name

__all__ = ["numbered", "resolve", "resolve_items", "unique_names"]


def resolve(kernels: Any, samples: Samples) -> list[Kernel]:
    """Return bound kernels for whatever a user asked for.

    Parameters
    ----------
    kernels : Kernel, Family, str, or list of these
        Names are "default", "simplemkl", "spicymkl", "mwumkl" (the families with these names) and
        "linear", "polynomial", "rbf" (one kernel each, with the width adapted to the data as
        scikit-learn's ``gamma="scale"`` does).
    samples : Samples
        The training samples.

    Returns
    -------
    list of Kernel
        All bound to `samples`, in the order asked for.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> bound = resolve([Linear(), RBF(width=1).on(0)], Samples([[0.0, 1.0], [1.0, 0.0]]))
    >>> [kernel.name for kernel in bound]
    ['linear', 'rbf(width=1) on column 0']
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
    """Return bound kernels as `resolve` does, and batches as they are.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> resolve_items([Linear(), RBFBatch([[0], [1]], [1.0, 2.0])], Samples([[0.0, 1.0]]))
    [Linear(), RBFBatch(columns=<array 2 x 1>, gamma=<array 2>)]
    """
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
    elif isinstance(kernels, np.ndarray) or sparse.issparse(kernels) or _holds_arrays(kernels):
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


def _holds_arrays(kernels: Any) -> bool:
    return isinstance(kernels, list | tuple) and any(
        isinstance(item, np.ndarray) or sparse.issparse(item) for item in kernels
    )


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
    """Return names with a number behind each that was there before.

    Examples
    --------
    >>> numbered(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
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
