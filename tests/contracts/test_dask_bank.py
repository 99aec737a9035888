"""A bank on a cluster answers like the kernels themselves, however it is cut."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from small_clusters import small_cluster

from kernelweave.bank import DaskBank, build_bank
from kernelweave.bayes.sums import square_sum, sum_products
from kernelweave.combine import CombinedOperator, WeightedSum
from kernelweave.kernels import RBF, Linear, Polynomial, RBFBatch, Spectrum, from_matrices
from kernelweave.operators import bind_kernels
from kernelweave.solvers.mwu.rounds import BoxConstraints, rounds_of

pytest.importorskip("distributed")

N = 41
PLAIN = (RBF(width=1.0), RBF(width=4.0).on(0), Polynomial(3).on(1), Linear())
D = np.array([0.5, 0.0, 2.0, 1.0, 0.3, 0.7])


def numbers(n=N):
    return np.random.default_rng(0).normal(size=(n, 3))


def plain(normalize="trace"):
    extra = [RBF(gamma=0.3).on([1, 2]) * Linear().on(0), RBF(width=2.0)]
    return bind_kernels([*PLAIN, *extra], numbers(), normalize=normalize)


def batch():
    columns = [[0, -1], [1, -1], [2, -1], [0, 1], [1, 2], [0, 2]]
    return bind_kernels(RBFBatch(columns, np.linspace(0.2, 2.0, 6)), numbers())


def mixed():
    return bind_kernels([RBF(width=1.0), RBFBatch([[0], [2]], [0.5, 1.0]), *PLAIN[1:]], numbers())


def frame():
    letters = np.random.default_rng(1).choice(list("ACGT"), (N, 12))
    table = pd.DataFrame(numbers(), columns=["a", "b", "c"])
    table["text"] = ["".join(row) for row in letters]
    kernels = [RBF(width=w).on(c) for w in (1.0, 3.0) for c in ("a", ["b", "c"])]
    return bind_kernels([*kernels, Spectrum(2).on("text"), Linear().on("b")], table)


def csr():
    X = np.random.default_rng(2).poisson(0.7, size=(N, 9)).astype(float) + 0.1
    kernels = [Linear(), Linear().on(slice(0, 4)), Polynomial(2), RBF(width=2.0)]
    return bind_kernels([*kernels, RBF(width=5.0), Linear().on([5, 6])], sparse.csr_array(X))


def matrices():
    X = numbers()
    kernels = from_matrices([RBF(width=w)(X) for w in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)])
    return bind_kernels(kernels, np.arange(N)[:, None])


SETS = {
    "trace": plain,
    "diagonal": lambda: plain("diagonal"),
    "center": lambda: plain(("center", "trace")),
    "batch": batch,
    "mixed": mixed,
    "frame": frame,
    "csr": csr,
    "matrices": matrices,
}


@pytest.fixture(scope="module", params=["points", "kernels"])
def shard(request):
    return request.param


@pytest.fixture(scope="module", params=list(SETS))
def case(request, shard, dask_client):
    kernels = SETS[request.param]()
    return DaskBank(dask_client, shard).build(kernels), kernels.block(np.arange(N)), kernels


@pytest.fixture
def v():
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, N)) * (rng.random(N) < 0.6)


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-10 * max(1.0, np.abs(expected).max()))


def test_names_sizes_and_rows(case):
    bank, truth, kernels = case
    assert (bank.n, bank.m, list(bank.names)) == (N, 6, list(kernels.names))
    idx, columns, some = np.array([3, 40, 7]), np.array([39, 1]), np.array([4, 0, 2])
    close(bank.block(idx), truth[:, idx])
    close(bank.block(idx, columns, some), truth[some][:, idx][:, :, columns])
    close(bank.part(idx, columns).weighted(D), np.tensordot(D, truth[:, idx][:, :, columns], 1))
    close(bank.diagonal(some), np.einsum("kii->ki", truth)[some])


def test_products_and_quadratic_forms(case, v):
    bank, truth, _ = case
    some, idx = np.array([4, 0, 2]), np.array([40, 2, 3])
    close(bank.apply(v), v @ truth)
    close(bank.apply(v[0], some), truth[some] @ v[0])
    close(bank.apply(v, None, idx), (v @ truth)[:, :, idx])
    close(bank.apply(v[1], some, idx), (truth[some] @ v[1])[:, idx])
    quad = np.einsum("ti,kij,tj->k", v, truth, v)
    close(bank.quad(v), quad)
    close(bank.quad(v, some), quad[some])
    found, product = bank.quad_and_product(v, D)
    close(found, quad)
    close(product, v @ np.tensordot(D, truth, axes=1))
    assert not bank.quad(np.zeros(N)).any()
    assert not bank.apply(np.zeros(N)).any()
    bound = bank.error(v, D)
    assert np.max(bound.quad_missing) <= 1e-9 * quad.max()


def test_sums_of_kernels(case):
    bank, truth, _ = case
    total, idx = np.tensordot(D, truth, axes=1), np.array([1, 40, 8])
    close(bank.weighted(D), total)
    close(bank.weighted(D, idx, None, np.empty((3, N))), total[idx])
    close(bank.weighted(D, idx, idx), total[idx][:, idx])
    assert bank.weighted(D, out=np.empty((N, N), np.float32)).dtype == np.float32
    V = np.random.default_rng(3).normal(size=(6, 2, N))
    close(sum_products(bank, V), np.einsum("ktj,kji->ti", V, truth))
    close(square_sum(bank), np.sum(truth @ truth, axis=0))
    centre = np.eye(N) - 1.0 / N
    tops = [np.linalg.eigvalsh(centre @ K @ centre)[-1] for K in truth]
    assert np.all(bank.eigenvalue_bound() >= np.array(tops) - 1e-9)


def test_some_of_the_kernels_and_of_the_samples(case, v):
    bank, truth, kernels = case
    chosen, idx = np.array([5, 1]), np.array([2, 40, 30, 9])
    few = bank.select(chosen)
    assert (few.m, few.n, list(few.names)) == (2, N, [kernels.names[5], kernels.names[1]])
    close(few.apply(v), v @ truth[chosen])
    d = np.array([0.5, 2.0])
    close(few.weighted(d), np.tensordot(d, truth[chosen], axes=1))
    close(few.quad_and_product(v, d)[0], np.einsum("ti,kij,tj->k", v, truth[chosen], v))
    close(square_sum(few), np.sum(truth[chosen] @ truth[chosen], axis=0))
    close(sum_products(few, np.stack([v, 2 * v])), v @ truth[5] + 2 * v @ truth[1])
    assert few.eigenvalue_bound().shape == few.error(v, d).quad_missing.shape == (2,)
    close(few.take(idx).weighted(d), np.tensordot(d, truth[chosen], axes=1)[np.ix_(idx, idx)])
    assert few.refined() is None


def test_samples_travel_in_several_messages(dask_client, v):
    kernels = plain("diagonal")
    bank = DaskBank(dask_client).build(kernels)
    truth = kernels.block(np.arange(N))
    bank.message_bytes = 5 * bank.row_bytes
    assert len(list(bank.messages(np.arange(N)))) == 9
    close(bank.apply(v), v @ truth)
    close(bank.quad(v), np.einsum("ti,kij,tj->k", v, truth, v))
    close(bank.quad_and_product(v, D)[1], v @ np.tensordot(D, truth, axes=1))
    close(bank.apply(v, None, np.arange(N)), v @ truth)
    close(bank.weighted(D), np.tensordot(D, truth, axes=1))
    V = np.random.default_rng(3).normal(size=(6, 2, N))
    close(sum_products(bank, V), np.einsum("ktj,kji->ti", V, truth))


def walk(rounds, n_kernels, scale, before=lambda step: None):
    """A scripted course of rounds: everything a solver asks for, and kernels frozen."""
    rng = np.random.default_rng(5)
    start = rng.normal(size=N) * (rng.random(N) < 0.3)
    said = [rounds.start(start, np.full(n_kernels, 1.0 / n_kernels))]
    quads = []
    for followed in (None, np.arange(n_kernels)[::-2], np.arange(n_kernels)[:1], None):
        rounds.restrict(followed)
        d = rng.dirichlet(np.ones(n_kernels if followed is None else len(followed)))
        said.append(rounds.reweigh(d))
        for _ in range(3):
            before(len(said))
            step = scale * rng.random()
            said.append(rounds.advance(said[-1], step, -step, rng.permutation(d)))
        quads.append(rounds.synchronise())
    said.append(rounds.reweigh(np.full(n_kernels, 0.1)))
    return said, np.array(quads), rounds.values(), rounds.fitted()


ROUNDS = [(name, "learnt") for name in SETS]
ROUNDS += [(name, mode) for name in ("center", "mixed") for mode in ("fixed", "selected")]


@pytest.mark.parametrize(("case", "mode"), ROUNDS, indirect=["case"])
def test_rounds(case, mode):
    bank, _, kernels = case
    rng = np.random.default_rng(4)
    rules = BoxConstraints(rng.normal(size=N), rng.random(N), np.full(N, 2.0), np.full(N, -2.0))
    local = build_bank("lazy", kernels, tol=1e-9)
    count = 1 if mode == "fixed" else 6
    if mode == "selected":
        bank, local, count = bank.select(np.array([1, 3, 5])), local.select(np.array([1, 3, 5])), 3
    if mode == "fixed":
        bank, local = (
            CombinedOperator(WeightedSum(), some, D[None], ["sum"]) for some in (bank, local)
        )
    mine, theirs = rounds_of(bank, rules), rounds_of(local, rules)
    same(walk(mine, count, 0.1), walk(theirs, count, 0.1))


def same(course, expected):
    """Two courses of rounds chose the same pairs and know the same of them."""
    for one, two in zip(course[0], expected[0], strict=True):
        assert (one.i, one.j) == (two.i, two.j)
        close(
            [one.score_i, one.score_j, one.v_i, one.v_j],
            [two.score_i, two.score_j, two.v_i, two.v_j],
        )
        close(one.products, two.products)
        close(one.block, two.block)
    for one, two in zip(course[1:], expected[1:], strict=True):
        close(one, two)


def test_rounds_go_on_when_a_worker_goes_while_kernels_sleep(shard):
    kernels = plain("diagonal")
    rng = np.random.default_rng(4)
    rules = BoxConstraints(rng.normal(size=N), rng.random(N), np.full(N, 2.0), np.full(N, -2.0))
    expected = walk(rounds_of(build_bank("lazy", kernels, tol=1e-9), rules), 6, 0.1)
    with small_cluster() as (cluster, client):
        bank = DaskBank(client, shard, patience=0).build(kernels)

        def before(step):
            if step == 8:  # Two rounds after the first kernels fell frozen.
                cluster.sync(cluster.workers[0].close)

        same(walk(rounds_of(bank, rules), 6, 0.1, before), expected)
        assert bank.team.replaced == 1


@pytest.mark.parametrize(
    "up, down", [(-9.0, -9.0), (9.0, 9.0)], ids=["nobody rises", "nobody falls"]
)
def test_rounds_in_which_nobody_may_move(dask_client, shard, up, down):
    bank = DaskBank(dask_client, shard).build(plain())
    rules = BoxConstraints(np.ones(N), np.zeros(N), np.full(N, up), np.full(N, down))
    assert rounds_of(bank, rules).start(np.zeros(N), np.ones(6)) is None
