"""The log determinant of the combined kernel."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy.stats import multivariate_normal
from sklearn.base import clone

from kernelweave.bank import DenseBank
from kernelweave.combine import Product, WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.operators import DenseOperator
from kernelweave.regularizers import LogDet


class Counting(WeightedSum):
    """Counts how often the matrix is formed."""

    def __init__(self) -> None:
        self.formed = self.contracted = 0

    def matrix(self, bank, d):
        self.formed += 1
        return super().matrix(bank, d)

    def contract(self, bank, d, W):
        self.contracted += 1
        return super().contract(bank, d, W)


def kernels(m: int = 4, n: int = 12, scale: float = 1.0) -> DenseOperator:
    factors = np.random.default_rng(0).normal(size=(m, n, 5))
    return DenseBank().from_matrices(list(scale * factors @ factors.transpose(0, 2, 1) / 5))


@pytest.mark.parametrize("combination", [WeightedSum(), Product()], ids=repr)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_value_and_gradient(combination, scale: float) -> None:
    X = np.random.default_rng(1).normal(size=(12, 4))
    distances = [(x[:, None] - x) ** 2 for x in X.T]
    bank = DenseBank().from_matrices(distances) if combination.base == "distances" else kernels()
    reg = LogDet(0.7, ridge=scale).bind(bank, combination)
    d = np.array([0.3, 0.0, 1.2, 0.01])
    K = combination.matrix(bank, d)
    expected = 0.7 * np.linalg.slogdet(np.eye(12) + K / scale)[1]
    assert reg.value(d) == pytest.approx(expected, rel=1e-9)
    gradient = reg.gradient(d)
    for k, unit in enumerate(1e-6 * np.eye(4)):
        # One-sided and of second order: weights are never negative.
        numeric = (4 * reg.value(d + unit) - 3 * reg.value(d) - reg.value(d + 2 * unit)) / 2e-6
        assert gradient[k] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


def test_it_is_the_evidence_of_a_gaussian_process() -> None:
    bank, C = kernels(), 3.0
    ridge, y = 1 / (2 * C), np.random.default_rng(2).normal(size=12)
    reg = LogDet(0.5, ridge).bind(bank, WeightedSum())
    different = []
    for d in np.random.default_rng(3).uniform(size=(3, 4)):
        covariance = bank.weighted(d) + ridge * np.eye(12)
        # The least of C |y - f|^2 + |f|^2 / 2 over functions f of the kernel K(d).
        fit = 0.5 * y @ np.linalg.solve(covariance, y)
        evidence = multivariate_normal(np.zeros(12), covariance).logpdf(y)
        different.append(fit + reg.value(d) + evidence)
    np.testing.assert_allclose(different, different[0], rtol=1e-12)


def test_the_factor_is_kept_for_the_same_weights_only() -> None:
    combination = Counting()
    reg, d = LogDet().bind(kernels(), combination), np.full(4, 0.5)
    size = len(pickle.dumps(reg))
    first = reg.value(d)
    slopes = reg.gradient(d)
    assert reg.value(d.copy()) == first
    reg.weight *= 2
    assert_same_numbers(reg.gradient(d.copy()), 2 * slopes)
    reg.weight /= 2
    assert combination.formed == combination.contracted == 1
    d[0] = 2.0
    second = reg.value(d)
    assert second > first
    reg.ridge = 0.1
    assert reg.value(d) > second
    assert np.all(reg.gradient(d) != slopes)
    assert combination.formed == 3
    reg.ridge = 1.0
    reg.value(d)
    twin = pickle.loads(pickle.dumps(reg))
    assert len(pickle.dumps(reg)) == size  # without the factor
    assert twin.value(d) == reg.value(d)
    np.testing.assert_allclose(twin.gradient(d), reg.gradient(d))


def test_rounding_is_repaired_and_an_indefinite_kernel_refused() -> None:
    d = np.ones(1)
    huge = DenseBank().from_matrices([np.full((30, 30), 1.0 / 3.0)])
    reg = LogDet(1.0, ridge=1e-17).bind(huge, WeightedSum())
    assert np.isfinite(reg.value(d))
    assert np.all(np.isfinite(reg.gradient(d)))
    bad = DenseBank().from_matrices([np.diag([1.0, -5.0])])
    with pytest.raises(InvalidInputError, match="K\\(d\\) is not positive semi-definite"):
        LogDet().bind(bad, WeightedSum()).value(d)


def test_what_it_cannot_do_is_explained() -> None:
    d = np.ones(4)
    for use in (LogDet().value, LogDet().gradient, clone(LogDet().bind(kernels(), None)).value):
        with pytest.raises(InvalidInputError, match=r"'log_det' needs the kernels: call bind"):
            use(d)
    with pytest.raises(InvalidInputError, match=r"need 6.4 GB for n = 20000 .* 10000 samples"):
        LogDet().bind(SimpleNamespace(n=20_000), WeightedSum())
    for method in ("omega", "weights_from_norms", "dual_penalty"):
        with pytest.raises(
            NotImplementedError, match=f"LogDet has no .*{method}.*: it is not convex"
        ):
            getattr(LogDet(), method)(d)
    reg = LogDet().bind(kernels(), WeightedSum())
    for bad in (LogDet(0.0), LogDet(ridge=-1)):
        with pytest.raises(InvalidInputError, match="of LogDet must be a finite number > 0"):
            bad.bind(kernels(), WeightedSum()).value(d)
    assert reg.value(np.array([1.0, -0.1, 0.0, 0.0])) == np.inf
    assert np.isfinite(reg.value(np.array([1.0, -1e-12, 0.0, 0.0])))
