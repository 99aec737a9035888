"""Learnt weights of the parts of one string kernel, by k-mer length and by position."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.sequence_model import StringMember, string_members
from kernelweave.inspect.stability_result import Stability
from kernelweave.kernels import WeightedDegree

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PartWeights:
    """Weights of the parts of one string kernel, as a table of lengths and windows of positions.

    Attributes
    ----------
    name : str
        The kernel that was taken apart.
    lengths : ndarray of shape (n_lengths, 2)
        The shortest and the longest k-mers of each row.
    windows : ndarray of shape (n_windows, 2), or None
        The first start position of each column, counted from 0, and the one after the last; None
        if the kernel was not taken apart by position.
    by_class : ndarray of shape (n_sets, n_lengths, n_windows)
        The weights; one set, or one for each class if each has its own. Zero where a window is
        beyond the last k-mer of a length.
    stability : Stability or None
        Replicates of the fit, in which the parts have the places `index`.
    index : ndarray of shape (n_lengths, n_windows)
        The place of each part among the kernels of the model; -1 where there is none.

    Examples
    --------
    >>> weights = np.array([[[0.5, 0.0], [0.25, 0.25]]])
    >>> lengths, windows = np.array([[1, 1], [2, 2]]), np.array([[0, 5], [5, 9]])
    >>> parts = PartWeights("wd", lengths, windows, weights, np.arange(4).reshape(2, 2))
    >>> parts.over_lengths, parts.over_positions
    (array([0.5, 0.5]), array([0.75, 0.25]))
    """

    name: str
    lengths: Ints
    windows: Ints | None
    by_class: Array
    index: Ints
    stability: Stability | None = None

    @property
    def weights(self) -> Array:
        """The weights, the mean over classes, shape (n_lengths, n_windows)."""
        return self.by_class.mean(axis=0)

    @property
    def over_lengths(self) -> Array:
        """Weight of each length, summed over windows."""
        return self.weights.sum(axis=1)

    @property
    def over_positions(self) -> Array:
        """Weight of each window, summed over lengths."""
        return self.weights.sum(axis=0)

    def interval(self, axis: int) -> Array:
        """Return the ends of the intervals of the sums over an axis of the table, shape (2, ...).

        Needs `stability`.
        """
        if self.stability is None:
            raise InvalidInputError("intervals need stability=..., the result of stability().")
        parts = np.where(self.index >= 0, self.stability.replicates[:, self.index], 0.0)
        return self.stability.interval(parts.sum(axis=1 + axis))


def length_position_weights(
    model: Any, *, kernel: str | None = None, stability: Stability | None = None
) -> PartWeights:
    """Return the learnt weights of a string kernel that was taken apart.

    Sums over lengths or positions are sums of the weights as they are. Those of Bayesian models may
    be negative: two that cancel are nothing in sum, as they are in the combined kernel.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with kernels such as ``WeightedDegree(8).by_length()``.
    kernel : str, optional
        Text in the names of the kernels meant, if several were taken apart.
    stability : Stability, optional
        What :func:`kernelweave.stability` says of this model: it adds intervals.

    Returns
    -------
    PartWeights

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import length_position_weights
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(1).by_position()).fit(X, y)
    >>> length_position_weights(model).over_positions.round(2)
    array([0., 1., 0., 0.])
    """
    estimator = find_estimator(model)
    families: dict[Any, list[StringMember]] = {}
    for member in string_members(estimator, kernel):
        # What all parts of one string kernel have in common.
        core = member.core
        known = (type(core), core.alphabet, core.normalize, core.reverse_complement)
        more = (core.degree, core.shift) if isinstance(core, WeightedDegree) else ()
        families.setdefault((*known, *more, *member.kernel.path), []).append(member)
    several = [own for own in families.values() if len(own) > 1]
    if not several:
        raise InvalidInputError(
            "no string kernel of the model was taken apart; fit kernels such as "
            "WeightedDegree(8).by_length() or .by_position()."
        )
    if len(several) > 1:
        names = ", ".join(repr(_name(own)) for own in several)
        raise InvalidInputError(
            f"several string kernels were taken apart: {names}; choose one by a part of the names "
            f"of its kernels, kernel=..."
        )
    own = several[0]
    if stability is not None and list(stability.names) != list(estimator.kernel_names_):
        raise InvalidInputError(
            "stability has other kernels than the model; it must be of the same kernels on the "
            "same data."
        )
    lengths = sorted({member.core.length_range for member in own})
    windows = sorted({member.core.positions or (0, 0) for member in own})
    index = np.full((len(lengths), len(windows)), -1)
    for member in own:
        row = lengths.index(member.core.length_range)
        index[row, windows.index(member.core.positions or (0, 0))] = member.index
    weights = np.atleast_2d(np.asarray(estimator.weights_, dtype=np.float64))
    return PartWeights(
        _name(own),
        np.array(lengths),
        None if windows == [(0, 0)] else np.array(windows),
        np.where(index >= 0, weights[:, index], 0.0),
        index,
        stability,
    )


def _name(own: list[StringMember]) -> str:
    """The name of the kernel that was taken apart."""
    whole: Any = copy.copy(own[0].core)
    whole.positions = None
    if isinstance(whole, WeightedDegree):
        whole.lengths = None
    else:
        ends = [member.core.length_range for member in own]
        whole.k = min(first for first, _ in ends), max(last for _, last in ends)
    return f"{whole.name}{own[0].column}"
