"""Wrong input to kernels: a clear error that names the culprit, or the right answer."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from kernelweave.errors import IndefiniteKernelWarning, InvalidInputError, UnknownNameError
from kernelweave.kernels import (
    RBF,
    Distance,
    Linear,
    Normalization,
    Pair,
    Polynomial,
    Precomputed,
    Product,
    Samples,
    Sum,
    evaluate_stack,
    from_matrices,
    nearest_psd,
    resolve,
    sample_ids,
)
from kernelweave.kernels.psd import bounds_spectrum
from kernelweave.operators import ComputedOperator

X = np.random.default_rng(0).normal(size=(10, 3))
TABLE = pd.DataFrame(X, columns=["length", "width", "height"])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF(), "exactly one of gamma and width.*gamma=None"),
        (RBF(gamma=1, width=1), "exactly one of gamma and width"),
        (RBF(gamma=-1), "gamma of RBF must be a finite number > 0; got -1"),
        (RBF(width=0), "width of RBF"),
        (RBF(width=np.nan), "width of RBF"),
        (RBF(width="2"), "width of RBF"),
        (Polynomial(0), "degree of Polynomial must be an integer >= 1; got 0"),
        (Polynomial(1.5), "degree of Polynomial"),
        (Polynomial(2, coef0=-1), "coef0 of Polynomial must be a finite number >= 0"),
        (Polynomial(2, gamma=0), "gamma of Polynomial"),
        (Distance("cityblock", scale="median"), "scale of Distance must be 'mean' or a number"),
        (Distance("cityblock", scale=-1), "scale of Distance"),
        (Distance("citiblock"), "unknown metric 'citiblock'; did you mean 'cityblock'"),
        (Distance("precomputed"), r"Distance\(D\)"),
        (Distance("chi2"), "chi2.*>= 0"),
        (Product(), "Product needs at least one kernel"),
        (Sum(Linear(), 3), "every part of a Sum must be a kernel; got int"),
        (Linear().on(3), "column 3 does not exist: X has 3 columns, 0 to 2"),
        (Linear().on([0, -4]), "column -4 does not exist"),
        (Linear().on("length"), "asked for by name, but X has no column names"),
        (Linear().on([True, False]), "mask needs one entry for each of the 3 columns.*got 2"),
        (Linear().on([]), "select no column"),
        (Linear().on([False] * 3), "select no column"),
        (Linear().on(1.5), "columns must be an index"),
        (Linear().on([0, 1.5]), "got an item 1.5"),
        (Linear().on({"a": 1}), "columns must be an index"),
        (Linear().on(slice(0.5, 2)), "columns must be an index"),
        (Linear().on(0, StandardScaler), "must be a scikit-learn transformer"),
        (Linear().on(0, "scale"), "must be a scikit-learn transformer"),
    ],
)
def test_wrong_parameters_are_named_when_used(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel(X)


def test_a_wrong_column_name_suggests_the_closest():
    with pytest.raises(UnknownNameError, match="did you mean 'length'"):
        Linear().on("lenght")(TABLE)
    twice = pd.DataFrame(X, columns=["a", "a", "b"])
    with pytest.raises(InvalidInputError, match="several columns named 'a'"):
        Linear().on("a")(twice)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(3), r"2 dimensions.*got shape \(3,\).*reshape"),
        (np.zeros((2, 2, 2)), "2 dimensions"),
        (np.zeros((0, 3)), "at least one sample"),
        (np.zeros((3, 0)), "at least one sample and one column"),
        (np.array([[1.0], [np.nan]]), r"NaN in column 0 \(row 1\)"),
        (np.array([[1.0, np.inf]]), "infinity in column 1"),
        (sparse.csr_matrix([[0.0, np.nan]]), "NaN in column 1"),
        (np.array([[1 + 2j]]), "real"),
        (np.array([["a", "b"]]), "column 0 of X cannot be read as numbers.*OneHotEncoder"),
        (pd.DataFrame({"u": [1.0], "v": ["text"]}), "column 'v' of X cannot be read"),
        (pd.DataFrame({"u": [1.0, None]}), "NaN in column 'u'"),
        (pl.DataFrame({"u": [1.0], "v": ["text"]}), "column 'v' of X cannot be read"),
        (pl.DataFrame({"u": [1.0]}).lazy(), r"LazyFrame; pass X.collect\(\)"),
        ([[1.0, 2.0], [3.0]], "could not be read|2 dimensions"),
    ],
)
def test_wrong_data_are_named(data, message):
    with pytest.raises(InvalidInputError, match=message):
        Linear()(data)


def test_wrong_numbers_of_columns():
    with pytest.raises(InvalidInputError, match="same columns; got 3 and 2"):
        RBF(width=1)(X, X[:, :2])
    bank = ComputedOperator.build(Linear().on(0), X)
    with pytest.raises(InvalidInputError, match="X has 2 columns, but the kernels were bound to 3"):
        bank.against(X[:, :2]).block()
    bound = Linear().on(0).bind(Samples(X))
    with pytest.raises(InvalidInputError, match="bound to data with 3 columns; got 2"):
        bound.diagonal(Samples(X[:, :2]))
    bound = Linear().on("width").bind(Samples(TABLE))
    other = Samples(TABLE.rename(columns={"width": "depth"}))
    with pytest.raises(InvalidInputError, match="no column 'width'"):
        bound.diagonal(other)


def test_kernels_that_learn_must_be_bound_first():
    pair = Pair(Samples(X), Samples(X))
    for kernel in (Linear().on(0), Distance("euclidean")):
        with pytest.raises(InvalidInputError, match="must be bound to training samples first"):
            kernel.evaluate(pair)


def test_errors_of_transformers_say_where():
    with pytest.raises(ValueError) as caught:
        Linear().on(["u"], StandardScaler())(pd.DataFrame({"u": ["text"]}))
    assert any("while fitting StandardScaler() on u" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ([], "kernels is empty"),
        ("rfb", "unknown kernel 'rfb'; did you mean 'rbf'"),
        (np.eye(10), r"from_matrices.*sample_ids\(n\)"),
        ([np.eye(10)], r"from_matrices.*sample_ids\(n\)"),
        (RBF, "the class RBF"),
        ([Linear(), 3], "got 3"),
        (None, "got None"),
    ],
)
def test_wrong_kernel_lists(kernels, message):
    with pytest.raises(ValueError, match=message):
        resolve(kernels, Samples(X))


def test_wrong_normalisations():
    with pytest.raises(UnknownNameError, match=r"unknown normalization 'trase'.*'trace'"):
        Normalization.parse("trase")
    with pytest.raises(UnknownNameError, match="unknown normalization"):
        Normalization.parse(("trace", None))
    with pytest.raises(InvalidInputError, match="normalize must be"):
        Normalization.parse(3)


def test_zero_kernels_are_named():
    Z = np.column_stack([X, np.zeros(10)])
    bank = ComputedOperator.build([Linear(), Linear().on(3)], Z, "trace")
    with pytest.raises(InvalidInputError, match="'linear on column 3' has mean diagonal 0"):
        bank.diagonal()
    with pytest.raises(InvalidInputError, match=r"column 3' has k\(x, x\) = 0 for all"):
        ComputedOperator.build([Linear(), Linear().on(3)], Z, "diagonal").diagonal()
    constant = ComputedOperator.build(Polynomial(2).on(0), np.ones((5, 1)), ("center", "trace"))
    with pytest.raises(InvalidInputError, match="mean diagonal 0"):
        constant.diagonal()


def test_a_zero_sample_has_no_unit_diagonal_and_is_similar_to_none():
    Z = X.copy()
    Z[4] = 0
    spherical = ComputedOperator.build([Linear(), Polynomial(2)], Z, "diagonal")
    diag = np.ones((2, 10))
    diag[0, 4] = 0
    np.testing.assert_allclose(spherical.diagonal(), diag)
    np.testing.assert_allclose(spherical.block(np.arange(10)).diagonal(axis1=1, axis2=2), diag)
    assert not spherical.block([4])[0].any()
    cross = spherical.against(np.vstack([Z[0], np.zeros(3)])).block()
    np.testing.assert_allclose(cross[:, 0, 0], 1.0)
    assert not cross[0, 1].any() and cross[1, 1].all()
    both = ComputedOperator.build([Linear()], Z, ("diagonal", "trace"))
    assert both.diagonal().mean() == pytest.approx(1.0)


def test_wrong_indices_and_types():
    bank = ComputedOperator.build([Linear(), RBF(width=1)], X)
    with pytest.raises(InvalidInputError, match=r"0\.\.9"):
        bank.block([10])
    with pytest.raises(InvalidInputError, match=r"0\.\.9"):
        bank.block([-1])
    with pytest.raises(InvalidInputError, match=r"kernel indices .*0\.\.1"):
        bank.block([0], None, [2])
    with pytest.raises(InvalidInputError, match="float64 or float32; got int64"):
        bank.in_type("int64").block([0])


def test_equal_samples_have_no_mean_distance():
    with pytest.raises(InvalidInputError, match=r"distance\(euclidean\).*are all samples equal"):
        Distance("euclidean")(np.ones((4, 2)))
    with pytest.raises(InvalidInputError, match=r"distance\(correlation\)"):
        Distance("correlation")(np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]))


def test_distances_on_sparse_input():
    Z = sparse.random(12, 9, 0.4, random_state=0, format="csr")
    for metric in ("euclidean", "cityblock", "cosine"):
        np.testing.assert_allclose(
            Distance(metric)(Z), Distance(metric)(Z.toarray()), rtol=1e-10, atol=1e-12
        )
    with pytest.raises(InvalidInputError, match="'canberra' needs a dense X"):
        Distance("canberra")(Z)


# Precomputed matrices


def gram(n, rank=5, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, rank))
    return A @ A.T


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.zeros((10, 3)), r"'K1' has shape \(10, 3\).*must be square.*RBF"),
        (sparse.eye(10), "'K1' is a sparse matrix"),
        (np.eye(10) * 1j, "'K1' must be a real matrix"),
        (np.where(np.eye(10) == 1, np.nan, 0), r"'K1' must be finite; got nan at \(0, 0\)"),
        (np.triu(np.ones((10, 10))), "'K1' is not symmetric.*differ by up to 1 "),
        (np.ones((10, 10)) - np.eye(10), "'K1' is not positive semidefinite.*nearest_psd"),
        (-np.eye(10), "'K1' is not positive semidefinite"),
        (np.full((10, 10), "x"), "'K1' must hold numbers"),
    ],
)
def test_matrices_that_are_no_kernels(K, message):
    with pytest.raises(InvalidInputError, match=message):
        resolve(from_matrices([K]), Samples(sample_ids(10)))


@pytest.mark.parametrize("n", [30, 1100])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_small_defects_are_repaired_with_a_warning(n, dtype):
    rng = np.random.default_rng(1)
    K = gram(n)
    # Its five eigenvalues are alike, so this is close to the largest.
    top = np.trace(K) / 5
    tiny = 3e-7 if dtype == np.float64 else 5e-6
    skew = K.copy()
    skew[0, 1] += tiny * K.diagonal().max()
    direction = rng.normal(size=n)
    indefinite = K - tiny * top * np.outer(direction, direction) / (direction @ direction)
    for bad, words in ((skew, "asymmetric"), (indefinite, "eigenvalue")):
        kernel = Precomputed(bad.astype(dtype), "blosum")
        ids = Samples(sample_ids(n))
        with pytest.warns(IndefiniteKernelWarning, match=f"'blosum' .*{words}"):
            bound = kernel.bind(ids)
        repaired = bound.given.matrix
        assert repaired.dtype == dtype
        np.testing.assert_array_equal(repaired, repaired.T)
        # Beyond 1,000 rows one changed entry may go unseen; it can do no more harm than this.
        slack = (1e-9 if dtype == np.float64 else 1e-6) * (10 if n > 1000 else 1)
        np.linalg.cholesky(repaired + slack * top * np.eye(n))
        np.testing.assert_allclose(repaired, K, atol=2e-5 * top)
        # The user's matrix is left alone.
        np.testing.assert_array_equal(kernel.K, bad.astype(dtype))


@pytest.mark.parametrize("n", [50, 1500])
def test_sound_matrices_pass_without_a_word(n):
    A = np.random.default_rng(2).normal(size=(n, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for K in (A @ A.T, RBF(width=1)(A), np.ones((n, n)), np.zeros((n, n)), np.eye(n)):
            for matrix in (K, K.astype(np.float32), K.astype(np.float64, order="F")):
                ids = Samples(sample_ids(n))
                assert Precomputed(matrix).bind(ids).given.matrix is matrix


def test_large_indefinite_matrices_are_caught():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(1500, 3))
    sigmoid = np.tanh(A @ A.T - 1)
    outlier = gram(1500) + np.eye(1500)
    outlier[7, 7] = -1
    spike = gram(1500) + np.eye(1500)
    spike[:, 900] *= 50
    spike[900] = spike[:, 900]
    for K in (sigmoid, outlier, spike, gram(1500, 5) - gram(1500, 5, seed=9)):
        with pytest.raises(InvalidInputError, match="not positive semidefinite"):
            Precomputed(K)(sample_ids(1500))


def test_every_negative_diagonal_entry_is_found():
    K = np.eye(1400)
    for i in (0, 700, 1399):
        K[i, i] = -0.5
        assert bounds_spectrum(K)[0] <= -0.5
        K[i, i] = 1


def test_the_check_runs_once(monkeypatch):
    from kernelweave.kernels import psd

    calls = []
    check = psd.bounds_spectrum
    monkeypatch.setattr(psd, "bounds_spectrum", lambda K: calls.append(1) or check(K))
    kernel = Precomputed(gram(20))
    for start in range(5):
        kernel(sample_ids(20)[start:])
    assert len(calls) == 1


def test_ids_are_checked():
    K = Precomputed(gram(10), "similarity")
    with pytest.raises(
        InvalidInputError, match=r"'similarity'.*X has 3 columns.*sample_ids\(10\).*\.on\(id_column"
    ):
        K(X)
    with pytest.raises(InvalidInputError, match=r"integer sample ids, .* holds 0\.5"):
        K([[0.5], [1.0]])
    for wrong in (10, -1):
        with pytest.raises(InvalidInputError, match=f"ids go from 0 to 9; got {wrong}"):
            K([[0], [wrong]])
    bound = K.bind(Samples(sample_ids(10)[:5]))
    with pytest.raises(InvalidInputError, match="ids go from 0 to 9; got 12"):
        evaluate_stack([bound], Samples([[12]]), Samples(sample_ids(5)))


def test_lists_of_matrices():
    with pytest.raises(InvalidInputError, match="at least one matrix"):
        from_matrices([])
    with pytest.raises(InvalidInputError, match=r"from_matrices\(\[K\]\)"):
        from_matrices(np.eye(3))
    with pytest.raises(InvalidInputError, match="'a' has 3 and 'b' has 4"):
        from_matrices([np.eye(3), np.eye(4)], names=["a", "b"])
    with pytest.raises(InvalidInputError, match="2 matrices but 1 names"):
        from_matrices([np.eye(3), np.eye(3)], names=["a"])


@pytest.mark.parametrize(
    ("D", "message"),
    [
        (np.ones((4, 4)), "zeros on its diagonal.*Precomputed"),
        (np.eye(4) - 1, "must not be negative; got -1"),
        (np.triu(np.ones((4, 4)), 1), "not symmetric"),
        (np.zeros((4, 3)), "distance matrix must be square"),
        (np.zeros((4, 4)), "mean distance"),
    ],
)
def test_matrices_that_are_no_distances(D, message):
    with pytest.raises(InvalidInputError, match=message):
        Distance(D)(sample_ids(4))
    with pytest.raises(InvalidInputError, match=r"reads one column.*Distance\(D\)\.on"):
        Distance(np.ones((4, 4)) - np.eye(4))(X)


def test_repairs():
    K = np.tanh(gram(30) - 1)
    assert np.linalg.eigvalsh(K)[0] < -0.1
    for method in ("clip", "flip", "shift"):
        assert np.linalg.eigvalsh(nearest_psd(K, method))[0] >= -1e-12
        Precomputed(nearest_psd(K, method))(sample_ids(30))
    values = np.linalg.eigvalsh(K)
    np.testing.assert_allclose(
        np.sort(np.abs(values)), np.linalg.eigvalsh(nearest_psd(K, "flip")), atol=1e-12
    )
    with pytest.raises(UnknownNameError, match="'clip'"):
        nearest_psd(K, "clipp")
    with pytest.raises(InvalidInputError, match="square"):
        nearest_psd(np.zeros((3, 2)))
    with pytest.raises(InvalidInputError, match="finite"):
        nearest_psd(np.full((2, 2), np.nan))


def test_adding_something_that_is_no_kernel():
    with pytest.raises(TypeError):
        Linear() + 1
    with pytest.raises(TypeError):
        Linear() * 2.0
