"""Every registered loss keeps the promises of `Loss`: derivatives, conjugate, domain, intercept."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.losses import (
    EpsilonInsensitive,
    Hinge,
    Loss,
    OneClass,
    SmoothHinge,
    Squared,
    check_loss,
    get_loss,
)

LOSSES = [example for name in Loss.names() for example in Loss.registry[name].examples()]
NAMES = ("hinge", "squared_hinge", "logistic", "smooth_hinge", "squared", "epsilon_insensitive")
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def data(loss: Loss, n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n) if loss.task == "classification" else rng.normal(size=n)
    y = np.ones(n) if loss.task == "one_class" else y
    return y, rng.normal(scale=1.5, size=n), rng.uniform(0.2, 3.0, n)


def inside_domain(loss: Loss, y: np.ndarray, C: np.ndarray, seed: int = 1) -> np.ndarray:
    """Points well inside the domain, away from the kink of the conjugate at zero."""
    lo, hi = loss.domain(y, C)
    lo, hi = np.maximum(lo, -3.0), np.minimum(hi, 3.0)
    return lo + np.random.default_rng(seed).uniform(0.1, 0.4, y.shape) * (hi - lo)


def test_all_rows_of_the_table_are_registered() -> None:
    assert {*NAMES, "one_class"} <= set(Loss.names())


@every_loss
def test_derivatives_conjugate_domain_and_weights(loss: Loss) -> None:
    check_loss(loss)  # tests/contracts/test_check_loss.py shows that it finds what is wrong


@every_loss
def test_gradient_is_a_subgradient_everywhere_also_at_kinks(loss: Loss) -> None:
    y, z, C = data(loss, n=40)
    kinks = np.concatenate([z, y, -y, np.zeros(40), y + 0.1, y - 0.1])
    others = np.linspace(-4, 4, 81)
    y, C = np.tile(y, 6), np.tile(C, 6)
    slope = loss.gradient(y, kinks, C)
    tangent = loss.value(y, kinks, C) + slope * (others[:, None] - kinks)
    there = loss.value(y + 0 * others[:, None], others[:, None] + 0 * y, C)
    assert np.all(there >= tangent - 1e-9)


@every_loss
def test_losses_that_are_not_smooth_say_they_have_no_curvature(loss: Loss) -> None:
    if not loss.smooth:
        with pytest.raises(TypeError, match="no second derivative"):
            loss.curvature(*data(loss))


@every_loss
def test_lipschitz_constant_bounds_the_gradient_and_is_tight(loss: Loss) -> None:
    y, _, C = data(loss)
    bound = loss.lipschitz(C)
    if not loss.smooth or type(loss).lipschitz is Loss.lipschitz:
        assert np.all(np.isinf(bound))
        return
    z = np.linspace(-3, 3, 6001)[:, None] + 0 * y
    slopes = np.abs(np.diff(loss.gradient(y + 0 * z, z, C + 0 * z), axis=0)) / (6 / 6000)
    assert np.all(slopes <= bound * (1 + 1e-9))
    np.testing.assert_allclose(slopes.max(axis=0), bound, rtol=1e-3)


def test_the_soft_margins() -> None:
    assert {loss.name: loss.soft_margin for loss in LOSSES if loss.soft_margin} == {
        "hinge": "l1",
        "squared_hinge": "l2",
    }


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.soft_margin], ids=repr)
def test_the_conjugate_of_a_soft_margin_is_linear_and_a_ridge(loss: Loss) -> None:
    y, _, C = data(loss)
    alpha = inside_domain(loss, y, C)
    a = y * alpha
    expected = -a + a**2 / (2.0 * loss.lipschitz(C))
    np.testing.assert_allclose(loss.conjugate(y, alpha, C), expected, rtol=1e-12)


@every_loss
def test_conjugate_is_the_supremum_on_a_grid(loss: Loss) -> None:
    y, _, C = data(loss, n=15)
    alpha = inside_domain(loss, y, C)
    z = np.arange(-40_000, 40_001)[:, None] / 1000 + y  # the kinks are on the grid
    numeric = np.max(-alpha * z - loss.value(y + 0 * z, z, C + 0 * z), axis=0)
    np.testing.assert_allclose(loss.conjugate(y, alpha, C), numeric, atol=2e-5)


@every_loss
def test_conjugate_is_finite_at_the_ends_of_the_domain_and_a_rounding_beyond(loss: Loss) -> None:
    y, _, C = data(loss)
    for end, outwards in zip(loss.domain(y, C), (-1.0, 1.0), strict=True):
        at = np.where(np.isfinite(end), end, 7.0 * outwards)
        assert np.all(np.isfinite(loss.conjugate(y, at, C)))
        assert np.all(np.isfinite(loss.conjugate(y, at + outwards * 1e-13 * C, C)))


@every_loss
@pytest.mark.filterwarnings("error")
def test_nothing_overflows_for_huge_predictions(loss: Loss) -> None:
    z = np.array([-1e6, -1e3, -40.0, 0.0, 40.0, 1e3, 1e6])
    signs = (1.0,) if loss.task == "one_class" else (1.0, -1.0)
    for sign in signs:
        y, C = np.full(z.shape, sign), np.full(z.shape, 2.0)
        alpha = -loss.gradient(y, z, C)
        assert np.all(np.isfinite(loss.value(y, z, C)))
        assert np.all(np.isfinite(alpha))
        assert np.all(np.isfinite(loss.conjugate(y, alpha, C)))
        if loss.smooth:
            assert np.all(np.isfinite(loss.curvature(y, z, C)))


@every_loss
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("start", [0.0, -1e5])
def test_best_intercept_is_optimal(loss: Loss, scale: float, start: float) -> None:
    y, f, C = data(loss, n=41)
    f = f * scale
    if loss.task == "regression":
        y = y * scale
    b = loss.best_intercept(y, f, C, start)

    def objective(shift: float) -> float:
        return float(loss.value(y, f + shift, C).sum()) + loss.alpha_sum * shift

    best = objective(b)
    for step in (1e-6, 1e-3, 1.0, 1e3):
        for other in (b - step * max(1.0, abs(b)), b + step * max(1.0, abs(b))):
            assert best <= objective(other) + 1e-11 * max(1.0, abs(best))
    if loss.smooth:
        slope = loss.gradient(y, f + b, C)
        # No b is nearer than rounding of b and of the gradient allow.
        spacing = np.spacing(np.abs(f + b) + np.abs(y)) @ loss.curvature(y, f + b, C)
        slack = 1e-12 * np.abs(slope).sum() + 1e-15 * C.sum() + spacing
        assert abs(slope.sum()) <= slack


@every_loss
def test_the_general_search_for_the_intercept_is_optimal_too(loss: Loss) -> None:
    y, f, C = data(loss, n=41)
    general = Loss.best_intercept(loss, y, f, C, 7.0)
    own = loss.best_intercept(y, f, C, 7.0)
    values = [loss.value(y, f + b, C).sum() + loss.alpha_sum * b for b in (general, own)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.parametrize("decades", [20, 57])
@pytest.mark.parametrize("loss", [get_loss(name) for name in NAMES[:4]], ids=repr)
def test_best_intercept_of_weights_that_differ_by_many_decades(loss: Loss, decades: int) -> None:
    """The light class has a say too: no other constant is cheaper by more than rounding."""
    y, f = np.array([1.0, 1.0, -1.0]), np.zeros(3)
    C = np.array([1.0, 10.0**-decades, 10.0**decades])
    found = float(np.sum(loss.value(y, f + loss.best_intercept(y, f, C), C)))
    others = np.linspace(-3.0 * decades, 3.0 * decades, 2001)
    assert found <= (1 + 1e-6) * min(float(np.sum(loss.value(y, f + b, C))) for b in others)


@every_loss
def test_best_intercept_is_finite_for_one_class_only_and_for_weight_zero(loss: Loss) -> None:
    y, f = np.ones(5), np.linspace(-1, 1, 5)
    b = loss.best_intercept(y, f, np.ones(5))
    assert np.isfinite(b)
    assert abs(b) < 1e3
    assert np.isfinite(loss.best_intercept(y, f, np.zeros(5), 3.0))


def test_best_intercept_takes_the_middle_of_a_flat_interval() -> None:
    y, f = np.array([1.0, -1.0]), np.array([4.0, -4.0])
    assert Hinge().best_intercept(y, f, np.ones(2)) == 0.0
    assert EpsilonInsensitive(1.0).best_intercept(np.array([2.0]), np.zeros(1), np.ones(1)) == 2.0


@every_loss
def test_box_qp_is_the_dual_of_the_loss(loss: Loss) -> None:
    y, _, C = data(loss, n=12)
    C = C * 0.2
    if loss.smooth:
        with pytest.raises(TypeError, match="not piecewise linear"):
            loss.box_qp(y, C)
        return
    qp = loss.box_qp(y, C)
    alpha = inside_domain(loss, y, C)
    a = qp.split(alpha)
    assert np.all(a >= 0)
    assert np.all(a <= qp.upper)
    assert qp.total == loss.alpha_sum
    assert qp.sample.dtype == np.int64
    np.testing.assert_allclose(qp.signed(a), alpha, atol=1e-15)
    np.testing.assert_allclose(qp.linear @ a, loss.conjugate(y, alpha, C).sum(), atol=1e-12)
    lo, hi = loss.domain(y, C)
    np.testing.assert_allclose(qp.signed(qp.split(hi + 5.0)), hi)
    np.testing.assert_allclose(qp.signed(qp.split(lo - 5.0)), lo)


@every_loss
def test_losses_are_plain_values(loss: Loss) -> None:
    twins = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), clone(loss)]
    assert all(twin == loss and hash(twin) == hash(loss) for twin in twins)
    assert eval(repr(loss), {type(loss).__name__: type(loss)}) == loss
    assert get_loss(loss) is loss
    assert get_loss(loss.name, **loss.get_params()) == loss
    assert len({loss, *twins, Hinge() if loss != Hinge() else Squared()}) == 2


def test_smooth_hinge_tends_to_the_hinge() -> None:
    y, z, C = data(Hinge())
    distance = [
        np.abs(SmoothHinge(s).value(y, z, C) - Hinge().value(y, z, C)).max() for s in (10, 1e3, 1e5)
    ]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-4


def test_one_class_dual_has_total_one() -> None:
    f, C = np.array([0.1, 0.4, 0.2, 0.9]), np.full(4, 1 / (0.5 * 4))
    b = OneClass().best_intercept(np.ones(4), f, C)
    assert 0.2 <= -b <= 0.4  # nu = 1/2 of the mass lies below rho


def test_get_loss_passes_parameters_only_where_they_apply() -> None:
    assert get_loss("epsilon_insensitive", epsilon=0.5) == EpsilonInsensitive(0.5)
    assert get_loss("squared", epsilon=0.5) == Squared()
    assert get_loss(EpsilonInsensitive(0.3), epsilon=0.5) == EpsilonInsensitive(0.3)


def test_bad_names_and_parameters_are_explained() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown loss 'hing'; did you mean 'hinge'"):
        get_loss("hing")
    with pytest.raises(UnknownNameError, match="loss parameter 'epsilom'; did you mean 'epsilon'"):
        get_loss("epsilon_insensitive", epsilom=0.5)
    with pytest.raises(InvalidInputError, match="must be a name or a Loss object; got 3"):
        get_loss(3)  # type: ignore[arg-type]
    y, z, C = data(SmoothHinge())
    with pytest.raises(InvalidInputError, match=r"sigma .* must be a finite number > 0; got -1"):
        SmoothHinge(sigma=-1).value(y, z, C)
    with pytest.raises(InvalidInputError, match=r"epsilon .* must be a finite number >= 0; got -1"):
        EpsilonInsensitive(epsilon=-1).box_qp(y, C)


def test_a_taken_name_cannot_be_registered_by_another_class() -> None:
    with pytest.raises(InvalidInputError, match=r"'hinge' of class .*Impostor is taken by Hinge"):
        type("Impostor", (Hinge,), {"name": "hinge"})
    assert get_loss("hinge") == Hinge()
