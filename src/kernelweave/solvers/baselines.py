"""Weights that no loss decides: equal ones, and those by centred alignment with the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import nnls

from kernelweave.arrays import Array
from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import TimeUp
from kernelweave.errors import InvalidInputError
from kernelweave.operators.centred import centred_products, centred_squares
from kernelweave.problem import Problem
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers.base import Solver, State, choice, other_solver, require_linear
from kernelweave.solvers.inner import Evaluator, Point
from kernelweave.solvers.kept import ABOVE_ZERO, Kept

METHODS = ("joint", "independent")

# Directions in which the kernels differ by less than this part of where they differ most are
# left out: rounding decides there.
_SAME = 1e-10


@dataclass(frozen=True)
class Uniform(Solver):
    """Solve with equal weights, those the regularizer starts from (1/m on the simplex).

    The certificate is that of the problem with these weights held fixed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLClassifier
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = MKLClassifier("linear", solver=Uniform()).fit(X, [0, 0, 1, 1])
    >>> model.weights_
    array([1.])
    """

    name = "uniform"
    kept: ClassVar[Mapping[str, Kept]] = {"inner_tol": Kept(low=ABOVE_ZERO)}
    tries_weights = False

    def prepare(self, problem: Problem) -> Problem:
        """Hold the weights fixed."""
        return problem.with_regularizer(Fixed(problem.regularizer.start(problem.m)))

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve once, roughly."""
        tol = 1e-2 if start is None else float(start.extra.get("inner_tol", 1e-2))
        return self._state(problem, Evaluator(problem, start), tol)

    def _state(self, problem: Problem, evaluator: Evaluator, tol: float) -> State:
        point = evaluator.evaluate(problem.regularizer.start(problem.m), tol)
        return State(point, evaluator.quad(point), evaluator, tol < 1e-12, tol)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Solve again, ten times as exactly."""
        return self._state(problem, state.evaluator, state.memory / 10)

    def remember(self, state: State) -> dict[str, Array]:
        """Return how exact alpha is."""
        return {"inner_tol": np.asarray(state.memory)}


def independent_weights(a: Array, squares: Array) -> Array:
    r"""Weights in proportion to each kernel's own alignment ("align", Cortes et al. 2012, 3.1).

    .. math:: \mu_k \propto \frac{\langle K_{kc}, YY^\top \rangle_F}{|K_{kc}|_F}

    Parameters
    ----------
    a : ndarray of shape (m,)
        The inner products of the centred kernels with the targets.
    squares : ndarray of shape (m,)
        Their squared norms; kernels with zero get no weight.

    Returns
    -------
    ndarray of shape (m,)
        Weights that sum to one; negative alignments (rounding) count as zero. Equal ones if no
        kernel is aligned with the targets at all.

    Examples
    --------
    >>> independent_weights(np.array([4.0, 3.0, -1.0]), np.array([16.0, 1.0, 1.0]))
    array([0.25, 0.75, 0.  ])
    """
    used = squares > 0
    v = np.divide(a, np.sqrt(squares), out=np.zeros_like(a), where=used)
    return _to_sum_one(np.maximum(v, 0.0))


def joint_weights(a: Array, products: Array) -> Array:
    r"""Weights of the combination that is best aligned ("alignf", Cortes et al. 2012, 3.2).

    .. math:: \mu \propto \arg\min_{v \ge 0}\; v^\top M v - 2 v^\top a, \qquad
              M_{kl} = \langle K_{kc}, K_{lc} \rangle_F, \quad
              a_k = \langle K_{kc}, YY^\top \rangle_F

    With :math:`M = R^\top R` that is the non-negative least squares problem
    :math:`\min_{v \ge 0} |R v - R^{-\top} a|`, solved by the active-set method of Lawson and
    Hanson.

    Parameters
    ----------
    a : ndarray of shape (m,)
        The inner products of the centred kernels with the targets.
    products : ndarray of shape (m, m)
        M; kernels with zero on its diagonal get no weight.

    Returns
    -------
    ndarray of shape (m,)
        Weights that sum to one. Equal ones if no kernel is aligned with the targets at all.

    Examples
    --------
    >>> joint_weights(np.array([2.0, 1.0, 0.5]), np.eye(3) + 1.0)
    array([1., 0., 0.])
    """
    size = np.sqrt(products.diagonal())
    used = np.flatnonzero(size > 0)
    v = np.zeros_like(a)
    if len(used):
        # In units of each kernel's norm, so that what is small is small for all of them.
        size = size[used]
        s, U = np.linalg.eigh(products[np.ix_(used, used)] / np.outer(size, size))
        kept = s > _SAME * s[-1]
        root, U = np.sqrt(s[kept]), U[:, kept]
        right = (U.T @ (a[used] / size)) / root
        v[used] = nnls((root * U).T, right, maxiter=30 * len(used))[0] / size
    return _to_sum_one(v)


def _to_sum_one(v: Array) -> Array:
    total = v.sum()
    return v / total if total > 0 else np.full(len(v), 1.0 / len(v))


@one_blas_thread()
def alignment_weights(problem: Problem, method: str) -> Array:
    """Weights from the kernels and the targets of a problem; the loss and its weights do not count.

    The targets of several tasks count together: Y Y' is the sum over tasks of y y'. Equal ones
    where the problem's time is over first.
    """
    bank, y = problem.bank, problem.y
    try:
        with between_blocks(problem.deadline.look()):
            # <H K H, y y'> = (H y)'K(H y).
            a = bank.quad(y - y.mean(axis=1, keepdims=True))
            if method == "independent":
                return independent_weights(a, centred_squares(bank))
            return joint_weights(a, centred_products(bank))
    except TimeUp:
        return _to_sum_one(np.zeros(problem.m))


@dataclass(frozen=True)
class Align(Solver):
    r"""Two stages: kernel weights by centred alignment, then a solve with these weights.

    The first stage looks at the kernels :math:`K_{kc} = H K_k H` (:math:`H = I - 11^\top/n`) and
    the targets only (Cortes, Mohri and Rostamizadeh, "Algorithms for learning kernels based on
    centered alignment", JMLR 13, 2012). The estimator's regularizer is not used, and sample and
    class weights count in the second stage only. Weights sum to one. The certificate is that of
    the problem with these weights held fixed; a problem whose weights are fixed already keeps them.
    Where `max_time` is too short for the first stage, all weights are equal.

    Parameters
    ----------
    method : {"joint", "independent"}, default="joint"
        "joint" takes the non-negative combination of kernels with the highest alignment; it needs
        all inner products of two kernels, m x m numbers. "independent" weighs every kernel by its
        own alignment, for any number of kernels.
    then : Solver or None, default=None
        What solves the problem with the weights held fixed; it must take such a problem. None:
        the single-kernel solver of the loss.

    Notes
    -----
    Alignment does not see how large a kernel is, only its shape: "joint" gives large weights to
    kernels that vary little, such as wide Gaussian ones, and where the weights sum to one their
    combination then varies little too and wants a larger C. ``normalize=("center", "trace")`` gives
    all kernels the same spread, so that C means what it does for other solvers; or choose C by
    cross-validation (:class:`~kernelweave.MKLClassifierCV`).

    Beside a product with the targets the first stage costs one pass over the kernels' entries, and
    "joint" :math:`m^2 n^2 / 2` multiplications. Kernels kept by factors of rank r take
    :math:`n r^2` and :math:`n (\sum_k r_k)^2 / 2` instead.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import Linear
    >>> X = np.array([[0.0, 1.0], [1.0, -1.0], [4.0, -1.0], [5.0, 1.0]])
    >>> kernels = [Linear().on(0), Linear().on(1)]
    >>> MKLClassifier(kernels, solver=Align()).fit(X, [0, 0, 1, 1]).weights_
    array([1., 0.])
    """

    method: str = field(default="joint", metadata=choice(*METHODS))
    then: Solver | None = field(default=None, metadata=other_solver())

    name = "align"
    # The weights are known before the first step: none to guess, and no kernels to drop.
    tries_weights = False

    def prepare(self, problem: Problem) -> Problem:
        """Learn the weights and hold them fixed."""
        require_linear(self.name, problem)
        if problem.loss.task == "one_class":
            raise InvalidInputError(
                "solver 'align' weighs kernels by their alignment with targets, and a one-class "
                "problem has none. Use solver='auto' or 'uniform'."
            )
        if not problem.regularizer.fixed:
            problem = problem.with_regularizer(Fixed(alignment_weights(problem, self.method)))
        return self._second.prepare(problem)

    @property
    def _second(self) -> Solver:
        return Uniform() if self.then is None else self.then

    def init(self, problem: Problem, start: Point | None) -> State:
        """Begin the second stage."""
        return self._second.init(problem, start)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Go on with the second stage."""
        return self._second.step(problem, state, gap, inner_gap)

    @property
    def kept(self) -> Mapping[str, Kept]:  # type: ignore[override]
        """What `remember` returns."""
        return self._second.kept

    def remember(self, state: State) -> dict[str, Array]:
        """Return what the solver of the second stage wants to keep."""
        return self._second.remember(state)
