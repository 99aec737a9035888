"""Prediction without support vectors: sums of kernels as look-ups of the new samples' features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.base import LookUp
from kernelweave.kernels.samples import Samples
from kernelweave.operators.computed import ComputedOperator

Floats = NDArray[np.float64]


class LookUps:
    r"""The kernels of a weighted sum that have features to look up, and their functions.

    .. math:: f(x) = \sum_k d_k \sum_j v_j\, k_k(x_j, x) = \langle w, \Phi(x) \rangle

    With the weights w put together once, a value takes time in proportion to the features of x,
    whatever the number of :math:`x_j` ("linadd", Sonnenburg et al. 2006, algorithm 3). Kernels that
    can be merged (the parts of one string kernel) are looked up together.

    Parameters
    ----------
    kernels : ComputedOperator
        Bound and normalised.
    d : ndarray of shape (m,)
        Their weights.
    v : ndarray of shape (n,)
        Coefficients of the training samples.

    Attributes
    ----------
    rest : ndarray of shape (m,)
        The weights of the kernels that have to be evaluated against the training samples.

    Examples
    --------
    >>> from kernelweave.kernels import RBF, Samples, Spectrum
    >>> kernels = ComputedOperator.build([Spectrum(1), Spectrum(2)], ["ACG", "TTT"], normalize=None)
    >>> found = LookUps(kernels, np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    >>> found(Samples(["ACT"])), found.rest
    (array([7.]), array([0., 0.]))
    """

    def __init__(self, kernels: ComputedOperator, d: Floats, v: Floats) -> None:
        self.rest = np.array(d, dtype=np.float64)
        self._functions: list[LookUp] = []
        for group in _groups(kernels, np.flatnonzero(d)):
            function = _function(kernels, group, self.rest[group], v)
            if function is not None:
                self._functions.append(function)
                self.rest[group] = 0.0

    def __call__(self, new: Samples) -> Floats:
        """Return the values of new samples, without those of the kernels in `rest`."""
        out = np.zeros(new.n)
        for function in self._functions:
            out += function(new)
        return out


def _groups(kernels: ComputedOperator, active: NDArray[np.intp]) -> list[list[int]]:
    """Kernels that can be one, if normalising only scales them; else each alone.

    None if a new sample is divided by a norm that centring has changed, which its own features do
    not tell.
    """
    centred = False
    for step in kernels.steps:
        if centred and step.needs_diagonal:
            return []
        centred = centred or step.needs_means
    groups: dict[Any, list[int]] = {}
    scaling = kernels.normalization.pure_scaling
    for k in active.tolist():
        key = kernels.kernels[k].merge_key if scaling else None
        groups.setdefault(k if key is None else (key,), []).append(k)
    return list(groups.values())


def _function(kernels: ComputedOperator, group: list[int], d: Floats, v: Floats) -> LookUp | None:
    first, samples = kernels.kernels[group[0]], kernels.samples
    if len(group) > 1:
        factors = d * kernels.scale(group)
        terms = [(kernels.kernels[k], factor) for k, factor in zip(group, factors, strict=True)]
        return first.weigh(samples, v, terms)
    k = group[0]
    coefficients, _, constant = kernels.coefficients(k, float(d[0]) * v)
    raw = first.weigh(samples, coefficients)
    if raw is None:
        return None
    return lambda new: kernels.new_roots(k, new) * raw(new) + constant
