"""Random problems of every kind, and what is wrong with the certificates of their fits.

Everything is recomputed in extended precision from the public attributes of fitted estimators;
the kernels are written out by hand. ``python tests/helpers/checked_fits.py 4000`` checks that many
fits and prints what it found; ``... 4000 FIRST DECADES`` begins at another seed and draws weights
of the samples over so many decades.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from true_certificate import (
    LONG,
    dual_objective,
    floor_of,
    norms_of,
    primal_objective,
    relative_gap,
    truth,
)

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor, sample_ids
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear, Polynomial, from_matrices
from kernelweave.losses import get_loss
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.regularizers.fixed import Fixed

__all__ = [
    "Case",
    "Checked",
    "Violation",
    "alpha_of",
    "check_model",
    "compare",
    "draw_case",
    "fits_of",
    "intercept_of",
    "matrix_of",
]

CLASSIFICATION = ["hinge", "squared_hinge", "logistic", "smooth_hinge"]
LOSSES = [*CLASSIFICATION, "squared", "epsilon_insensitive", "one_class"]
REGULARIZERS = ["simplex", "l1", "lp_ball", "squared_lp", "elastic_net", "block_norm", "entropy"]
# Those under which the weights of a one-class problem are bounded.
BOUNDED = ["simplex", "lp_ball", "entropy"]
SOLVERS = ["auto", "active-set", "silp", "silp-chunking", "spg", "spicy", "mwu", "uniform"]
BANKS = ["dense", "lazy", "factored", "auto"]
# What the last digits of two ways to compute the same number may differ by, beside its size.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Case:
    """A problem, in the library's words and in plain arrays.

    Attributes
    ----------
    words : str
        What it is, to find it again.
    kernels, X, target
        What an estimator is given; no target for a one-class problem.
    Ks : list of ndarray
        The kernel matrices by hand, normalised, in extended precision.
    y, C : ndarray of shape (T, n)
        Targets and weights of the losses, for each task.
    loss, regularizer
        Their settings.
    settings : dict
        Other parameters of the estimator.
    weights : dict
        Weights of the samples by the name that `fit` has for them, if there are any.
    """

    words: str
    kernels: list
    X: np.ndarray
    target: np.ndarray | None
    Ks: list
    y: np.ndarray
    C: np.ndarray
    loss: object
    regularizer: object
    settings: dict
    weights: dict

    def estimator(self, solver, **others):
        """An estimator that is not fitted yet."""
        settings = {**self.settings, "solver": solver, "regularizer": self.regularizer, **others}
        if self.loss.name == "one_class":
            return MKLOneClass(self.kernels, **settings)
        if self.loss.name in CLASSIFICATION:
            return MKLClassifier(self.kernels, loss=self.loss, **settings)
        model = MKLRegressor(self.kernels, loss=self.loss, **settings)
        # The targets as they are: in other units it would be another problem.
        raw = {"target_scale": None} if "target_scale" in model.get_params() else {}
        return model.set_params(**raw)


@dataclass(frozen=True)
class Violation:
    """A statement of a fitted model that is not true."""

    kind: str
    words: str

    def __str__(self):
        return f"{self.kind}: {self.words}"


@dataclass
class Checked:
    """A fitted model and what is true of it.

    `slack` is what rounding of the kernels may hide in `primal`: with huge dual variables on a
    kernel of low rank, rounded values are no longer positive semi-definite, and the objective of
    that function may come out below the optimum.
    """

    solver: str
    model: object
    primal: float
    slack: float
    dual: float
    converged: bool
    violations: list = field(default_factory=list)


# Kernels by hand


def matrix_of(kind, number, X, normalize):
    """A kernel matrix from its formula, in extended precision."""
    X = np.asarray(X, dtype=LONG)
    if kind == "linear":
        K = X @ X.T
    elif kind == "polynomial":
        K = (X @ X.T + 1) ** int(number)
    else:
        square = sum(np.subtract.outer(x, x) ** 2 for x in X.T)
        K = np.exp(-square / (2 * LONG(number) ** 2))
    return normalised(K, normalize)


def normalised(K, normalize):
    """A kernel of mean diagonal one, of unit diagonal, or as it is."""
    diagonal = np.diag(K)
    if normalize == "trace":
        return K / diagonal.mean()
    if normalize == "diagonal":
        return K / np.sqrt(np.outer(diagonal, diagonal))
    return K


def _formulas(rng, n, m, normalize):
    """Kernels of few columns in the library's words and by hand."""
    X = rng.normal(size=(n, 4)) + rng.choice([0.0, 3.0])
    made = {
        "linear": lambda number: Linear(),
        "polynomial": lambda number: Polynomial(int(number)),
        "rbf": lambda number: RBF(width=float(number)),
    }
    kernels, Ks = [], []
    for _ in range(m):
        kind = str(rng.choice(list(made)))
        number = rng.choice([2, 3]) if kind == "polynomial" else rng.choice([0.3, 1.0, 2.0, 8.0])
        columns = np.sort(rng.choice(4, size=rng.integers(1, 5), replace=False)).tolist()
        kernels.append(made[kind](number).on(columns))
        Ks.append(matrix_of(kind, number, X[:, columns], normalize))
    return X, kernels, Ks


def _given(rng, n, m, normalize, unit):
    """Matrices of low and of full rank, in any unit."""
    given = []
    for _ in range(m):
        A = rng.normal(size=(n, int(rng.choice([1, 2, 5, n + 5]))))
        given.append(unit * (A @ A.T) / A.shape[1])
    given = [0.5 * (K + K.T) for K in given]
    Ks = [normalised(K.astype(LONG), normalize) for K in given]
    return sample_ids(n), from_matrices(given), Ks


# Problems


def _regularizer(rng, name, m):
    s = float(10.0 ** rng.uniform(-1, 1))
    return {
        "simplex": Simplex(),
        "l1": L1(s),
        "lp_ball": LpBall(float(rng.choice([1.2, 1.5, 2.0, 4.0]))),
        "squared_lp": SquaredLp(float(rng.choice([1.5, 2.0])), s),
        "elastic_net": ElasticNet(s, float(rng.choice([0.0, 0.5, 0.9]))),
        "block_norm": BlockNorm(int(rng.integers(1, m + 1)), float(rng.choice([1.5, 2.0])), s),
        "entropy": Entropy(s),
    }[name]


def draw_case(seed, decades=0):
    """A problem of any kind; the loss and the regularizer go round with the seed.

    Weights of samples, over so many decades, are drawn only if there are any.
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(12, 41)), int(rng.integers(1, 7))
    loss_name = LOSSES[seed % len(LOSSES)]
    names = BOUNDED if loss_name == "one_class" else REGULARIZERS
    regularizer = _regularizer(rng, names[seed // len(LOSSES) % len(names)], m)
    tol = float(rng.choice([1e-3, 1e-6]))
    C, unit = float(10.0 ** rng.uniform(-3, 7)), 1.0
    if rng.random() < 0.5:
        normalize = str(rng.choice(["trace", "diagonal"]))
        X, kernels, Ks = _formulas(rng, n, m, normalize)
    else:
        normalize = None if rng.random() < 0.7 else "trace"
        if normalize is None:
            unit = float(10.0 ** rng.integers(-9, 10))
            C = C / unit if rng.random() < 0.7 else C
        X, kernels, Ks = _given(rng, n, m, normalize, unit)
    signal = np.asarray(Ks[0], dtype=float) @ rng.normal(size=n)
    signal = signal / np.abs(signal).max() + 0.4 * rng.normal(size=n)
    settings = {"normalize": normalize, "tol": tol, "max_iter": 300, "max_time": 5.0}
    words = f"seed={seed} {loss_name} {regularizer!r} C={C:.3g} n={n} m={m} unit={unit:g}"
    words += f" normalize={normalize} tol={tol:g}"
    if loss_name == "one_class":
        nu = float(rng.choice([0.1, 0.5, 0.9]))
        settings["nu"] = nu
        target, y, C = None, np.ones((1, n)), 1.0 / n / nu
        words += f" nu={nu}"
    elif loss_name in CLASSIFICATION:
        # Two classes, or three that share their weights, each against the rest.
        n_classes = int(rng.choice([2, 2, 2, 3]))
        ends = np.quantile(signal, np.arange(1, n_classes) / n_classes)
        target = np.searchsorted(ends, signal)
        classes = [1] if n_classes == 2 else range(n_classes)
        y = np.array([np.where(target == c, 1.0, -1.0) for c in classes])
        words += f" classes={n_classes}"
        settings["C"] = C
    else:
        target = signal * 10.0 ** rng.integers(-3, 4)
        y = target[None]
        settings["C"] = C
    loss = get_loss(loss_name)
    if loss_name == "epsilon_insensitive":
        loss = type(loss)(0.1 * float(np.abs(y).max()))
    C, weights = np.full(y.shape, C), {}
    if decades:
        weight = 10.0 ** rng.uniform(-decades / 2, decades / 2, n)
        weights = {"sample_weight": weight}
        C = C * (weight / weight.mean() if loss_name == "one_class" else weight)
        words += f" decades={decades}"
    return Case(words, kernels, X, target, Ks, y, C, loss, regularizer, settings, weights)


# Fits


def fits_of(case, seed=0):
    """Fit with every solver that takes the problem, and check what each fit states."""
    rng = np.random.default_rng(seed)
    done = []
    for solver in SOLVERS:
        model = case.estimator(solver, bank=str(rng.choice(BANKS)))
        try:
            taken = fitted(model, case)
        except Exception as error:
            words = f"{error!r} [{case.words} solver={solver} bank={model.bank}]"
            failed = Checked(solver, model, np.nan, np.nan, np.nan, False)
            failed.violations.append(Violation("error", words))
            done.append(failed)
            continue
        if taken:
            done.append(check_model(case, solver, model))
    whole = [one for one in done if np.isfinite(one.primal)]
    groups = [[one for one in whole if (one.solver == "uniform") == fixed] for fixed in (0, 1)]
    for group in filter(None, groups):
        compare(case, group)
    return done


def fitted(model, case):
    """Whether the solver takes the problem; warnings are part of what a fit may do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = (case.X,) if case.target is None else (case.X, case.target)
            model.fit(*given, **case.weights)
        except InvalidInputError as error:
            if "solver" not in str(error):
                raise
            return False
    return True


def alpha_of(model, n):
    """All dual variables, with zeros where there is no support vector."""
    alpha = np.zeros((len(model.dual_coef_), n))
    alpha[:, model.support_] = model.dual_coef_
    return alpha


def intercept_of(model):
    """The intercept of the objective."""
    return model.intercept_


def problem_of(case, solver, model):
    """Kernels, targets, loss weights, loss and regularizer; fixed weights are their own."""
    regularizer = Fixed(model.weights_) if solver == "uniform" else case.regularizer
    return case.Ks, case.y, case.C, case.loss, regularizer


def check_model(case, solver, model):
    """What can be seen from one fit alone."""
    problem = problem_of(case, solver, model)
    d, b, alpha = model.weights_, intercept_of(model), alpha_of(model, case.y.shape[1])
    where = f"{case.words} solver={solver} bank={model.bank}"
    found = []

    def wrong(kind, words):
        found.append(Violation(kind, f"{words} [{where}]"))

    numbers = [model.objective_, model.dual_objective_, model.gap_, *d, *b]
    if not np.all(np.isfinite(numbers)) or not np.all(np.isfinite(alpha)):
        wrong("finite", f"objective, dual, gap, weights, intercept: {numbers}")
        return Checked(solver, model, np.nan, np.nan, np.nan, model.converged_, found)
    true = truth(*problem, d, alpha, b)
    primal = true.primal
    decisions = model.predict(case.X) if is_regression(case) else model.decision_function(case.X)
    decisions = np.atleast_2d(decisions.T) + (b - model.intercept_)[:, None]
    terms = list(zip(d, case.Ks, strict=True))
    f = sum(w * (alpha @ K) for w, K in terms) + b[:, None]
    size = sum(w * (abs(alpha) @ abs(K)) for w, K in terms) + abs(b)[:, None]
    off = float(np.abs(decisions - f).max())
    if off > _ROUNDING * float(size.max()):
        wrong("decision", f"values are off by {off:.3g}, their terms are {float(size.max()):.3g}")
    else:
        # With its values rounded it is the same function: the lower objective may be meant.
        norms = norms_of(case.Ks, d, alpha)
        primal = min(primal, primal_objective(*problem[1:], norms, decisions, b))
    unit = max(abs(primal), abs(true.dual), true.floor)
    if primal > model.objective_ + _ROUNDING * unit:
        wrong("objective", f"P = {primal:.15g} > objective_ = {model.objective_:.15g}")
    expected = relative_gap(model.objective_, model.dual_objective_, model.objective_floor_)
    if not np.isclose(model.gap_, expected, rtol=1e-6, atol=1e-12):
        wrong("definition", f"gap_ = {model.gap_:.6g}, by its definition {expected:.6g}")
    if not np.isclose(model.objective_floor_, true.floor, rtol=1e-6):
        wrong("floor", f"objective_floor_ = {model.objective_floor_:.6g}, not {true.floor:.6g}")
    if model.converged_ != (model.gap_ <= model.tol):
        wrong("converged", f"converged_ = {model.converged_} with gap_ = {model.gap_:.6g}")
    if not _allowed(problem[-1], d):
        wrong("weights", f"outside their set: {d}")
    return Checked(solver, model, primal, true.slack, true.dual, model.converged_, found)


def is_regression(case):
    return case.loss.name in ("squared", "epsilon_insensitive")


def _allowed(regularizer, d):
    if d.min() < 0:
        return False
    if isinstance(regularizer, Simplex | Entropy):
        return abs(d.sum() - 1) <= _ROUNDING
    if isinstance(regularizer, LpBall):
        return np.sum(d**regularizer.p) <= 1 + _ROUNDING
    return True


def compare(case, group):
    """What fits of one problem say of each other: bounds on the same optimum.

    Any dual variables prove a lower bound, so those of all fits are tried on each of them; and if
    they do not do, those of fits that are as exact as can be.
    """
    floor = floor_of(case.Ks, case.y, case.C, case.loss)
    best = max(one.dual for one in group)
    lowest = min(one.primal + one.slack for one in group)

    def bad(one):
        gap = relative_gap(one.primal, best, floor)
        return one.converged and gap > one.model.tol * (1 + 1e-6)

    if any(bad(one) for one in group):
        best = max(best, *_exact_bounds(case, group[0]))
    for one in group:
        where = f"[{case.words} solver={one.solver} bank={one.model.bank}]"
        if bad(one):
            gap = relative_gap(one.primal, best, floor)
            words = f"converged_ with gap_ = {one.model.gap_:.6g}, true gap {gap:.6g} {where}"
            one.violations.append(Violation("gap", words))
        unit = max(abs(lowest), abs(best), floor)
        if one.model.dual_objective_ > lowest + _ROUNDING * unit:
            words = (
                f"dual_objective_ = {one.model.dual_objective_:.15g} > P = {lowest:.15g} {where}"
            )
            one.violations.append(Violation("dual", words))


def _exact_bounds(case, one):
    """Lower bounds by dual variables of fits that are as exact as can be."""
    for solver in ["uniform"] if one.solver == "uniform" else ["auto", "silp", "spg", "spicy"]:
        others = {"tol": 1e-10, "bank": "dense", "max_iter": 2000, "max_time": 20.0}
        model = case.estimator(solver, **others)
        if fitted(model, case):
            problem = problem_of(case, one.solver, one.model)
            yield dual_objective(*problem, alpha_of(model, case.y.shape[1]))


def main(count, first=0, decades=0):
    """Check so many fits, and print every violation and how many there are of each kind."""
    seed, fits, bad, found, open_ends = first, 0, 0, Counter(), Counter()
    while fits < count:
        for one in fits_of(draw_case(seed, decades), seed):
            fits += 1
            bad += bool(one.violations)
            found.update(violation.kind for violation in one.violations)
            open_ends[one.solver] += not one.converged
            for violation in one.violations:
                print(violation, flush=True)
        seed += 1
    print(f"{fits} fits of {seed - first} problems; {bad} with violations: {dict(found)}")
    print(f"not converged (that is no violation): {dict(+open_ends)}")
    return bad


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
