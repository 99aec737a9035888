"""No content of X, y, weights or kernels crashes the process or ends in NaN.

What may crash runs in a child process (`odd_numbers.py`): 24 drawn cases as a rule, 4,000 with
Numba's bounds checking on with ``KERNELWEAVE_HARD=full``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hard_problems import FULL
from scipy import sparse

from kernelweave import BayesianMKLClassifier, MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Distance, Kernel, Linear, Polynomial, sample_ids
from kernelweave.operators import ComputedOperator

HELPERS = Path(__file__).parents[1] / "helpers"
BANKS = ("dense", "lazy", "factored", "auto")


def in_child(command, **variables):
    """Run Python with these arguments; return its output, or fail with how it ended."""
    paths = [str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout[-300:], done.stderr[-3000:])
    return done.stdout


# Each ended in a signal, in NaN, or in an error about something else.
CRASHES = """
import json, warnings
import numpy as np
from scipy import sparse
from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.kernels import Linear, Polynomial, RBF
warnings.simplefilter("error")
rng = np.random.default_rng(0)
X, y, big = rng.normal(size=(60, 3)), rng.choice([-1, 1], 60), rng.normal(size=(600, 30))
values, classes = rng.normal(size=60), rng.choice([-1, 1], 600)
cases = {}
for bank in ("dense", "lazy", "factored", "auto"):
    common = {"bank": bank, "tol": 1e-3}
    for loss in ("hinge", "logistic"):
        raised = MKLClassifier([Polynomial(5)], loss=loss, **common)
        cases["raised", loss, bank] = raised, X * 1e4, y
    huge = MKLClassifier([Linear()], normalize=None, C=1e-40, **common)
    cases["huge", bank] = huge, X * 1e20, y
    cases["tiny", bank] = MKLClassifier([Linear()], **common), X * 1e-25, y
    cases["narrow", bank] = MKLClassifier([RBF(width=1e-25)], **common), X * 1e-25, y
    cases["wide", bank] = MKLClassifier([RBF(width=1e25)], **common), X * 1e25, y
    cases["regression", bank] = MKLRegressor([Polynomial(5)], **common), X * 1e4, values
    cases["one class", bank] = MKLOneClass([Polynomial(5)], **common), X * 1e4, None
cases["cached", "lazy"] = MKLClassifier([Polynomial(5)], cache_mb=1), big * 1e4, classes
cases["cached", "auto"] = MKLClassifier([Polynomial(5)], cache_mb=1000), big * 1e4, classes
for name, (model, X, y) in cases.items():
    model.fit(X) if y is None else model.fit(X, y)
    numbers = [model.weights_, model.dual_coef_, model.intercept_, model.predict(X)]
    finite = all(np.isfinite(number).all() for number in numbers)
    print(json.dumps([name[:-1], finite, model.converged_, model.objective_, model.gap_]))
"""


@pytest.fixture(scope="module")
def crashes():
    """Of each problem what its fits on all banks say."""
    found = {}
    for line in in_child(["-c", CRASHES]).splitlines():
        name, *rest = json.loads(line)
        found.setdefault(" ".join(name), []).append(rest)
    return found


def test_numbers_that_float32_cannot_hold_are_fitted_as_in_float64(crashes):
    assert len(crashes) == 9
    for name, fits in crashes.items():
        objectives = [objective for _, _, objective, _ in fits]
        assert all(finite and converged for finite, converged, _, _ in fits), (name, fits)
        np.testing.assert_allclose(objectives, objectives[0], rtol=3e-3, err_msg=name)


def overflowing():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 3)) * 1e30, np.where(np.arange(30) % 2, 1, -1)


ESTIMATORS = [
    *(MKLClassifier(bank=bank) for bank in BANKS),
    *(MKLClassifier(bank=bank, normalize=None) for bank in BANKS),
    MKLClassifier(normalize="diagonal"),
    MKLClassifier(normalize="center"),
    MKLRegressor(),
    MKLOneClass(bank="lazy"),
    BayesianMKLClassifier(),
]


@pytest.mark.parametrize("model", ESTIMATORS, ids=str)
def test_an_overflow_names_the_kernel_on_every_bank(model):
    X, y = overflowing()
    model.set_params(kernels=[RBF(gamma=1.0), Polynomial(7)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInputError, match=r"polynomial\(degree=7\).*[Ss]cale"):
            model.fit(X, y)


@pytest.mark.parametrize("model", [MKLClassifier(bank=bank) for bank in BANKS], ids=str)
def test_finite_kernels_too_large_to_compute_with_are_refused(model):
    X, y = overflowing()
    model.set_params(kernels=[Linear(), Polynomial(4)], normalize=None)
    with pytest.raises(InvalidInputError, match=r"polynomial\(degree=4\).*at most 1e\+100"):
        model.fit(X, y)
    # Scaled to a mean diagonal of one they are fine.
    assert np.isfinite(model.set_params(normalize="trace").fit(X, y).objective_)


@pytest.mark.parametrize("value", [1e101, -1e200, 1.7e308])
def test_numbers_beyond_the_range_are_told_from_nan(value):
    X, y = overflowing()
    X[3, 1] = value
    for kernels in ([RBF(gamma=1.0)], [Distance("euclidean")], "default"):
        with pytest.raises(InvalidInputError, match=r"column 1 \(row 3\).*at most 1e\+100"):
            MKLClassifier(kernels).fit(X, y)


@pytest.mark.parametrize("model", [MKLClassifier(), BayesianMKLClassifier()], ids=str)
@pytest.mark.parametrize("normalize", ["trace", "diagonal", "center"])
def test_new_rows_that_overflow_are_refused(model, normalize):
    X, y = overflowing()
    model.set_params(kernels=[Polynomial(5)], normalize=normalize).fit(X / 1e30, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInputError, match=r"polynomial\(degree=5\)"):
            model.predict(X * 1e50)
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("unit", [1e-30, 1e25, 1e45])
def test_products_of_distances_that_float32_cannot_hold(unit):
    """Samples in other units, and kernels that take them back: the same problem."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.where(np.arange(30) % 2, 1, -1)

    def fitted(unit):
        kernels = [RBF(gamma=unit**-2).on(0), Distance("cityblock", scale=unit).on(1)]
        model = MKLClassifier(kernels, combination="product", regularizer="l1", tol=1e-4)
        return model.fit(X * unit, y)

    expected, found = fitted(1.0), fitted(unit)
    assert found.converged_
    np.testing.assert_allclose(found.objective_, expected.objective_, rtol=1e-3)


@pytest.mark.parametrize("largest", [1e101, 1e303])
def test_given_distances_too_large_for_a_product_are_refused(largest):
    X, y = overflowing()
    D = np.abs(np.subtract.outer(X[:, 0], X[:, 0]))
    given = Distance(largest * (D / D.max()), name="far")
    model = MKLClassifier([given], combination="product", regularizer="l1")
    with pytest.raises(InvalidInputError, match=r"kernel 'far' has distances of .*at most 1e\+100"):
        model.fit(sample_ids(30), y)


class OwnKernel(Kernel):
    """A user's kernel with one value that is none; its diagonal does not show it."""

    name = "own"

    def evaluate(self, pair):
        out = np.exp(-pair.sqdist)
        out[out == out.min()] = np.nan
        return out

    def diagonal(self, samples):
        return np.ones(samples.n)


@pytest.mark.parametrize("bank", BANKS)
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_kernel_that_returns_nan_is_named(bank, loss):
    X, y = overflowing()
    with pytest.raises(InvalidInputError, match="kernel 'own' has values that are infinite or NaN"):
        MKLClassifier([OwnKernel()], bank=bank, loss=loss).fit(X / 1e30, y)


def test_float32_values_are_computed_in_float64_where_they_overflow():
    X, _ = overflowing()
    kernels = ComputedOperator.build([Linear(), Polynomial(3)], X)
    exact, rows = kernels.block([0, 5]), kernels.in_type("float32").block([0, 5])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, exact, rtol=1e-5, atol=1e-6)


def damaged(kind, how):
    """A sparse matrix whose index arrays lead out of it."""
    X = sparse.random_array((30, 8), density=0.3, format=kind, rng=np.random.default_rng(0))
    if how == "beyond":
        X.indices[5] = 4_000_000
    elif how == "negative":
        X.indices[5] = -3
    elif how == "no integers":
        X.indices = X.indices + 0.5
    else:
        X.indptr[3] = X.indptr[-1] + 7
    return X


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("how", ["beyond", "negative", "ends", "no integers"])
def test_sparse_indices_outside_the_matrix_are_refused(kind, how):
    good = sparse.random_array((30, 8), density=0.3, format="csr", rng=np.random.default_rng(1))
    y = np.where(np.arange(30) % 2, 1, -1)
    bad = damaged(kind, how)
    with pytest.raises(InvalidInputError, match="is damaged: its index arrays"):
        MKLClassifier([Linear()]).fit(bad, y)
    with pytest.raises(InvalidInputError, match="is damaged: its index arrays"):
        MKLClassifier([Linear()]).fit(good, y).predict(bad)
    with pytest.raises(InvalidInputError, match="is damaged: its index arrays"):
        ComputedOperator.build([Linear()], bad)


@pytest.mark.parametrize("first", range(0, 4000, 500) if FULL else [0])
def test_odd_numbers_end_in_a_fit_or_in_a_documented_error(first, tmp_path):
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)} if FULL else {}
    count = 500 if FULL else 24
    lines = in_child([str(HELPERS / "odd_numbers.py"), str(first), str(count)], **checked)
    done = [line for line in lines.splitlines() if not line.startswith("try")]
    assert len(done) == count
    assert [line for line in done if " BAD " in line] == []
    assert sum(" fit" in line for line in done) >= count // 8
