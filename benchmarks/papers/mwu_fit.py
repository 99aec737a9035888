"""One fit of the MWUMKL experiments, timed, here or in a process of its own; see mwu.py."""

import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.svm import LinearSVC

from benchmarks.data import load as load_plain
from benchmarks.data import load_set, signs
from benchmarks.timing import apart, fit_cost
from kernelweave import MKLClassifier, NystromMKLClassifier
from kernelweave.kernels import RBF, Kernel, OnColumns, Polynomial, RBFBatch
from kernelweave.solvers import MWU

SMALL = ("breast", "heart", "ionosphere", "pima", "sonar", "vote", "wdbc", "wpbc")
EPS = {"cod_rna": 0.07, "web": 0.07, "adult": 0.05}
# The three kernels here (the paper does not say which three of its twelve).
THREE = {
    "cod_rna": [Polynomial(3), RBF(width=1.0), RBF(width=2.0)],
    "adult": [Polynomial(2), RBF(width=4.0), RBF(width=8.0)],
}
# Method -> loss. The 2-norm soft margin for all but "mwu hinge", as LIBLINEAR has it.
METHODS = dict.fromkeys(("mwu", "mwu hinge", "mwu paper"), "squared_hinge")
METHODS |= dict.fromkeys(("nystrom", "uniform", "plain liblinear+"), "squared_hinge")
METHODS["mwu hinge"] = "hinge"
FOREVER = 10**9
# Fits of fewer seconds are made three times, and the shortest time counts.
SHORT = 5.0


def load(name: str, data_dir: Path | str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features and labels -1 and +1; Adult is its training and test rows together."""
    if name not in ("adult", "web", "mushroom"):
        return load_plain(name, data_dir)
    data = load_set("adult_all" if name == "adult" else name, data_dir)
    return data.X, signs(data)


def split(
    X: np.ndarray, y: np.ndarray, seed: int, n_train: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """80 per cent at random for training, or the first `n_train` of these; scaled to [0, 1]."""
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(0.8 * len(y))
    train, test = order[:cut][:n_train], order[cut:]
    scaler = MinMaxScaler().fit(X[train])
    return scaler.transform(X[train]), scaler.transform(X[test]), y[train], y[test]


def twelve_kernels() -> list[Kernel]:
    """The paper's base family on all features."""
    kernels: list[Kernel] = [Polynomial(degree) for degree in (1, 2, 3)]
    return kernels + [RBF(width=2.0 ** (j / 2)) for j in range(9)]


def per_feature_kernels(n_features: int, m: int | None = None) -> list[Kernel]:
    """Twelve kernels on every feature; the first m of a random order of the features."""
    features = np.random.default_rng(0).permutation(n_features)
    kernels = [kernel.on(int(j)) for j in features for kernel in twelve_kernels()]
    return kernels[:m]


def million_kernels(m: int, n_features: int) -> RBFBatch:
    """Gaussian kernels on one to five random features, as in large.py."""
    return RBFBatch.random(m, n_features, sizes=(1, 5), random_state=0)


@dataclass(frozen=True)
class Job:
    """What to fit. `kernels`: three, twelve, features or batch; m cuts the last two."""

    name: str
    kernels: str
    method: str
    C: float = 1.0
    eps: float = 0.2
    tol: float = 1e-2
    n_train: int | None = None
    m: int | None = None
    bank: str = "auto"
    n_components: int = 150
    max_time: float | None = None
    seed: int = 0
    data_dir: Path | None = None


def kernels_of(job: Job, n_features: int) -> Any:
    if job.kernels == "three":
        return THREE[job.name]
    if job.kernels == "twelve":
        return twelve_kernels()
    if job.kernels == "features":
        return per_feature_kernels(n_features, job.m)
    return million_kernels(job.m or 1_000_000, n_features)


def make_model(job: Job, kernels: Any) -> Any:
    if job.method == "nystrom":
        settings = {"n_components": job.n_components, "random_state": job.seed}
        return NystromMKLClassifier(kernels, C=job.C, **settings)
    if job.method == "plain liblinear+":
        return plain_liblinear(kernels, job)
    solver: Any = "uniform"
    if job.method != "uniform":
        omega = "paper" if job.method == "mwu paper" else "auto"
        solver = MWU(eps=job.eps, omega=omega)
    return MKLClassifier(
        kernels,
        C=job.C,
        loss=METHODS[job.method],
        solver=solver,
        # The paper makes its T rounds, whatever the gap.
        tol=min(job.tol, 1e-3) if job.method == "mwu paper" else job.tol,
        bank=job.bank,
        max_iter=FOREVER,
        max_time=job.max_time,
    )


def plain_liblinear(kernels: list[Kernel], job: Job) -> Pipeline:
    """LIBLINEAR+ as in the paper: scikit-learn's Nystroem for every kernel, and LinearSVC."""
    parts = [(str(k), _plain_features(kernel, job)) for k, kernel in enumerate(kernels)]
    return make_pipeline(FeatureUnion(parts), LinearSVC(C=job.C, random_state=job.seed))


def _plain_features(kernel: Kernel, job: Job) -> Any:
    core, columns = kernel, slice(None)
    if isinstance(kernel, OnColumns):
        core, columns = kernel.kernel, [kernel.selection.columns]
    common = {"n_components": job.n_components, "random_state": job.seed}
    if hasattr(core, "degree"):
        part = Nystroem(kernel="poly", degree=core.degree, gamma=1.0, coef0=1.0, **common)
    else:
        part = Nystroem(kernel="rbf", gamma=0.5 / core.width**2, **common)
    return make_pipeline(FunctionTransformer(lambda X: X[:, columns]), part)


def fit_here(**settings: Any) -> dict[str, Any]:
    job = Job(**settings)
    X, y = load(job.name, job.data_dir)
    train, test, y_train, y_test = split(X, y, job.seed, job.n_train)
    if job.kernels == "batch":
        # As in large.py: all rows, standardised.
        train = test = (X - X.mean(axis=0)) / X.std(axis=0)
        y_train = y_test = y
    kernels = kernels_of(job, train.shape[1])
    few = kernels if job.kernels != "batch" else million_kernels(3000, train.shape[1])
    few = few[:24] if isinstance(few, list) else few
    small = np.concatenate([np.flatnonzero(y_train == label)[:60] for label in (-1, 1)])
    compiling = replace(job, max_time=2.0, eps=0.5, n_components=10)
    make_model(compiling, few).fit(train[small], y_train[small])
    model = make_model(job, kernels)
    seconds, memory, _ = fit_cost(lambda: model.fit(train, y_train), SHORT)
    result = {"seconds": seconds, "n": len(y_train), "above_mb": memory}
    result["accuracy"] = 100.0 * model.score(test, y_test)
    if isinstance(model, MKLClassifier):
        result["gap"], result["rounds"] = model.gap_, model.history_[-1].inner_iterations
        result["support"] = len(model.support_)
        result["used"] = int(np.count_nonzero(model.weights_ > 1e-6))
        result["weights"] = " ".join(f"{w:.2f}" for w in model.weights_[:20])
    return result


def fit_apart(job: Job, patience: float | None = None) -> dict[str, Any]:
    """`fit_here` in a process of its own, so that its peak memory is its own.

    After `patience` seconds, kernels and all, it is ended and the result has nothing but these.
    """
    try:
        return apart(fit_here, timeout=patience, **asdict(job))
    except subprocess.TimeoutExpired:
        return {"more_than": patience}


def choose_C(job: Job, grid: list[float], rows: int) -> float:
    """The first best C of the grid: fits on 80 per cent of `rows` training rows, judged by 20."""
    X, y = load(job.name, job.data_dir)
    train, _, y_train, _ = split(X, y, job.seed)
    X_part, X_judge, y_part, y_judge = split(train[:rows], y_train[:rows], job.seed + 1)
    scores = []
    for C in grid:
        model = make_model(replace(job, C=C, max_time=60.0), kernels_of(job, train.shape[1]))
        scores.append(model.fit(X_part, y_part).score(X_judge, y_judge))
    return grid[int(np.argmax(scores))]
