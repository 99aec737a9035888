"""himalaya's kernel ridge models, on its NumPy backend.

Its penalty alpha is 1 / (2 C): its problem is then that of kernelweave's squared loss. Its gradient
search has no intercept (targets have mean zero here) and chooses the penalty itself.
"""

from functools import partial
from typing import Any

import numpy as np
from himalaya.backend import set_backend
from himalaya.kernel_ridge import KernelRidge, MultipleKernelRidgeCV

from benchmarks.peers.data import Contestant, Data, on_matrices, on_mean

set_backend("numpy")


def mean(data: Data) -> Contestant:
    settings = {"kernel": "precomputed", "fit_intercept": True}
    return on_mean(data, lambda: KernelRidge(1 / (2 * data.C), **settings), "predict")


def learnt(data: Data, solver: str) -> Contestant:
    """Weights chosen by cross-validation, at the solver's defaults."""
    options: dict[str, Any] = {"progress_bar": False}
    if solver == "random_search":
        options["alphas"] = np.array([1 / (2 * data.C)])
    settings = {"kernels": "precomputed", "solver": solver, "solver_params": options}
    settings |= {"fit_intercept": solver == "random_search", "random_state": 0}
    return on_matrices(
        data,
        lambda: MultipleKernelRidgeCV(**settings),
        lambda grams: grams,
        decision="predict",
        weights=lambda model: np.exp(np.asarray(model.deltas_)).reshape(-1),
    )


CONTESTANTS = {
    "KernelRidge, mean": mean,
    "MultipleKernelRidgeCV, random_search": partial(learnt, solver="random_search"),
    "MultipleKernelRidgeCV, hyper_gradient": partial(learnt, solver="hyper_gradient"),
}
