"""Every kernel in the registry keeps the promises of `Kernel`; each joins by being defined."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from kernelweave.kernels import (
    RBF,
    Distance,
    Kernel,
    Linear,
    Pair,
    Polynomial,
    Precomputed,
    Samples,
    evaluate_stack,
    sample_ids,
)
from kernelweave.operators import ComputedOperator, DenseOperator

CLASSES = [
    cls
    for cls in Kernel.registry
    if cls.__module__.startswith("kernelweave.") and not inspect.isabstract(cls)
]
CASES = [(cls, i) for cls in CLASSES for i in range(len(cls.examples()))]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def case(request):
    cls, i = request.param
    kernel = cls.examples()[i]
    return kernel, Samples(cls.example_data(np.random.default_rng(1)))


def test_registry_finds_every_kernel_class():
    assert {"RBF", "Polynomial", "Linear", "Distance", "Precomputed", "OnColumns", "Product"} <= {
        cls.__name__ for cls in CLASSES
    }


def test_symmetric_and_positive_semidefinite(case):
    kernel, samples = case
    K = kernel(samples)
    assert K.shape == (samples.n, samples.n) and K.dtype == np.float64
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-12 * np.abs(K).max())
    values = np.linalg.eigvalsh(K)
    # Examples in single precision are kernels up to single precision.
    assert values[0] >= -1e-6 * values[-1]


def test_diagonal_is_the_diagonal_of_the_gram_matrix(case):
    kernel, samples = case
    bound = kernel.bind(samples)
    diag = bound.diagonal(samples)
    assert diag.shape == (samples.n,) and diag.dtype == np.float64
    np.testing.assert_allclose(diag, kernel(samples).diagonal(), rtol=1e-12, atol=1e-12)


def test_single_precision_is_close(case):
    kernel, samples = case
    bound = kernel.bind(samples)
    K = bound.evaluate(Pair(samples, samples))
    K32 = bound.evaluate(Pair(samples, samples, np.float32))
    assert K.dtype == np.float64 and K32.dtype == np.float32
    np.testing.assert_allclose(K32, K, rtol=0, atol=2e-6 * np.abs(K).max())


def test_a_pair_writes_what_evaluate_returns(case):
    kernel, samples = case
    bound = kernel.bind(samples)
    out = np.empty((samples.n, samples.n))
    Pair(samples, samples).write(bound, out)
    assert_same_numbers(out, bound.evaluate(Pair(samples, samples)))


def test_rows_of_a_subset_are_rows_of_the_whole(case):
    kernel, samples = case
    bound = kernel.bind(samples)
    K = kernel(samples)
    rows, cols = np.array([7, 2, 2, 11]), np.array([2, 5, 7])
    pair = Pair(samples.take(rows), samples.take(cols))
    scale = np.abs(K).max()
    np.testing.assert_allclose(bound.evaluate(pair), K[np.ix_(rows, cols)], atol=1e-13 * scale)
    whole = Pair(samples.take(rows), samples)
    np.testing.assert_allclose(bound.evaluate(whole), K[rows], atol=1e-13 * scale)


def test_the_training_samples_as_new_ones_give_the_same_values(case):
    kernel, samples = case
    again = Samples(samples.native)
    bound = kernel.bind(samples)
    cross = evaluate_stack([bound], again, samples)[0]
    np.testing.assert_allclose(cross, kernel(samples), atol=1e-13 * np.abs(cross).max())


def test_binding_changes_nothing(case):
    kernel, samples = case
    before = kernel(samples)
    name, key = kernel.name, kernel._key()
    first, second = kernel.bind(samples), kernel.bind(samples)
    kernel.bind(samples.take(np.arange(5)))
    assert (kernel.name, kernel._key()) == (name, key)
    assert first.name == second.name
    assert_same_numbers(kernel(samples), before)


def test_a_bound_kernel_remembers_the_training_samples(case):
    kernel, samples = case
    few = samples.take(np.arange(6))
    bound = kernel.bind(few)
    on_train = bound.evaluate(Pair(few, few))
    # What it gives for pairs must not depend on the samples it is evaluated with.
    on_all = bound.evaluate(Pair(samples, samples))
    np.testing.assert_allclose(on_all[:6, :6], on_train, atol=1e-13 * np.abs(on_train).max())


def test_copies_and_pickles_give_the_same_values(case):
    kernel, samples = case
    bound = kernel.bind(samples)
    assert clone(kernel) is kernel
    for twin in (copy.deepcopy(kernel), copy.copy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert twin.name == kernel.name
        assert_same_numbers(twin(samples), kernel(samples))
    for twin in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert_same_numbers(
            twin.evaluate(Pair(samples, samples)), bound.evaluate(Pair(samples, samples))
        )


def test_equality_follows_the_parameters():
    for cls in CLASSES:
        once, twice = cls.examples(), cls.examples()
        for i, kernel in enumerate(once):
            assert kernel == kernel and hash(kernel) == hash(kernel)
            assert all(kernel != other for other in once[i + 1 :])
            if not kernel.core.reads_ids:
                assert kernel == twice[i] and hash(kernel) == hash(twice[i])
    K = np.eye(3)
    assert Precomputed(K) == Precomputed(K)
    assert Precomputed(K) != Precomputed(np.eye(3))


def test_names_are_short_and_different():
    for cls in CLASSES:
        names = [kernel.name for kernel in cls.examples()]
        assert len(set(names)) == len(names)
        assert all(0 < len(name) < 80 and "object at" not in name for name in names)


def test_repr_of_simple_kernels_can_be_evaluated():
    scope = {"RBF": RBF, "Polynomial": Polynomial, "Linear": Linear, "Distance": Distance}
    kernels = [RBF(width=2.0), Polynomial(2), Linear().on([0, 1]), RBF(gamma=1) * Linear()]
    kernels += [(Linear() + Polynomial(2)) * Distance("chi2"), (RBF(gamma=1) + Linear()).on("a")]
    for kernel in kernels:
        assert eval(repr(kernel), scope) == kernel


# The formulas themselves


@pytest.fixture
def X():
    return np.random.default_rng(2).normal(size=(40, 6))


def test_values_agree_with_scikit_learn(X):
    Z = X[:7] + 0.1
    np.testing.assert_allclose(RBF(gamma=0.3)(X, Z), rbf_kernel(X, Z, gamma=0.3), rtol=1e-12)
    np.testing.assert_allclose(RBF(width=2)(X), rbf_kernel(X, gamma=1 / 8), rtol=1e-12)
    np.testing.assert_allclose(
        Polynomial(5, coef0=2, gamma=0.5)(X, Z),
        polynomial_kernel(X, Z, degree=5, coef0=2, gamma=0.5),
        rtol=1e-11,
        atol=1e-11,
    )
    np.testing.assert_allclose(Linear()(X, Z), X @ Z.T, atol=1e-13)


def test_products_and_sums(X):
    a, b, c = RBF(width=1).on(0), Linear().on([1, 2]), Polynomial(2)
    np.testing.assert_allclose(((a + b) * c)(X), (a(X) + b(X)) * c(X), rtol=1e-12)
    assert ((a + b) * c).name == (
        "(rbf(width=1) on column 0 + linear on columns 1-2) * polynomial(degree=2)"
    )
    np.testing.assert_allclose((a * b * c)(X), a(X) * b(X) * c(X), rtol=1e-12)
    np.testing.assert_allclose((a + b + c)(X), a(X) + b(X) + c(X), rtol=1e-12)
    assert (a * b * c).factors == (a, b, c)
    assert (a + b + c).terms == (a, b, c)
    np.testing.assert_allclose((a * c).on([3, 4])(X), a(X[:, 3:5]) * c(X[:, 3:5]), rtol=1e-12)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(3), RBF(width=2), RBF(gamma=1).on([0, 4])])
def test_sparse_input_gives_the_dense_values(kernel):
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(30, 50)) * (rng.random((30, 50)) < 0.2)
    X, Z = sparse.csr_matrix(dense), sparse.csr_array(dense[:9] * 2)
    np.testing.assert_allclose(kernel(X), kernel(dense), atol=1e-12)
    np.testing.assert_allclose(kernel(X, Z), kernel(dense, dense[:9] * 2), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel(X, dense[:9]), kernel(dense, dense[:9]), atol=1e-12)
    bound = kernel.bind(Samples(X))
    assert ComputedOperator([bound], Samples(X)).formula(0) is None
    np.testing.assert_allclose(bound.diagonal(Samples(X)), kernel(dense).diagonal(), rtol=1e-12)


def test_widths_by_squaring_keep_ten_digits():
    X = np.random.default_rng(4).normal(size=(60, 1))
    D = (X - X.T) ** 2
    kernels = [RBF(width=2.0**j) for j in range(-6, 12)]
    samples = Samples(X)
    stack = evaluate_stack(kernels, samples, samples)
    exact = np.exp(-D / np.array([2 * k.width**2 for k in kernels])[:, None, None])
    np.testing.assert_allclose(stack, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize("p", [1, 3, 8])
def test_distances_survive_an_offset_and_an_outlier(p):
    rng = np.random.default_rng(5)
    X = np.vstack([rng.normal(size=(20, p)), np.full((1, p), 1e7)]) + 1e6
    X = np.vstack([X, X[3], X[5] + 1e-6])
    D = Pair(Samples(X), Samples(X.copy())).sqdist
    exact = ((X[:, None] - X) ** 2).sum(axis=2)
    assert D.min() >= 0
    assert D[3, 21] == 0
    assert (D.diagonal() == 0).all()
    np.testing.assert_allclose(D, exact, rtol=1e-3, atol=1e-9)


def test_same_rows_are_found_in_any_order():
    samples = Samples(np.arange(10.0)[:, None])
    pair = Pair(samples.take([3, 5, 5, 0]), samples.take([5, 1, 3, 5]))
    found = set(zip(*(part.tolist() for part in pair.same_rows()), strict=True))
    assert found == {(0, 2), (1, 0), (1, 3), (2, 0), (2, 3)}


def test_rows_of_rows_are_rows():
    X = np.random.default_rng(7).normal(size=(10, 2))
    rows = Samples(X).take([8, 3, 5]).take([2, 0])
    np.testing.assert_array_equal(rows.array(), X[[5, 8]])
    np.testing.assert_array_equal(rows.native, X[[5, 8]])
    np.testing.assert_allclose(rows.square_norms(), (X[[5, 8]] ** 2).sum(axis=1))


def test_forms_describe_the_values(X):
    samples = Samples(X)
    for kernel in (RBF(width=2), Polynomial(3, 0.5, 2), Linear(), RBF(gamma=1).on([1, 4])):
        bound = kernel.bind(samples)
        form, B = bound.core.form(), samples.through(bound.path).array()
        if form.ingredient == "sqdist":
            values = np.exp(-form.p0 * ((B[:, None] - B) ** 2).sum(axis=2))
        else:
            values = (form.p2 * (B @ B.T) + form.p1) ** form.p0
        np.testing.assert_allclose(values, kernel(X), rtol=1e-10)
        assert hash(form) is not None
    assert (RBF(width=1) * Linear()).form() is None
    paths = [k.bind(samples).path for k in (RBF(width=1).on(0), Linear().on([0]))]
    assert paths[0] == paths[1] != Linear().on(1).bind(samples).path


def test_distance_scale_is_the_mean_of_the_training_matrix(X):
    D = np.abs(X[:, None] - X).sum(axis=2)
    np.testing.assert_allclose(Distance("cityblock")(X), np.exp(-D / D.mean()), rtol=1e-12)
    Z = X[:5] * 2
    E = np.abs(X[:, None] - Z).sum(axis=2)
    np.testing.assert_allclose(Distance("cityblock")(X, Z), np.exp(-E / D.mean()), rtol=1e-12)
    ids = sample_ids(40)
    train = np.arange(0, 40, 2)
    bound = Distance(D).bind(Samples(ids[train]))
    values = bound.evaluate(Pair(Samples(ids), Samples(ids[train])))
    scale = D[np.ix_(train, train)].mean()
    np.testing.assert_allclose(values, np.exp(-D[:, train] / scale), rtol=1e-12)


def test_distance_scale_of_many_samples_is_the_mean_over_some():
    X = np.random.default_rng(0).normal(size=(5500, 1))
    pair = Pair(Samples(X[:1]), Samples(X[1:2]))
    first, second = (Distance("cityblock").bind(Samples(X)).evaluate(pair) for _ in range(2))
    assert_same_numbers(first, second)
    scale = -np.abs(X[0] - X[1]).sum() / np.log(first[0, 0])
    # Of sorted numbers the i-th is the larger one in i pairs.
    mean = 2 * np.sort(X[:, 0]) @ (2 * np.arange(5500) - 5499) / 5500**2
    assert scale != pytest.approx(mean, rel=1e-6) and scale == pytest.approx(mean, rel=0.05)


def test_distance_matrix_and_metric_agree(X):
    D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    np.testing.assert_allclose(Distance(D)(sample_ids(40)), Distance("euclidean")(X), rtol=1e-12)
    own = Distance(lambda a, b: np.abs(a - b).max())
    np.testing.assert_allclose(own(X), Distance("chebyshev")(X), rtol=1e-12)


def test_precomputed_reads_ids_without_copying():
    rng = np.random.default_rng(6)
    A = rng.normal(size=(30, 5))
    K = A @ A.T
    ids = sample_ids(30)
    kernel = Precomputed(K, "similarity")
    everything = Samples(ids)
    assert kernel.bind(everything).given.matrix is K
    train = rng.permutation(30)[:20]
    some = Samples(ids[train])
    stored = DenseOperator.of(ComputedOperator.build(kernel, some, None))
    np.testing.assert_array_equal(stored.block()[0], K[np.ix_(train, train)])
    np.testing.assert_array_equal(kernel(ids[25:], ids[train]), K[np.ix_(range(25, 30), train)])
    table = np.column_stack([rng.normal(size=30), np.arange(30)])
    inside = kernel.on(1).bind(Samples(table))
    assert inside.name == "similarity"
    assert inside.core.given.matrix is K
