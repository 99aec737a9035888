"""Groups of kernels, in every way a user can say them, and the prox over groups."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lp_norm import norm
from sklearn.base import clone

from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.regularizers import BlockNorm

NAMES = ["rbf on age", "linear", "linear on age", "linear on age (2)", "rbf on x (2)"]
D = np.array([3.0, 7.0, 4.0, 12.0, 2.0])


def bound(groups: object, p: float = 2.0) -> BlockNorm:
    return BlockNorm(groups, p).bind(SimpleNamespace(m=len(NAMES), names=NAMES), WeightedSum())


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("columns", {"age": 13.0, "all columns": 7.0, "x (2)": 2.0}),
        (2, {"kernels 0-1": norm([3, 7], 2), "kernels 2-3": norm([4, 12], 2), "kernels 4-4": 2.0}),
        (9, {"kernels 0-4": norm(D, 2)}),
        (["b", "a", "b", "b", "a"], {"b": 13.0, "a": norm([7, 2], 2)}),
        (np.array([5, 1, 5, 5, 1]), {"5": 13.0, "1": norm([7, 2], 2)}),
        ({"one": [0, 3, 2], "two": (4, 1)}, {"one": 13.0, "two": norm([7, 2], 2)}),
        (
            {"one": NAMES[:1] + NAMES[2:4], "two": [np.int64(4), "linear"]},
            {"one": 13.0, "two": norm([7, 2], 2)},
        ),
    ],
    ids=repr,
)
def test_groups_are_found(groups: object, expected: dict[str, float]) -> None:
    reg = bound(groups)
    assert reg.group_weights(D) == pytest.approx(expected, rel=1e-13)
    assert reg.value(D) == pytest.approx(sum(expected.values()), rel=1e-13)
    twin = pickle.loads(pickle.dumps(reg))
    assert twin.group_weights(D) == reg.group_weights(D)
    assert clone(reg) == reg
    assert hash(clone(reg)) == hash(reg)
    if "columns" not in str(groups) and "linear" not in str(groups):
        assert BlockNorm(groups).group_weights(D) == reg.group_weights(D)


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        ("rows", "groups must be 'columns', a number .* got 'rows'"),
        (0, "groups must be 'columns', .* got 0"),
        (True, "groups must be 'columns', .* got True"),
        (2.5, "groups must be 'columns', .* got 2.5"),
        ([[0, 1], [2], [3], [4], []], r"a sequence with the entry \[0, 1\]"),
        (["a", "b"], "one label for each of the 5 kernels; got 2"),
        ({"a": [0, 1], "b": [1, 2, 3, 4]}, "kernel 1 is in the groups 'a' and 'b'"),
        ({"a": [0, 0], "b": [1, 2, 3, 4]}, "kernel 0 is in the groups 'a' and 'a'"),
        ({"a": [0, 1], "b": [3, 4]}, "1 of 5 kernels are in no group, kernel 'linear on age'"),
        ({"a": [0, 1, 2, 3, 5]}, "index from 0 to 4; got 5"),
        ({"a": [0, 1, 2, 3, -1]}, "index from 0 to 4; got -1"),
        ({"a": [0, 1, 2, 3, 1.5]}, "index from 0 to 4; got 1.5"),
        ({"a": [0, 1, 2, 3, 4], "b": []}, "group 'b' has no kernels"),
        ({"a": "linear"}, "group 'a' must be a list of kernels .* got 'linear'"),
        ({"a": 3}, "group 'a' must be a list of kernels .* got 3"),
    ],
    ids=repr,
)
def test_bad_groups_are_explained(groups: object, error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        bound(groups)


def test_names_that_are_not_known_are_explained() -> None:
    with pytest.raises(UnknownNameError, match="group 'a': 'liner'; did you mean 'linear'"):
        bound({"a": ["liner"]})
    with pytest.raises(InvalidInputError, match=r"groups='columns' reads .* bind\(bank"):
        BlockNorm().value(D)
    with pytest.raises(InvalidInputError, match="group 'a' names the kernel 'linear'"):
        BlockNorm({"a": ["linear"]}).value(D)
    with pytest.raises(InvalidInputError, match="bound to 5 kernels; got 3 weights"):
        bound(2).value(np.ones(3))


def test_shuffled_groups_are_those_in_order() -> None:
    rng = np.random.default_rng(0)
    labels, v = np.repeat([0, 1, 2, 3], [1, 5, 2, 12]), rng.normal(size=20) * 3
    order = rng.permutation(20)
    for p in (1.0, 1.4, 2.0, 3.0):
        one, other = BlockNorm(labels, p), BlockNorm(labels[order], p)
        for method in ("project", "weights_from_norms", "gradient"):
            expected = getattr(one, method)(np.abs(v))[order]
            np.testing.assert_allclose(getattr(other, method)(np.abs(v)[order]), expected)
        np.testing.assert_allclose(other.prox(v[order], 0.8), one.prox(v, 0.8)[order], atol=1e-14)
        assert other.omega(np.abs(v)[order]) == pytest.approx(one.omega(np.abs(v)), rel=1e-13)
        screened = one.screened(0 * v, np.abs(v))[order]
        assert np.array_equal(other.screened(0 * v, np.abs(v)[order]), screened)


def test_prox_makes_whole_groups_exactly_zero() -> None:
    v = np.array([0.3, 0.4, 3.0, 4.0, -1.0, -2.0])
    for p in (1.3, 2.0, 5.0):
        d = BlockNorm(2, p).prox(v, 1.0)
        assert np.array_equal(d > 0, [False, False, True, True, False, False])
        assert np.all(BlockNorm(2, p).prox(1e-8 * v, 1e8) == 0)


@pytest.mark.parametrize("p", [1.001, 1.01, 1.2, 1.9, 2.0, 2.001, 3.0, 20.0])
@settings(max_examples=40, deadline=None)
@given(v=arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e8, 1e8)))
def test_group_prox_meets_its_optimality_conditions(p: float, v: np.ndarray) -> None:
    reg = BlockNorm(5, p, weight=3.0)
    d = reg.prox(v, 0.5)
    for part in (slice(0, 5), slice(5, 10), slice(10, 15)):
        # What was taken off has dual norm at most the price, and attains it where d is not zero.
        taken = norm(np.maximum((v - d)[part], 0.0), p / (p - 1))
        rounding = 1e-12 * np.abs(v[part]).sum()
        assert taken <= 1.5 * (1 + 1e-12) + rounding
        assert abs((v - d)[part] @ d[part] - 1.5 * norm(d[part], p)) <= rounding * (1 + d.sum())
        assert taken >= 1.5 * (1 - 1e-12) - rounding or not d[part].any()
