"""MWUMKL (Moeller et al.): matrix multiplicative weights, O(m n) memory, no Gram matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver, State, choice, either, integer, number
from kernelweave.solvers.inner import Point
from kernelweave.solvers.kept import ABOVE_ZERO, Kept
from kernelweave.solvers.mwu import on_cluster  # noqa: F401 (registers its rounds)
from kernelweave.solvers.mwu.descent import Descent
from kernelweave.solvers.mwu.target import BISECTED, FixedTargetRun

__all__ = ["MWU"]


@dataclass(frozen=True)
class MWU(Solver):
    r"""Multiplicative weights over the kernels, two samples a round, in O(m n) memory.

    Solves the maximum-margin problem under simplex weights,

    .. math:: \max_\alpha\; \sum_i y_i \alpha_i - \tfrac12 \max_k \alpha' K_k \alpha ,

    by rounds that move the two samples which violate the margin most and then weigh the kernels by
    exponentials of :math:`q_k(\alpha) = \alpha'K_k\alpha`. Only :math:`K_k\alpha` of every kernel
    is kept: no Gram matrix, no inner solver, no linear program.

    Parameters
    ----------
    eps : float in (0, 1), default=0.2
        Approximation error of the paper; it decides the number of rounds for a given target. With
        ``omega="auto"`` the relative error of the first target.
    omega : {"auto", "paper"} or float, default="auto"
        The target. "auto" raises it by doubling, warm, until the duality gap meets `tol`: line
        searches and pairs that may also fall end at the certified optimum. "paper" is algorithm 4
        as it stands (omega = 1, rho = 3/2, T rounds of fixed steps, its own classifier), a number
        the same with the unit-trace kernels scaled by it, the scale and intercept of lowest
        objective, and an end at `tol`; the certificate then says how far from the optimum the
        function is, which can be far.
    soft_margin : {"auto", "l1", "l2"}, default="auto"
        1-norm (hinge loss) or 2-norm (squared hinge loss); "auto" follows the estimator's loss.
        "l2" also turns a hinge loss into the squared one of the same C.
    max_iter : int or None, default=None
        Most rounds. None: T for a given target, no limit for "auto".

    Notes
    -----
    The paper has kernels of unit trace, the library of mean diagonal one. Its constants are
    ``n C / omega`` for the 1-norm (a bound on a/T) and ``2 n C`` for the 2-norm.

    With ``omega="paper"`` the rounds end after T or a limit of the user's, not at `tol`. The
    function that predicts is the paper's: it bisects the hulls of the two classes, and is 1 and -1
    at their nearest points. `gap_` is the true duality gap of this function, intercept included, in
    the estimator's problem with its `C`. That is not what the paper minimises: under the 1-norm its
    C bounds a/T, and belongs to another, far larger C of the hinge loss. So the gap can be near one
    where the classifier is a good one.

    One kernel is a fast approximate SVM; under fixed weights (``solver="uniform"`` or "align" say
    which) the sum of the kernels is one kernel too.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=MWU()).fit(X[::4], y[::4])
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    eps: float = field(default=0.2, metadata=number(above=0, below=1))
    omega: float | str = field(
        default="auto", metadata=either(choice("auto", "paper"), number(above=0))
    )
    soft_margin: str = field(default="auto", metadata=choice("auto", "l1", "l2"))
    max_iter: int | None = field(default=None, metadata=either(choice(None), integer(1)))

    name = "mwu"
    kept: ClassVar[Mapping[str, Kept]] = {
        "rounds": Kept(low=0.0),
        "log_weights": Kept(("m",), needed=False),
        "temperature": Kept(low=ABOVE_ZERO, needed=False),
    }
    tries_weights = False
    hands_over = True

    def prepare(self, problem: Problem) -> Problem:
        """Check the problem, and give it the loss of the soft margin."""
        regularizer = problem.regularizer
        simplex = regularizer.polyhedral and not regularizer.orthant
        if not problem.combination.linear or not (simplex or regularizer.fixed):
            raise InvalidInputError(
                "solver='mwu' learns weights on the simplex of a sum of kernels; got "
                f"regularizer={regularizer!r}, combination={problem.combination!r}. Use "
                "regularizer='simplex' and combination='sum', or another solver."
            )
        if not problem.loss.soft_margin:
            raise InvalidInputError(
                f"solver='mwu' takes loss='hinge' or 'squared_hinge'; got {problem.loss!r}. Use "
                "solver='auto', 'silp', 'spg' or 'spicy', which take every loss."
            )
        if self.omega != "auto" and problem.n_tasks > 1:
            raise InvalidInputError(
                f"omega={self.omega!r} is for two classes; got {problem.n_tasks} tasks that share "
                "their weights. Use omega='auto' or multi_class='ovr'."
            )
        if self.omega != "auto" and regularizer.fixed:
            raise InvalidInputError(
                f"omega={self.omega!r} learns the weights, but they are held fixed; use "
                "omega='auto'."
            )
        if self.soft_margin == "l1" and problem.loss.soft_margin == "l2":
            raise InvalidInputError(
                f"soft_margin='l1' is the hinge loss; got loss={problem.loss.name!r}. Use "
                "soft_margin='auto' or 'l2'."
            )
        if self.soft_margin == "l2" and problem.loss.soft_margin == "l1":
            problem = replace(problem, loss=get_loss("squared_hinge"))
        bisected = BISECTED.get(type(problem.loss))
        if self.omega == "paper" and bisected is not None:
            problem = replace(problem, loss=bisected())
        return problem

    def init(self, problem: Problem, start: Point | None) -> State:
        if self.omega == "auto":
            return Descent(problem, self.eps, self.max_iter, start).state()
        omega = None if self.omega == "paper" else float(self.omega)
        return FixedTargetRun(problem, self.eps, omega, self.max_iter, start).state()

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        state.memory.go(gap, inner_gap)
        return state.memory.state()

    def remember(self, state: State) -> dict[str, Array]:
        return state.memory.remembered()
