"""Families of kernels, and everything an estimator's `kernels` accepts."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from kernelweave.kernels import (
    RBF,
    Linear,
    Polynomial,
    Samples,
    default_family,
    mwumkl_family,
    resolve,
    simplemkl_family,
    spicymkl_family,
)
from kernelweave.operators import ComputedOperator

FAMILIES = [simplemkl_family, spicymkl_family, mwumkl_family, default_family]
SIZES = {simplemkl_family: 13, spicymkl_family: 27, mwumkl_family: 12, default_family: 7}


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(20, 3)) * [1, 10, 100] + 5


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_and_unique_names(X, family):
    assert len(resolve(family(per_feature=False), Samples(X))) == SIZES[family]
    bank = ComputedOperator.build(family(per_feature=True), X)
    assert bank.m == SIZES[family] * 4
    assert len(set(bank.names)) == bank.m


def test_simplemkl_family_is_the_papers(X):
    bank = ComputedOperator.build(
        simplemkl_family(), pd.DataFrame(X, columns=["u", "v", "w"]), None
    )
    Z = StandardScaler().fit_transform(X)
    values = dict(zip(bank.names, bank.block(np.arange(20)), strict=True))
    np.testing.assert_allclose(values["rbf(width=0.125)"], RBF(width=0.125)(Z), atol=1e-11)
    np.testing.assert_allclose(values["polynomial(degree=3)"], Polynomial(3)(Z), rtol=1e-9)
    on_v = RBF(width=64)(Z[:, [1]])
    np.testing.assert_allclose(values["rbf(width=64) on v"], on_v, atol=1e-11)
    raw = resolve(simplemkl_family(scale=False), Samples(X))
    np.testing.assert_allclose(raw[0](X), RBF(width=0.125)(X), atol=1e-12)


def test_mwumkl_family_scales_to_the_unit_interval(X):
    bank = ComputedOperator.build(mwumkl_family(), X, None)
    Z = MinMaxScaler().fit_transform(X)
    for k, j in enumerate(range(9)):
        np.testing.assert_allclose(
            bank.block([3])[k], RBF(width=2 ** (j / 2))(Z[[3]], Z), atol=1e-11
        )


def test_default_family_adapts_to_the_number_of_features(X):
    bank = ComputedOperator.build(default_family(), X, None)
    Z = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(bank.block(np.arange(20), None, [0])[0], Z @ Z.T, atol=1e-12)
    np.testing.assert_allclose(
        bank.block([2], None, [4])[0], RBF(width=np.sqrt(3))(Z[[2]], Z), rtol=1e-10
    )

    both = ComputedOperator.build(default_family(per_feature=True), X, None)
    np.testing.assert_allclose(both.block([2], None, range(7)), bank.block([2]), atol=1e-12)
    on_one = RBF(width=1)(Z[[2], 1:2], Z[:, 1:2])
    assert both.names[7 + 7 + 4] == "rbf(width=1) on column 1"
    np.testing.assert_allclose(both.block([2], None, [18])[0], on_one, rtol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("constant", [1, 3])
def test_constant_features_are_harmless(X, family, per_feature, constant):
    X[:, :constant] = 7.0
    bank = ComputedOperator.build(family(per_feature=per_feature), X, "trace")
    assert np.isfinite(bank.block([0, 1])).all()
    np.testing.assert_allclose(bank.diagonal().mean(axis=1), 1.0)


def test_the_scaler_of_a_family_is_fitted_once(X, monkeypatch):
    calls = []
    fit = StandardScaler.fit

    def counting(self, *args, **kwargs):
        calls.append(1)
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(StandardScaler, "fit", counting)
    ComputedOperator.build(simplemkl_family(), X).block([0])
    assert len(calls) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_input(family):
    rng = np.random.default_rng(1)
    dense = rng.random((30, 8)) * (rng.random((30, 8)) < 0.5)
    bank = ComputedOperator.build(family(per_feature=False), sparse.csr_matrix(dense))
    assert np.isfinite(bank.block([0])).all()
    with pytest.raises(ValueError, match=r"per_feature=True.*sparse.*per_feature=False"):
        resolve(family(per_feature=True), Samples(sparse.csr_matrix(dense)))


def test_families_are_values():
    for family in FAMILIES:
        one = family()
        assert one == family() and hash(one) == hash(family())
        assert one != family(per_feature=not one.per_feature)
        assert clone(one) is one
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
        assert repr(one).startswith(f"{family.__name__}(")
    assert simplemkl_family() != spicymkl_family()


def test_a_family_on_a_view(X):
    table = pd.DataFrame(X, columns=["u", "v", "w"])
    bank = ComputedOperator.build(simplemkl_family().on(["u", "w"]), table, None)
    assert bank.m == 39
    plain = ComputedOperator.build(simplemkl_family(), X[:, [0, 2]], None)
    np.testing.assert_allclose(bank.block([1]), plain.block([1]), atol=1e-12)
    assert bank.names[13] == "rbf(width=0.125) on u on u, w"


def test_names_stand_for_kernels_and_families(X):
    samples = Samples(X)
    assert [k.name for k in resolve("linear", samples)] == ["linear"]
    assert len(resolve("simplemkl", samples)) == 52
    assert len(resolve("default", samples)) == 7
    gamma = 1 / (3 * X.var())
    (rbf,) = resolve("rbf", samples)
    np.testing.assert_allclose(rbf(X), RBF(gamma=gamma)(X), rtol=1e-12)
    (rbf,) = resolve("rbf", Samples(sparse.csr_matrix(X)))
    np.testing.assert_allclose(rbf.gamma, gamma, rtol=1e-10)
    (polynomial,) = resolve("polynomial", samples)
    assert polynomial == Polynomial(3, gamma=gamma)


def test_lists_keep_their_order_and_may_be_nested(X):
    given = [Linear(), ["rbf", (mwumkl_family(),)], RBF(width=1)]
    bound = resolve(given, Samples(X))
    assert len(bound) == 15
    assert bound[0].name == "linear" and bound[-1].name == "rbf(width=1)"
    twice = ComputedOperator.build([Linear(), Linear(), Linear()], X)
    assert twice.names == ["linear", "linear (2)", "linear (3)"]
