"""Kernels that know their samples answer for new ones as the textbook says, however they are kept.

A representation joins by one line in `CASES`.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from kernelweave.kernels import (
    RBF,
    Distance,
    Linear,
    Polynomial,
    RBFBatch,
    Samples,
    Spectrum,
    WeightedDegree,
    from_matrices,
    sample_ids,
)
from kernelweave.operators import (
    ComputedOperator,
    DistanceOperator,
    GaussianOperator,
    bind_kernels,
)

N, N_NEW, N_OTHER, M = 30, 9, 7, 4
ALL = N + N_NEW + N_OTHER
# All samples of a case: those of the training, new ones and others.
TRAIN, NEW, OTHER = np.split(np.arange(ALL), [N, N + N_NEW])


def numbers():
    return np.random.default_rng(0).normal(size=(ALL, 3)) + 0.5


def counts():
    X = np.random.default_rng(0).poisson(0.7, size=(ALL, 9)) + np.eye(ALL, 9)[::-1]
    X[:, [0, 4]] += 1.0
    return sparse.csr_array(X.astype(float))


def texts():
    letters = np.random.default_rng(0).choice(list("ACGT"), (ALL, 14))
    return np.array(["".join(row) for row in letters], dtype=object)[:, None]


def matrices():
    factors = np.random.default_rng(0).normal(size=(M, ALL, 40))
    return from_matrices([A @ A.T + 1.0 for A in factors])


VECTORS = [
    RBF(width=1.0),
    Polynomial(3).on(1, StandardScaler()),
    Linear(),
    RBF(gamma=0.3).on([1, 2]) * Linear().on(0),
]
SPARSE = [Linear(), Linear().on(slice(0, 5)), Polynomial(2), RBF(gamma=0.1)]
STRINGS = [WeightedDegree(3), Spectrum(2), WeightedDegree(3, shift=2), WeightedDegree(2).on(0)]
GAUSSIANS = [RBF(width=1.0), RBF(width=3.0).on([2, 1]), RBF(width=2.0), RBF(gamma=0.4).on(0)]
EXPONENTS = [
    RBF(gamma=0.3),
    Distance("cityblock", scale=2.0).on([0, 2]),
    RBF(width=2.0).on(1, StandardScaler()),
    RBF(gamma=0.2).on(0) * Distance("euclidean", scale=1.5),
]
BATCH = RBFBatch([[0, 1], [2, -1], [1, -1], [0, 2]], [0.5, 1.0, 0.3, 0.7])
IN_BATCH = [
    RBF(gamma=0.5).on([0, 1]),
    RBF(gamma=1.0).on(2),
    RBF(gamma=0.3).on(1),
    RBF(gamma=0.7).on([0, 2]),
]


def batch(X, normalize):
    return bind_kernels(BATCH, X, normalize=normalize)


def stacked(X, normalize):
    """Some kernels one by one, and a batch between them."""
    few = RBFBatch(BATCH.columns[:2], BATCH.gamma[:2])
    return bind_kernels([VECTORS[0], few, Linear()], X, normalize=normalize)


def gaussians(X, normalize):
    return GaussianOperator.of(ComputedOperator.build(GAUSSIANS, X, normalize))


def distances(X, normalize):
    return DistanceOperator.build(EXPONENTS, X, normalize)


def kept(cache_mb, dtype):
    return lambda X, normalize: distances(X, normalize).keep(cache_mb, dtype)


def single(build):
    return lambda X, normalize: build(X, normalize).in_type("float32")


def computed(kernels):
    return lambda X, normalize: ComputedOperator.build(kernels, X, normalize)


MIXED = [VECTORS[0], *IN_BATCH[:2], Linear()]
# The samples, the kernels one by one, what answers for them, and how exact it is.
CASES = {
    "computed": (numbers, VECTORS, computed(VECTORS), 1e-11),
    "computed32": (numbers, VECTORS, single(computed(VECTORS)), 1e-5),
    "computed-sparse": (counts, SPARSE, computed(SPARSE), 1e-11),
    "computed-strings": (texts, STRINGS, computed(STRINGS), 1e-11),
    "computed-given": (lambda: sample_ids(ALL), matrices(), computed(matrices()), 1e-11),
    "gaussians": (numbers, GAUSSIANS, gaussians, 1e-11),
    "gaussians32": (numbers, GAUSSIANS, single(gaussians), 1e-5),
    "batch": (numbers, IN_BATCH, batch, 1e-11),
    "batch32": (numbers, IN_BATCH, single(batch), 1e-5),
    "stacked": (numbers, MIXED, stacked, 1e-11),
    "distances": (numbers, EXPONENTS, distances, 1e-11),
    "distances-kept": (numbers, EXPONENTS, kept(1000, "float64"), 1e-11),
    "distances-kept32": (numbers, EXPONENTS, kept(1000, "float32"), 1e-5),
    "distances-not-kept": (numbers, EXPONENTS, kept(1e-6, "float64"), 1e-11),
}
# Kernels that are known by numbers alone cannot be centred.
NOT_CENTRED = ("gaussians", "batch", "stacked", "distances")


def normalised(K, normalize):
    """A matrix of all samples, normalised by those of the training as a whole."""
    steps = () if normalize is None else np.atleast_1d(normalize)
    for step in steps:
        if step == "trace":
            K = K * N / np.trace(K[:N, :N])
        elif step == "diagonal":
            root = np.sqrt(K.diagonal())
            K = K / root / root[:, None]
        else:
            H = np.eye(ALL)
            H[:, :N] -= 1 / N
            K = H @ K @ H.T
    return K


NORMALISATIONS = ["trace", "diagonal", ("center", "trace"), None]
PAIRS = [
    pytest.param((name, normalize), id=f"{name}-{normalize}")
    for name in CASES
    for normalize in NORMALISATIONS
    if not ("center" in str(normalize) and name.startswith(NOT_CENTRED))
]


@pytest.fixture(scope="module", params=PAIRS)
def case(request):
    """The operator of the training, all samples, the truth for all of these, and a tolerance."""
    name, normalize = request.param
    make, kernels, build, rtol = CASES[name]
    X = make()
    bound = [kernel.bind(Samples(X[TRAIN])) for kernel in kernels]
    truth = ComputedOperator(bound, Samples(X), None).block()
    if name.startswith("distances"):
        truth = -np.log(truth)
    else:
        truth = np.array([normalised(K, normalize) for K in truth])
    return build(X[TRAIN], normalize), X, truth, rtol * np.abs(truth).max()


SIDES = {
    "training": (TRAIN, TRAIN),
    "against new samples": (NEW, TRAIN),
    "between others": (NEW, OTHER),
    "between the same": (NEW, NEW),
}


@pytest.fixture(params=list(SIDES))
def between(request, case):
    """The operator between samples of two kinds, its values and a tolerance."""
    operator, X, truth, atol = case
    left, right = SIDES[request.param]
    if request.param == "against new samples":
        operator = operator.against(X[left])
    elif request.param != "training":
        operator = operator.between(X[left], X[right])
    return operator, truth[:, left][:, :, right], atol


ROWS, COLUMNS, CHOSEN = np.array([5, 0, 3]), np.array([6, 2]), np.array([3, 0])
D = np.array([0.5, 0.0, 2.0, 0.3])


def test_blocks(between):
    operator, truth, atol = between
    assert (operator.shape, operator.m, operator.n) == (truth.shape[1:], M, truth.shape[2])
    np.testing.assert_allclose(operator.block(), truth, atol=atol)
    np.testing.assert_allclose(operator.block(ROWS), truth[:, ROWS], atol=atol)
    np.testing.assert_allclose(
        operator.block(ROWS, COLUMNS, CHOSEN), truth[CHOSEN][:, ROWS][:, :, COLUMNS], atol=atol
    )


def test_products(between):
    operator, truth, atol = between
    v = np.random.default_rng(1).normal(size=(2, operator.n))
    v[0, ::3] = 0.0
    expected, atol = v @ truth.transpose(0, 2, 1), atol * np.abs(v).sum()
    np.testing.assert_allclose(operator.apply(v), expected, atol=atol)
    np.testing.assert_allclose(operator.apply(v[0], CHOSEN), expected[CHOSEN, 0], atol=atol)
    np.testing.assert_allclose(operator.apply(v, None, ROWS), expected[:, :, ROWS], atol=atol)


def test_sums(between):
    operator, truth, atol = between
    total, atol = np.tensordot(D, truth, axes=1), 4 * atol
    np.testing.assert_allclose(operator.weighted(D), total, atol=atol)
    np.testing.assert_allclose(
        operator.weighted(D, ROWS, COLUMNS), total[np.ix_(ROWS, COLUMNS)], atol=atol
    )
    out = np.full((3, operator.n), np.nan, np.float32)
    assert operator.weighted(D, ROWS, None, out) is out
    np.testing.assert_allclose(out, total[ROWS], atol=atol + 1e-6 * np.abs(total).max())
    weights = np.random.default_rng(2).normal(size=truth.shape[1:])
    np.testing.assert_allclose(
        operator.contract(weights),
        np.sum(truth * weights, axis=(1, 2)),
        atol=atol * np.abs(weights).sum(),
    )


def test_parts(between):
    operator, truth, atol = between
    for dtype, rounding in ((np.float64, 0.0), (np.float32, 1e-5)):
        part = operator.part(ROWS, COLUMNS, dtype)
        expected = truth[:, ROWS][:, :, COLUMNS]
        slack = 4 * atol + rounding * np.abs(truth).max()
        assert (part.shape, part.m) == ((3, 2), M)
        np.testing.assert_allclose(part.block(), expected, atol=slack)
        np.testing.assert_allclose(
            part.weighted(D), np.tensordot(D, expected, axes=1), atol=4 * slack
        )
        np.testing.assert_allclose(
            part.contract(np.ones((3, 2))), expected.sum(axis=(1, 2)), atol=6 * slack
        )


def test_some_of_the_kernels(between):
    operator, truth, atol = between
    some = operator.select(CHOSEN)
    assert list(some.names) == [operator.names[k] for k in CHOSEN]
    np.testing.assert_allclose(some.block(ROWS), truth[CHOSEN][:, ROWS], atol=atol)
    np.testing.assert_allclose(
        some.weighted(D[CHOSEN]), np.tensordot(D[CHOSEN], truth[CHOSEN], axes=1), atol=4 * atol
    )


def test_square_operators(case):
    """Diagonals and quadratic forms, of the training samples and of some of them."""
    whole, _, truth, atol = case
    idx = np.array([7, 2, 29, 4, 11])
    for operator, own in ((whole, TRAIN), (whole.take(idx), idx)):
        K = truth[:, own][:, :, own]
        np.testing.assert_allclose(operator.diagonal(), np.einsum("kii->ki", K), atol=atol)
        if isinstance(operator, DistanceOperator):
            continue  # Distances have no quadratic forms that are of any use.
        v = np.random.default_rng(3).normal(size=(2, len(own)))
        slack = atol * np.abs(v).sum() ** 2
        quad, product = operator.quad_and_product(v, D)
        expected = np.einsum("ti,kij,tj->k", v, K, v)
        np.testing.assert_allclose(quad, expected, atol=slack)
        np.testing.assert_allclose(operator.quad(v, CHOSEN), expected[CHOSEN], atol=slack)
        np.testing.assert_allclose(product, v @ np.tensordot(D, K, axes=1), atol=4 * slack)
