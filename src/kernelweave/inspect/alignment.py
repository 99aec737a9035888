"""Which kernels say the same: centred alignment of every pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array, Index
from kernelweave.compiled.threads import one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.memory import require_bytes
from kernelweave.operators import DenseOperator, DistanceOperator, bind_kernels
from kernelweave.operators.centred import centred_products
from kernelweave.validation import whole_number

# Most kernels that are compared unless the caller names them.
_MOST_KERNELS = 30
_LISTED = 10


@dataclass(frozen=True, repr=False, eq=False)
class Alignment:
    r"""Centred alignment of pairs of kernels, as :func:`kernel_alignment` returns it.

    .. math:: A_{kl} = \frac{\langle H K_k H, H K_l H \rangle_F}{|H K_k H|_F\, |H K_l H|_F},
              \qquad H = I - \tfrac1n 1 1^\top

    (Cortes et al. 2012, definition 4). Two kernels with 1 say the same but for scale and a
    constant, two with 0 have nothing in common. No pair of positive semi-definite kernels is below
    0.

    Attributes
    ----------
    names : list of str
        The kernels that are compared.
    values : ndarray of shape (k, k)
        Their alignments: symmetric, ones on the diagonal. A kernel that is constant has none with
        any other: its row and column are NaN.
    kernels : ndarray of int
        Where they stand among the kernels of the model.
    n_samples : int
        On how many samples they were compared.
    n_left_out : int
        How many kernels with a weight were not compared, because there are many.

    Examples
    --------
    >>> values = np.array([[1.0, 0.25], [0.25, 1.0]])
    >>> print(Alignment(["a", "b"], values, np.array([0, 1]), 50))
    centred alignment of 2 kernels on 50 samples
      0.250  a  |  b
    """

    names: list[str]
    values: Array
    kernels: Index
    n_samples: int
    n_left_out: int = 0

    @property
    def constant(self) -> list[str]:
        """Names of the kernels that are constant on these samples."""
        empty = np.isnan(self.values.diagonal())
        return [name for name, own in zip(self.names, empty, strict=True) if own]

    def order(self) -> Index:
        """Return the kernels so that those which resemble each other are neighbours.

        The leaves of an average-linkage tree over 1 - A, turned so that neighbours are as close as
        they can be; constant kernels come last.
        """
        from scipy.cluster.hierarchy import leaves_list, linkage
        from scipy.spatial.distance import squareform

        known = np.flatnonzero(~np.isnan(self.values.diagonal()))
        if len(known) > 2:
            distance = 1.0 - self.values[np.ix_(known, known)]
            tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
            known = known[leaves_list(tree)]
        return np.concatenate([known, np.setdiff1d(np.arange(len(self.names)), known)])

    def pairs(self) -> list[tuple[str, str, float]]:
        """Return all pairs as (one kernel, the other, alignment), those most alike first."""
        one, other = np.triu_indices(len(self.names), 1)
        values = self.values[one, other]
        order = [i for i in np.argsort(-values, kind="stable") if not np.isnan(values[i])]
        return [(self.names[one[i]], self.names[other[i]], float(values[i])) for i in order]

    def __str__(self) -> str:
        count = len(self.names)
        lines = [
            f"centred alignment of {count} kernel{'s' * (count != 1)} on {self.n_samples} samples"
        ]
        pairs = self.pairs()
        lines += [f"  {value:.3f}  {one}  |  {other}" for one, other, value in pairs[:_LISTED]]
        if len(pairs) > _LISTED:
            lines.append(f"  {len(pairs) - _LISTED} more pairs, down to {pairs[-1][2]:.3f}")
        if self.constant:
            lines.append(f"  constant on these samples: {', '.join(self.constant)}")
        if self.n_left_out:
            lines.append(f"  {self.n_left_out} more kernels with a weight were not compared")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Alignment of {len(self.names)} kernels on {self.n_samples} samples>"


def kernel_alignment(
    model: Any,
    kernels: ArrayLike | None = None,
    max_samples: int = 500,
    seed: int = 0,
    *,
    X: Any = None,
) -> Alignment:
    r"""Compare kernels with one another: which of them say the same about the samples?

    Kernels with an alignment near 1 take each other's place: which of them gets the weight is up to
    chance. See :class:`Alignment` for the formula.

    Parameters
    ----------
    model : fitted estimator, or kernels
        An estimator, or a pipeline or search that ends in one: its kernels are compared on its
        training samples, normalised as it normalised them. Of a product of kernels the factors
        :math:`\exp(-d_k D_k)` are compared, with the weights learnt. Or, with `X`, anything that
        an estimator takes as `kernels`.
    kernels : sequence of int, optional
        Which of the kernels. By default all that have a weight, at most the 30 heaviest; of
        kernels without a model, the first 30.
    max_samples : int, default=500
        With more samples than these, so many of them are drawn.
    seed : int, default=0
        Draws them.
    X : array, CSR matrix, frame or sequences, optional
        Samples for kernels without a model.

    Returns
    -------
    Alignment

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave.kernels import RBF, Linear
    >>> X, y = load_iris(return_X_y=True)
    >>> found = kernel_alignment([Linear(), RBF(width=1.0), RBF(width=1.1)], X=X)
    >>> found.values.round(2)
    array([[1.  , 0.74, 0.76],
           [0.74, 1.  , 1.  ],
           [0.76, 1.  , 1.  ]])
    """
    max_samples = whole_number("max_samples", max_samples, 2)
    if X is not None:
        if hasattr(model, "fit"):
            raise InvalidInputError(
                "X is for kernels without a model; a fitted model is asked about its own training "
                "samples."
            )
        # Alignment does not depend on the scale of a kernel.
        kernel_set, weights = bind_kernels(model, X, normalize=None), None
        used = np.arange(kernel_set.m)
    elif not hasattr(model, "fit"):
        raise InvalidInputError(
            "kernel_alignment takes a fitted estimator, or kernels and samples, "
            f"kernel_alignment(kernels, X=X); got {type(model).__name__} without X."
        )
    else:
        estimator = find_estimator(model)
        kernel_set = estimator._kernel_set
        weights = np.abs(np.atleast_2d(estimator.weights_)).mean(axis=0)
        used = np.flatnonzero(weights)
    if kernels is not None:
        chosen, left_out = _named(kernels, kernel_set.m), 0
    else:
        chosen, left_out = used, max(0, len(used) - _MOST_KERNELS)
        if left_out and weights is not None:
            chosen = np.sort(used[np.argsort(-weights[used], kind="stable")[:_MOST_KERNELS]])
        chosen = chosen[:_MOST_KERNELS]
    rows = np.arange(kernel_set.n)
    if len(rows) > max_samples:
        rows = np.sort(np.random.default_rng(seed).choice(rows, max_samples, replace=False))
    require_bytes(
        2 * 8.0 * len(chosen) * len(rows) ** 2,
        f"{len(chosen)} kernels on {len(rows)} samples",
        "Lower max_samples, or name fewer kernels.",
    )
    matrices: Any = kernel_set.block(rows, rows, chosen) if len(chosen) else []
    if len(chosen) and isinstance(kernel_set, DistanceOperator) and weights is not None:
        matrices = np.exp(-weights[chosen, None, None] * matrices)
    names = [str(kernel_set.names[k]) for k in chosen]
    return Alignment(names, _alignments(list(matrices)), chosen, len(rows), left_out)


def _named(kernels: ArrayLike, m: int) -> Index:
    chosen = np.asarray(kernels)
    whole = chosen.ndim == 1 and (np.issubdtype(chosen.dtype, np.integer) or not chosen.size)
    if not whole or (chosen.size and not (chosen.min() >= 0 and chosen.max() < m)):
        raise InvalidInputError(
            f"kernels must be a list of numbers in 0..{m - 1}; got {kernels!r}."
        )
    return chosen.astype(np.intp)


@one_blas_thread()
def _alignments(matrices: list[Array]) -> Array:
    if not matrices:
        return np.zeros((0, 0))
    products = centred_products(DenseOperator(matrices))
    norms = np.sqrt(products.diagonal())
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.clip(products / np.outer(norms, norms), -1.0, 1.0)
    values = 0.5 * (values + values.T)
    np.fill_diagonal(values, np.where(norms > 0, 1.0, np.nan))
    return values
