"""Data sets and kernels of the MWUMKL experiments, see mwu.py.

As in the paper: features scaled to [0, 1], 80 per cent of the rows for training, three polynomial
kernels of degree 1 to 3 and nine Gaussian ones of widths 2^0, 2^(1/2), ..., 2^4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from datasets import load as load_plain
from datasets import load_set, signs
from sklearn.preprocessing import MinMaxScaler

from kernelweave.kernels import RBF, Kernel, Polynomial, RBFBatch

SMALL = ("breast", "heart", "ionosphere", "pima", "sonar", "vote", "wdbc", "wpbc")
# Its epsilon, and the three kernels here (the paper does not say which three of its twelve).
LARGE = {
    "cod_rna": (0.07, [Polynomial(3), RBF(width=1.0), RBF(width=2.0)]),
    "adult": (0.05, [Polynomial(2), RBF(width=4.0), RBF(width=8.0)]),
}
EPS = {"cod_rna": 0.07, "web": 0.07, "adult": 0.05}


def load(name: str, data_dir: Path | str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features and labels -1 and +1; Adult is its training and test rows together."""
    if name not in ("adult", "web", "mushroom"):
        return load_plain(name, data_dir)
    data = load_set("adult_all" if name == "adult" else name, data_dir)
    return data.X, signs(data)


def split(
    X: np.ndarray, y: np.ndarray, seed: int, n_train: int | None = None, n_test: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """80 per cent at random for training, or the first `n_train` of these; scaled to [0, 1]."""
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(0.8 * len(y))
    train, test = order[:cut][:n_train], order[cut:][:n_test]
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
    """Gaussian kernels on one to five random features, as in million_kernels.py."""
    return RBFBatch.random(m, n_features, sizes=(1, 5), random_state=0)
