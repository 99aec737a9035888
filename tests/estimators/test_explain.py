"""Estimators take their decision values apart, and the parts sum to them."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    NystromMKLClassifier,
    sample_ids,
)
from kernelweave.combine import Combination, PolynomialMixture, Product
from kernelweave.errors import InvalidInputError, MemoryBudgetError, UnknownNameError
from kernelweave.estimators.decisions import Decisions
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.kernels import RBF, Linear, RBFBatch, Spectrum, WeightedDegree, from_matrices
from kernelweave.operators import ComputedOperator, DistanceOperator

RNG = np.random.default_rng(0)
X, SPECIES = load_iris(return_X_y=True)
ROWS = RNG.permutation(150)
X, SPECIES = X[ROWS[:70]], SPECIES[ROWS[:70]]
NEW = X[:9] + 0.1
TWO = np.where(SPECIES == 1, "yes", "no")
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=len(X))
SITES = ["".join(RNG.choice(list("ACGT"), 24)) for _ in range(50)]
IS_SITE = np.arange(50) % 2
VIEWS = [
    RBF(width=1.0).on([0, 1], label="sepal"),
    RBF(width=2.0).on([0, 1], label="sepal"),
    Linear().on([2, 3], StandardScaler()),
    RBF(width=1.0).on(2),
]
PARTS = WeightedDegree(3).by_position(8)

CASES = {
    "two classes": (MKLClassifier(VIEWS, regularizer="lp_ball"), X, TWO, NEW),
    "shared": (MKLClassifier(), X, SPECIES, NEW),
    "ovr": (MKLClassifier(multi_class="ovr"), X, SPECIES, NEW),
    "centred": (MKLClassifier(VIEWS, normalize=("center", "trace")), X, TWO, NEW),
    "product": (MKLClassifier(combination="product", regularizer="l1", C=10), X, TWO, NEW),
    "product, ovr": (
        MKLClassifier(combination="product", regularizer="l1", multi_class="ovr"),
        X,
        SPECIES,
        NEW,
    ),
    "mixture": (MKLClassifier(VIEWS, combination=PolynomialMixture((0.5, 0, 2))), X, TWO, NEW),
    "regression": (MKLRegressor(VIEWS), X, NUMBERS, NEW),
    "one class": (MKLOneClass(VIEWS, nu=0.2), X, None, NEW),
    "classifier CV": (MKLClassifierCV(VIEWS, Cs=[0.1, 1.0], cv=2), X, SPECIES, NEW),
    "regressor CV": (MKLRegressorCV(VIEWS, Cs=[0.1, 1.0], cv=2), X, NUMBERS, NEW),
    "nystrom": (NystromMKLClassifier(VIEWS, n_components=20), X, SPECIES, NEW),
    "nystrom, two": (NystromMKLClassifier(VIEWS, n_components=20), X, TWO, NEW),
    "bayesian": (BayesianMKLClassifier(VIEWS, max_iter=30), X, TWO, NEW),
    "bayesian, ovr": (
        BayesianMKLClassifier(VIEWS, multi_class="ovr", sparsity="sparse", max_iter=30),
        X,
        SPECIES,
        NEW,
    ),
    "labels": (
        BayesianMKLClassifier(VIEWS, max_iter=30),
        X,
        np.column_stack([SPECIES == 0, SPECIES == 1]).astype(int),
        NEW,
    ),
    "bayesian regression": (BayesianMKLRegressor(VIEWS, max_iter=30), X, NUMBERS, NEW),
    "several outputs": (
        BayesianMKLRegressor(VIEWS, max_iter=30),
        X,
        np.column_stack([NUMBERS, 5.0 - 3.0 * NUMBERS]),
        NEW,
    ),
    "one output of a table": (
        BayesianMKLRegressor(VIEWS, max_iter=30),
        X,
        NUMBERS[:, None],
        NEW,
    ),
    "positions": (MKLClassifier(PARTS, regularizer="lp_ball"), SITES, IS_SITE, SITES[:5]),
    "looked up and evaluated": (
        MKLClassifier([Spectrum((1, 3)).by_length(), PARTS], normalize="diagonal"),
        SITES,
        IS_SITE,
        SITES[:5],
    ),
    "batch": (
        MKLClassifier([Linear(), RBFBatch.random(40, 4, sizes=(1, 2))], regularizer="lp_ball"),
        X,
        SPECIES,
        NEW,
    ),
    "sparse features": (
        MKLClassifier([Linear(), RBF(width=2.0)]),
        sparse.csr_matrix(X),
        TWO,
        sparse.csr_matrix(NEW),
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def fitted():
    """Models of CASES, fitted when they are first asked for."""
    known = {}

    def get(case):
        if case not in known:
            model, samples, y, new = CASES[case]
            model = clone(model)
            known[case] = (model.fit(samples) if y is None else model.fit(samples, y)), new
        return known[case]

    return get


def decisions(model, new):
    regressor = isinstance(model, MKLRegressor | BayesianMKLRegressor)
    return model.predict(new) if regressor else model.decision_function(new)


@pytest.mark.parametrize("case", CASES)
def test_contributions_sum_to_the_decision_values(case, fitted):
    model, new = fitted(case)
    explanation = model.explain(new)
    expected = decisions(model, new)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(explanation.decision, expected, rtol=1e-10, atol=1e-12 * scale)
    sums = explanation.values.sum(axis=-1) + explanation.baseline
    np.testing.assert_allclose(sums, expected, rtol=1e-10, atol=1e-12 * scale)
    weights = np.atleast_2d(model.weights_)
    np.testing.assert_array_equal(explanation.kernels, np.flatnonzero(weights.any(axis=0)))
    assert explanation.kernel_names == tuple(model.kernel_names_[k] for k in explanation.kernels)
    for grouping in ("view", "family", "column"):
        groups = explanation.by(grouping)
        np.testing.assert_allclose(
            groups.values.sum(axis=-1), explanation.values.sum(axis=-1), atol=1e-12 * scale
        )
    assert len(explanation) == len(expected)
    assert f"Explanation of {len(expected)} samples" in str(explanation)


def test_all_estimators_were_asked():
    def leaves(cls):
        below = cls.__subclasses__()
        return {cls} if not below else set().union(*(leaves(c) for c in below))

    public = {cls for cls in leaves(KernelEstimator) if cls.__module__.startswith("kernelweave.")}
    assert public <= {type(model) for model, *_ in CASES.values()}


def test_a_part_of_a_sum_is_that_of_its_kernel_alone(fitted):
    model, new = fitted("shared")
    explanation = model.explain(new)
    kernels = ComputedOperator.build("default", X)
    for place, k in enumerate(explanation.kernels):
        values = kernels.against(new).block(columns=model.support_, kernels=[k])[0]
        expected = model.weights_[k] * values @ model.dual_coef_.T
        np.testing.assert_allclose(explanation.values[:, :, place], expected, atol=1e-12)
    np.testing.assert_array_equal(explanation.baseline, model.intercept_)


def test_a_distance_is_given_what_it_takes_away(fitted):
    """Products: -s_k (1 - exp(-s)) / s for every pair, by hand; the rest is the baseline."""
    model, _ = fitted("product")
    new = np.vstack([NEW, X[model.support_[:1]]])  # one at distance zero from a support vector
    explanation = model.explain(new)
    scaled = StandardScaler().fit(X)
    D = (scaled.transform(new)[:, None] - scaled.transform(X[model.support_])[None]) ** 2
    s = D @ model.weights_
    ratio = np.where(s > 0, -np.expm1(-s) / np.where(s > 0, s, 1.0), 1.0)
    parts = -np.einsum("ijk,ij,j->ik", D * model.weights_, ratio, model.dual_coef_[0])
    np.testing.assert_allclose(explanation.values, parts[:, explanation.kernels], atol=1e-10)
    baseline = model.dual_coef_[0].sum() + model.intercept_[0]
    assert explanation.baseline == pytest.approx(baseline, abs=1e-12)


def test_the_value_without_weights_is_part_of_the_baseline():
    """Coefficients of a fit sum to zero, which hides it."""
    coef = RNG.normal(size=(2, 5))
    weights = np.array([[0.3, 0.0, 0.7, 0.2]])
    decide = Decisions(DistanceOperator.build("default", X), Product(), weights, np.arange(5), coef)
    parts = decide.parts(NEW)
    np.testing.assert_allclose(parts.constant, coef.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(parts.values.sum(axis=-1) + parts.constant, decide(NEW), rtol=1e-10)


class _Unknown(Combination):
    """K(d) = 1 / (1 + S), which says nothing of shares itself; without a name, not registered."""

    base = "distances"

    def values(self, tile, d):
        return 1.0 / (1.0 + tile.weighted(d))

    def derivative(self, tile, d, M):
        return -tile.contract(M * self.values(tile, d) ** 2)


def test_a_combination_of_ones_own_is_explained_too():
    model = MKLClassifier(combination=_Unknown(), regularizer="l1", C=10).fit(X, TWO)
    explanation = model.explain(NEW)
    assert explanation.values.any()
    np.testing.assert_allclose(explanation.decision, model.decision_function(NEW), rtol=1e-10)


@pytest.mark.parametrize(
    ("case", "n"), [("batch", 8_000), ("product, ovr", 60_000), ("mixture", 130_000)]
)
def test_many_samples_are_explained_like_few(case, n, fitted):
    """So many that they are taken in blocks."""
    model, new = fitted(case)
    whole, copies = model.explain(new).values, n // len(new)
    many = model.explain(np.tile(new, (copies, 1))).values
    expected = np.tile(whole, (copies,) + (1,) * (whole.ndim - 1))
    np.testing.assert_allclose(many, expected, rtol=1e-10, atol=1e-13)


def test_features_are_looked_up_where_they_can_be(fitted, monkeypatch):
    model, new = fitted("positions")
    monkeypatch.setattr(Combination, "shares", None)  # nothing is evaluated pair by pair
    assert model.explain(new).values.shape == (5, 3)


def test_kernels_without_weight_are_never_evaluated(fitted):
    K = RBF(width=1.0)(X)
    bad = K.copy()
    kernels = from_matrices([K, bad], names=["good", "bad"])
    model = MKLClassifier(kernels, solver="uniform").fit(sample_ids(70), TWO)
    model.weights_ = np.array([1.0, 0.0])
    model._decide._weights = model.weights_[None]
    model._decide._look_ups = None
    bad[:] = np.nan  # the kernel holds the matrix itself
    explanation = model.explain(sample_ids(70)[:4])
    assert explanation.kernel_names == ("good",)
    assert explanation.infos[0].view == "good"
    assert np.isfinite(explanation.decision).all()


def test_too_many_contributions_are_refused_up_front(fitted, monkeypatch):
    model, new = fitted("shared")
    monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 100.0)
    with pytest.raises(MemoryBudgetError, match=r"contributions of .* Explain fewer samples"):
        model.explain(new)


# The explanation itself


def test_groups(fitted):
    model, new = fitted("two classes")
    explanation = model.explain(new)
    assert explanation.by("view").kernel_names == ("sepal", "columns 2-3", "column 2")
    assert explanation.by("family").kernel_names == ("rbf", "linear")
    columns = explanation.by("column")
    assert columns.kernel_names == ("0, 1", "2, 3", "2")
    np.testing.assert_allclose(columns.values[:, 0], explanation.values[:, :2].sum(axis=1))
    name = explanation.kernel_names[3]
    mine = explanation.by({"first": [0], "mine": [name, 2]})
    assert mine.kernel_names == ("first", "mine", "others")
    np.testing.assert_allclose(mine.values[:, 1], explanation.values[:, 2:].sum(axis=1))
    assert mine.by({"all": ["mine", "others", 0]}).kernel_names == ("all",)
    assert "by 3 groups of kernels" in repr(mine)
    with pytest.raises(UnknownNameError, match="did you mean 'family'"):
        explanation.by("familiy")
    with pytest.raises(UnknownNameError, match="unknown kernel"):
        explanation.by({"a": ["no such kernel"]})
    with pytest.raises(InvalidInputError, match="is in two groups, 'a' and 'b'"):
        explanation.by({"a": [0], "b": [0]})
    with pytest.raises(InvalidInputError, match="by takes 'view', 'family', 'column' or a dict"):
        explanation.by(3)
    with pytest.raises(InvalidInputError, match="groups already"):
        mine.by("view")


def test_the_largest_parts_of_a_sample(fitted):
    model, new = fitted("shared")
    explanation = model.explain(new)
    best = model.decision_function(new)[4].argmax()
    top = explanation.top(4, k=2)
    order = np.argsort(-np.abs(explanation.values[4, best]))[:2]
    assert [part.name for part in top] == [explanation.kernel_names[j] for j in order]
    assert [part.value for part in top] == explanation.values[4, best, order].tolist()
    assert explanation.top(4, output="2") == explanation.top(4, output=2)
    assert explanation.top(-1) == explanation.top(len(new) - 1)
    with pytest.raises(UnknownNameError, match="unknown output"):
        explanation.top(0, output="versicolour")
    with pytest.raises(IndexError):
        explanation.top(99)
    assert explanation.outputs == ("0", "1", "2")


def test_names_of_the_decision_values(fitted):
    said = {case: fitted(case)[0].explain(fitted(case)[1]) for case in CASES}
    assert said["two classes"].outputs == ("yes",)
    assert said["two classes"].meaning == "above 0 speaks for yes, below 0 for no"
    assert said["regression"].outputs == ("prediction",)
    assert said["one class"].outputs == ("inside",)
    assert said["labels"].outputs == ("label 0", "label 1")
    assert said["several outputs"].outputs == ("output 0", "output 1")


def test_tables(fitted, monkeypatch):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MKLClassifier([Linear(), RBF(width=1.0).on(["a"])], solver="uniform").fit(frame, TWO)
    new = frame[:3].set_axis(["p1", "p2", "p3"])
    explanation = model.explain(new)
    assert list(explanation.samples) == ["p1", "p2", "p3"]
    assert "sample p1:" in str(explanation)
    table = explanation.to_frame()
    assert list(table.index) == ["p1", "p2", "p3"]
    assert list(table) == [*model.kernel_names_, "baseline", "decision"]
    np.testing.assert_allclose(table["decision"], model.decision_function(new))
    np.testing.assert_allclose(table.iloc[:, :-1].sum(axis=1), table["decision"])
    several, samples = fitted("shared")
    each = several.explain(samples)
    long = each.to_frame()
    assert long.index.names == ["sample", "output"]
    np.testing.assert_allclose(
        long["decision"].to_numpy().reshape(len(samples), 3), several.decision_function(samples)
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    spare = explanation.to_frame()
    assert isinstance(spare, pl.DataFrame)
    assert spare.columns == ["sample", *model.kernel_names_, "baseline", "decision"]
    assert each.to_frame().columns[:2] == ["sample", "output"]


def test_polars_frames_and_kernels_of_equal_names(fitted):
    frame = pl.DataFrame(X, schema=list("abcd"))
    batch = RBFBatch([[0], [0]], [1.0, 1.0])  # equal kernels have equal names
    explanation = MKLClassifier(batch, solver="uniform").fit(frame, TWO).explain(frame[:3])
    assert list(explanation.samples) == [0, 1, 2]
    assert explanation.infos[0].columns == ("a",)
    names = list(explanation.to_frame())
    assert len(set(names)) == len(names)


def test_text_of_an_explanation(fitted):
    model, new = fitted("batch")
    text = str(model.explain(new))
    assert text.count("\n  sample ") == 3
    assert "6 more samples" in text
    assert text.count(" baseline") == 3
    assert "36 more" in text
    lines = text.split("\n  sample ")[1].splitlines()
    parts = [float(line.split()[0]) for line in lines[1:]]
    assert sum(parts) == pytest.approx(float(lines[0].split()[-1]), abs=1e-3)


def test_what_cannot_be_explained():
    with pytest.raises(NotFittedError):
        MKLClassifier().explain(NEW)
    model = MKLClassifier("linear").fit(X, TWO)
    with pytest.raises(ValueError, match="4 features"):
        model.explain(NEW[:, :2])
    with pytest.raises(ValueError, match="0 sample"):
        model.explain(NEW[:0])


@pytest.mark.parametrize("case", ["shared", "nystrom", "bayesian"])
def test_summaries_are_printed(case, fitted, capsys):
    model, _ = fitted(case)
    assert model.summary(top=2) is None
    out = capsys.readouterr().out
    assert out.startswith(f"{type(model).__name__}: ")
    assert "have a non-zero weight" in out


def test_a_summary_of_weights_for_each_class(fitted, capsys):
    fitted("ovr")[0].summary()
    assert "(means over 3 classes)" in capsys.readouterr().out
