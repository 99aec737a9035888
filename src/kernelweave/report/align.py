"""The weights of one fit in the order of another's kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array

__all__ = ["align_weights"]

# What a kernel may learn from the rows and show in its name, as in "rbf(gamma=0.0312)".
_LEARNT_NUMBER = re.compile(r"=-?\d[\d.e+-]*")


def align_weights(
    weights: Array, names: Sequence[str], reference: Sequence[str]
) -> tuple[Array, str]:
    """Return the weights of one fit in the order of the kernels of another, and how they match.

    Kernels match by name. One that is missing has weight zero: a family leaves out a kernel that
    would be constant on these rows. Where kernels show numbers that they learn from the rows, as
    ``rbf(gamma=0.0312)``, and nothing else differs, they match by position.

    Parameters
    ----------
    weights : array of shape (m,)
        One for each name.
    names, reference : sequence of str
        The kernels that the weights belong to, and those that are wanted.

    Returns
    -------
    aligned : array of shape (len(reference),)
    matched : {"name", "position"}

    Examples
    --------
    >>> import numpy as np
    >>> align_weights(np.array([0.3, 0.7]), ["c", "a"], ["a", "b", "c"])
    (array([0.7, 0. , 0.3]), 'name')
    >>> align_weights(np.array([1.0]), ["rbf(gamma=0.31)"], ["rbf(gamma=0.29)"])
    (array([1.]), 'position')
    """
    if names == reference:
        return weights, "name"
    places = {name: k for k, name in enumerate(reference)}
    unique = len(places) == len(reference) and len(set(names)) == len(names)
    if unique and all(name in places for name in names):
        aligned = np.zeros(len(reference))
        aligned[[places[name] for name in names]] = weights
        return aligned, "name"
    if len(names) == len(reference) and all(
        _without_numbers(mine) == _without_numbers(theirs)
        for mine, theirs in zip(names, reference, strict=True)
    ):
        return weights, "position"
    raise InvalidInputError(_why_not(names, reference))


def _without_numbers(name: str) -> str:
    return _LEARNT_NUMBER.sub("=", name)


def _why_not(names: Sequence[str], reference: Sequence[str]) -> str:
    known = set(reference)
    strange = next((name for name in names if name not in known), None)
    what = f"{strange!r} is not among them"
    if strange is None:
        what = "several have the same name"
    return (
        f"the {len(names)} kernels cannot be matched with the {len(reference)} of the fit on all "
        f"rows: {what}. Give every kernel a name of its own that does not depend on the rows, such "
        "as RBF(width=1.0, name='narrow')."
    )
