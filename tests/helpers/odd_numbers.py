"""Fits on numbers nobody tried: NaN, infinity, denormals, zeros, huge and tiny values, mixed.

``python tests/helpers/odd_numbers.py FIRST COUNT`` tries so many seeds and prints one line for
each, before it starts ("try 7") and after it ("7 fit ..." or "7 error ..." or "7 BAD ..."): should
the process die, the last line says at which one. A case is bad if it ends in another error than a
documented one, in a warning of NumPy's, or in a fit that states numbers that are not finite or a
certificate that is not true.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from contextlib import ExitStack
from functools import cache

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from small_clusters import small_cluster
from true_certificate import truth

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    NystromMKLClassifier,
)
from kernelweave.bank import DaskBank
from kernelweave.errors import MemoryBudgetError
from kernelweave.kernels import (
    RBF,
    Distance,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    RBFBatch,
    Spectrum,
    WeightedDegree,
    feature_distances,
    sample_ids,
)
from kernelweave.losses import get_loss
from kernelweave.regularizers import get_regularizer

NUMBERS = np.array([
    np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -1e-310, 1e-200, 1e-160, 1e-100, 1e-40, 1e-23,
    1e-19, 1e18, 1e20, -1e38, 4e38, 1e50, 1e76, -1e100, 1.1e100, 1e154, 1e160, -1e300, 1.7e308,
])  # fmt: skip
SOLVERS = ["auto", "silp", "silp-chunking", "active-set", "uniform", "align", "spg", "pgd", "spicy"]
BANKS = ["auto", "dense", "lazy", "factored"]
REGULARIZERS = ["l1", "squared_lp", "elastic_net", "block_norm", "log_det", "lp_ball", "entropy"]
OPEN = ExitStack()  # what is closed at the end of the process


class Spoilt(Kernel):
    """A linear kernel of the user's own, some of whose values are others."""

    name = "spoilt"

    def __init__(self, value=np.nan, whole=False):
        self.value = value
        self.whole = whole

    def evaluate(self, pair):
        out = np.array(pair.inner)
        out[out > np.quantile(out, 0.9)] = self.value
        return out

    def diagonal(self, samples):
        out = np.array(samples.square_norms())
        if self.whole:
            out[0] = self.value
        return out


def pick(rng, options):
    """One of several things."""
    return options[rng.integers(len(options))]


def spoil(rng, A):
    """Scale numbers, all, by column or by row, and put some others in their place."""
    A = np.array(A, dtype=np.float64)
    with np.errstate(all="ignore"):
        if rng.random() < 0.6:
            low, high = pick(rng, [(-5, 5), (-25, 25), (-60, 60), (-170, 170), (-320, 308)])
            size = [(1,) * A.ndim, (1, *A.shape[1:]), (len(A), *(1,) * (A.ndim - 1))]
            A = A * 10.0 ** rng.uniform(low, high, pick(rng, size))
        if rng.random() < 0.5:
            where = rng.random(A.shape) < pick(rng, [0.01, 0.1, 0.5])
            tame = NUMBERS if rng.random() < 0.3 else NUMBERS[np.abs(NUMBERS) <= 1e100]
            A[where] = rng.choice(tame, where.sum())
    return A


def some_kernel(rng, n):
    """A kernel, and whether it reads sample ids."""
    scale = 10.0 ** rng.uniform(-30, 30)
    makers = [
        Linear,
        lambda: Polynomial(int(rng.integers(1, 9)), coef0=pick(rng, [0, 1, scale])),
        lambda: Polynomial(2, gamma=scale),
        lambda: RBF(gamma=scale),
        lambda: RBF(width=pick(rng, [1e-149, 1e-20, 1.0, 1e20, 1e149])),
        lambda: Distance(pick(rng, ["euclidean", "cityblock", "sqeuclidean"])),
        lambda: Distance("euclidean", scale=scale),
        lambda: Linear() * RBF(gamma=1.0),
        lambda: Polynomial(3) + Linear(),
        lambda: Spoilt(rng.choice(NUMBERS), bool(rng.random() < 0.5)),
    ]
    return pick(rng, makers)()


def problem(rng):
    """Samples and kernels."""
    n, p = int(rng.integers(6, 24)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, p))
    kind = pick(rng, ["numbers"] * 6 + ["given", "batch", "sparse", "text"])
    if kind == "text":
        X = ["".join(rng.choice(list("ACGTN"), 8)) for _ in range(n)]
        kernels = [Spectrum(k=int(rng.integers(1, 4))), WeightedDegree(degree=3)]
        return X, kernels, "auto", list(rng.permutation(X))
    if kind == "given":
        with np.errstate(all="ignore"):
            K = spoil(rng, X @ X.T)
            K = K + K.T
        return sample_ids(n), [Precomputed(K), Precomputed(X @ X.T)], "auto", sample_ids(n)
    X, new = spoil(rng, X), spoil(rng, rng.normal(size=(5, p)))
    if kind == "batch":
        columns = rng.integers(0, p, size=(6, 1))
        return X, RBFBatch(columns, 10.0 ** rng.uniform(-30, 30, 6)), "auto", new
    kernels = [some_kernel(rng, n) for _ in range(rng.integers(1, 4))]
    if kind == "sparse":
        kernels = [Linear(), Polynomial(2)][: rng.integers(1, 3)]
        return sparse.csr_array(X), kernels, pick(rng, ["auto", "lazy", "dense"]), new
    return X, kernels, pick(rng, BANKS), new


@cache
def cluster():
    """A client of two workers, for all cases of a process."""
    return OPEN.enter_context(small_cluster())[1]


def distances(rng, n, p):
    """Kernels to multiply, each to its power, and samples where these are no numbers."""
    scale = 10.0 ** rng.uniform(-30, 30)
    makers = [
        lambda: RBF(gamma=pick(rng, [1.0, scale])).on([0]),
        lambda: Distance(pick(rng, ["euclidean", "cityblock", "sqeuclidean"])),
        lambda: Distance("cityblock", scale=scale),
        lambda: feature_distances(),
        lambda: RBF(gamma=1.0) * Distance("euclidean").on([p - 1]),
        Linear,
    ]
    if rng.random() < 0.7:
        return [pick(rng, makers)() for _ in range(rng.integers(1, 4))], None
    points = rng.normal(size=(n, 2))
    with np.errstate(all="ignore"):
        given = spoil(rng, np.abs(points[:, :1] - points[:, 0]))
        given = given + given.T
    return [Distance(given), Distance(np.abs(points[:, 1:] - points[:, 1]))], sample_ids(n)


def newer(rng, model, X, new):
    """Make of a drawn estimator a product of kernels, or one on a cluster; or leave it."""
    ids = X is new or isinstance(X, list) or sparse.issparse(X)
    kind = pick(rng, ["product", "cluster", "regularizer", "as it is"])
    if kind == "product" and not ids and isinstance(model, (MKLClassifier, MKLRegressor)):
        kernels, samples = distances(rng, *X.shape)
        model.set_params(kernels=kernels, combination="product", normalize=None)
        model.set_params(bank=pick(rng, ["auto", "lazy"]), regularizer=pick(rng, REGULARIZERS))
        model.set_params(solver=pick(rng, ["auto", "spg", "pgd", "uniform"]))
        X, new = (X, new) if samples is None else (samples, samples)
    elif kind == "cluster" and "bank" in model.get_params():
        model.set_params(bank=DaskBank(cluster(), pick(rng, ["points", "kernels"])))
    elif kind == "regularizer" and "regularizer" in model.get_params():
        model.set_params(regularizer=pick(rng, REGULARIZERS))
    return X, new


def case(seed):
    """An estimator, what to fit it on, and new samples."""
    rng = np.random.default_rng(seed)
    X, kernels, bank, new = problem(rng)
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    y = np.where(np.arange(n) % 2, 1, -1) if rng.random() < 0.8 else np.arange(n) % 3
    target = spoil(rng, rng.normal(size=n)) if rng.random() < 0.5 else rng.normal(size=n)
    normalize = pick(rng, ["trace", "trace", None, None, "diagonal", "center", ("center", "trace")])
    common = {"kernels": kernels, "normalize": normalize, "bank": bank, "max_iter": 50}
    common |= {"cache_mb": pick(rng, [1000, 0.001])}
    C = {"C": pick(rng, [1.0, 1.0, 10.0 ** rng.uniform(-20, 20), 10.0 ** rng.uniform(-300, 300)])}
    solver = {"solver": pick(rng, [*SOLVERS, "mwu"]), "max_time": 5.0}
    names = ["hinge", "squared_hinge", "logistic", "smooth_hinge"]
    path = {"Cs": pick(rng, [3, [1e-3, 1.0], [1e-200, 1.0, 1e90]]), "cv": 2}
    made = [
        lambda: (MKLClassifier(loss=pick(rng, names), **C, **solver, **common), y),
        lambda: (MKLClassifier(loss=pick(rng, names), **C, **solver, **common), y),
        lambda: (MKLRegressor(loss=pick(rng, ["epsilon_insensitive", "squared"]), **C, **solver,
                              **common), target),
        lambda: (MKLOneClass(**solver, **common), None),
        lambda: (BayesianMKLClassifier(**common), y),
        lambda: (BayesianMKLRegressor(**common), target),
        lambda: (NystromMKLClassifier(n_components=5, kernels=kernels, max_iter=50), y),
        lambda: (MKLClassifierCV(loss=pick(rng, names), **path, **solver, **common), y),
        lambda: (MKLRegressorCV(loss=pick(rng, ["epsilon_insensitive", "squared"]), **path,
                                **solver, **common), target),
    ]  # fmt: skip
    model, y = pick(rng, made)()
    X, new = newer(rng, model, X, new)
    weight = {}
    if rng.random() < 0.25 and not isinstance(model, (BayesianMKLClassifier, BayesianMKLRegressor)):
        weight = {"sample_weight": np.abs(spoil(rng, np.ones(n)))}
    return model, X, y, weight, new


def numbers_of(model):
    """Public attributes of a fit that hold numbers."""
    for name in dir(type(model)):
        if name.endswith("_") and not name.startswith("_"):
            yield name, getattr(model, name, None)
    yield from ((k, v) for k, v in vars(model).items() if k.endswith("_") and k[0] != "_")


# Bounds on the optimum may say that nothing is known, and scores of scikit-learn's may overflow.
UNBOUNDED = {"dual_objective_", "objective_floor_", "scores_", "best_score_"}


def complaints(model, X, y, weight, new):
    """What is wrong with a fit."""
    for name, value in numbers_of(model):
        if isinstance(value, (float, np.floating, np.ndarray)) and name not in UNBOUNDED:
            value = np.asarray(value)
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                yield f"{name} is not finite"
    if isinstance(model, MKLClassifier) and model.gap_kind_ == "duality":
        yield from false_certificate(model, y, weight)
    for samples in (X, new):
        try:
            values = model.decision_function(samples) if hasattr(model, "decision_function") else (
                model.predict(samples))  # fmt: skip
        except ValueError as error:
            yield from bare(error)
        else:
            if not np.isfinite(values).all():
                yield "decision values are not finite"


def false_certificate(model, y, weight):
    """Whether the objective and the gap of a fit are what its weights and dual variables give."""
    kernels = model._kernel_set
    Ks = kernels.block(np.arange(kernels.n)) if hasattr(kernels, "rows") else []
    classes = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
    signs = np.where(y == classes[:, None], 1.0, -1.0)
    C = np.broadcast_to(
        getattr(model, "C_" if isinstance(model, MKLClassifierCV) else "C")
        * weight.get("sample_weight", 1.0),
        signs.shape,
    )
    fixed = model.solver in ("uniform", "align")
    if not model.converged_ or fixed or not len(Ks) or not C.all():
        return
    alpha = np.zeros(signs.shape)
    alpha[:, model.support_] = model.dual_coef_
    found = truth(
        Ks, signs, C, get_loss(model.loss), get_regularizer(model.regularizer), model.weights_,
        alpha, model.intercept_,
    )  # fmt: skip
    size = max(abs(found.primal), abs(found.dual), found.floor)
    # It counts what the bank may be off by, and below the floor it is as good as zero.
    more = model.objective_ - found.primal
    allowed = max(model.tol * size, found.floor if size == found.floor else 0.0)
    if not -1e-9 * size - found.slack <= more <= allowed + found.slack:
        yield f"objective_ is {model.objective_}, in truth {found.primal}"
    if found.gap > 1.01 * model.tol + found.slack / size:
        yield f"gap_ is {model.gap_}, in truth {found.gap}"


def bare(error):
    """What is wrong with an error: it is not one a user is told of."""
    told = isinstance(error, (ValueError, TypeError, MemoryBudgetError))
    if not told or isinstance(error, np.linalg.LinAlgError) or "bug" in str(error):
        yield "".join(traceback.format_exception(error)[-6:])
    elif not str(error).strip() or "array must not contain" in str(error):
        yield f"an error of another library: {error}"


def outcome(seed):
    """Fit and predict; return the word for it and what was wrong."""
    model, X, y, weight, new = case(seed)
    about = f"{type(model).__name__} bank={model.get_params().get('bank')}"
    about += f" solver={model.get_params().get('solver')} normalize={model.normalize}"
    about += f" kernels={model.kernels!r}"[:200]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            model.fit(X, **weight) if y is None else model.fit(X, y, **weight)
            wrong = list(complaints(model, X, y, weight, new))
            word = "fit" if getattr(model, "converged_", True) else "open"
        except Exception as error:
            wrong, word = list(bare(error)), f"error {str(error)[:150]}"
    return (f"BAD {about}: {' ; '.join(wrong)}" if wrong else word).replace("\n", " | ")


def main(first, count):
    warnings.simplefilter("ignore", ConvergenceWarning)
    with OPEN:
        for seed in range(first, first + count):
            print(f"try {seed}", flush=True)
            print(seed, outcome(seed), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
