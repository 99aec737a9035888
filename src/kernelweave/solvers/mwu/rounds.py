"""What a solver that moves two samples at a time asks of an operator: one call a round."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import singledispatch
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.mwu import best_pair
from kernelweave.solvers.mwu.running import RunningProducts, running_products


@dataclass(frozen=True)
class BoxConstraints:
    """Which samples may move, and what makes one worth moving; all of shape (n,).

    The score of sample i is ``linear_i - sum_k d_k (K_k v)_i - ridge_i v_i``, the rate at which a
    dual objective rises with v_i. It may rise while ``v_i < up_i`` and fall while
    ``v_i > down_i``.
    """

    linear: Array
    ridge: Array
    up: Array
    down: Array

    def of(self, samples: slice) -> BoxConstraints:
        return BoxConstraints(*(getattr(self, own.name)[samples] for own in fields(self)))

    def best_pair(self, fitted: Array, v: Array) -> tuple[int, float, int, float]:
        """Return who rises best and who falls best, each with its score; -1 where nobody may."""
        return best_pair(fitted, v, self.linear, self.ridge, self.up, self.down)


@dataclass(frozen=True)
class PairStep:
    """The pair to move next, and what a step along it has to know.

    i is the sample of highest score among those that may rise, j that of lowest among those that
    may fall, the first of equals. `products` has (K_k v)_i and (K_k v)_j of the kernels followed,
    shape (m, 2), `block` their K_k[i, i], K_k[j, j] and K_k[i, j], shape (m, 3).
    """

    i: int
    j: int
    score_i: float
    score_j: float
    v_i: float
    v_j: float
    products: Array
    block: Array

    @property
    def improves(self) -> bool:
        """Whether the dual objective rises with a step."""
        return self.score_i > self.score_j


class Rounds:
    """A vector v over the samples, K_k v of every kernel, and the pair of samples to move next.

    A round of MWUMKL is one call of `advance`: move the chosen pair, take the new weights, choose
    the next pair, None where nobody may rise or nobody may fall. On a cluster that is one
    superstep. Kernels may be left frozen for a while, as
    in :class:`~kernelweave.solvers.mwu.running.RunningProducts`: weights and choices are about the
    others.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> rules = BoxConstraints(np.array([1.0, 1.0, -1.0]), np.zeros(3), np.ones(3), -np.ones(3))
    >>> rounds = rounds_of(DenseOperator([np.eye(3)]), rules)
    >>> choice = rounds.start(np.zeros(3), np.ones(1))
    >>> choice.i, choice.j
    (0, 2)
    >>> rounds.advance(choice, 0.5, -0.5, np.ones(1)).i
    1
    """

    def __init__(self, products: RunningProducts, rules: BoxConstraints) -> None:
        self._products, self._rules = products, rules
        self._v, self._fitted = np.zeros(products.n), np.zeros(products.n)

    def start(self, v: Array, d: Array) -> PairStep | None:
        """Begin with this v and these weights, all kernels followed."""
        self._v[:] = v
        self._products.reset(self._v)
        return self.reweigh(d)

    def advance(self, choice: PairStep, step_i: float, step_j: float, d: Array) -> PairStep | None:
        """Add the steps to v at the chosen pair, and choose the next by weights d."""
        self._v[choice.i] += step_i
        self._v[choice.j] += step_j
        idx, delta = np.array([choice.i, choice.j]), np.array([step_i, step_j])
        self._fitted = self._products.move(idx, delta, d)
        return self._choose()

    def reweigh(self, d: Array) -> PairStep | None:
        """Choose by other weights; nothing moves."""
        self._fitted = self._products.weigh(d)
        return self._choose()

    def restrict(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves from now on, until `synchronise`."""
        self._products.restrict(kernels)

    def synchronise(self) -> Array:
        """Bring all kernels up to date and follow them; returns v'K_k v of each, shape (m,)."""
        return self._products.synchronise(self._v)

    def _choose(self) -> PairStep | None:
        v = self._v
        i, score_i, j, score_j = self._rules.best_pair(self._fitted, v)
        if i < 0 or j < 0:
            return None
        at, block = self._products.pair(i, j)
        return PairStep(i, j, score_i, score_j, float(v[i]), float(v[j]), at, block)

    def values(self) -> Array:
        """v, shape (n,)."""
        return self._v.copy()

    def fitted(self) -> Array:
        """sum_k d_k K_k v at the weights of the last call, shape (n,)."""
        return self._fitted.copy()


@singledispatch
def rounds_of(operator: Any, rules: BoxConstraints) -> Rounds:
    """Return the rounds of an operator; one whose kernels live elsewhere registers its own."""
    return Rounds(running_products(operator), rules)
