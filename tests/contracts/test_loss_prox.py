"""Every registered loss has the prox of its value, and the derivative of that."""

from __future__ import annotations

import numpy as np
import pytest
from own_losses import Huber
from same_numbers import assert_same_numbers

from kernelweave.losses import EpsilonInsensitive, Hinge, Loss, OneClass, Squared

pytestmark = pytest.mark.filterwarnings("error")

LOSSES = [example for name in Loss.names() for example in Loss.registry[name].examples()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
STEPS = [1e-8, 1e-3, 0.7, 1e3, 1e8]


class Plain(Loss):
    """A registered loss with nothing but its gradient."""

    def __init__(self, given: Loss) -> None:
        self.given = given

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return self.given.smooth

    def value(self, y: np.ndarray, z: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.given.value(y, z, C)

    def gradient(self, y: np.ndarray, z: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.given.gradient(y, z, C)

    def conjugate(self, y: np.ndarray, alpha: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.given.conjugate(y, alpha, C)


def data(loss: Loss, scale: float = 1.5, n: int = 300) -> tuple[np.ndarray, ...]:
    """Targets, points and weights, every seventh weight zero."""
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], n) if loss.task == "classification" else rng.normal(size=n)
    y = np.ones(n) if loss.task == "one_class" else y
    C = rng.uniform(0.2, 3.0, n) * (np.arange(n) % 7 > 0)
    return y, scale * rng.normal(size=n), C


@every_loss
@pytest.mark.parametrize("scale", [1e-6, 1.5, 1e6])
@pytest.mark.parametrize("step", STEPS)
def test_prox_is_where_the_slope_of_its_objective_changes_sign(
    loss: Loss, scale: float, step: float
) -> None:
    y, v, C = data(loss, scale)
    z = loss.prox(y, v, C, step)
    h = 1e-13 * (1.0 + np.abs(v))
    for side in (1.0, -1.0):
        at = z + side * h
        assert np.all(side * (at - v + step * loss.gradient(y, at, C)) >= 0.0)


@every_loss
@pytest.mark.parametrize("step", STEPS)
def test_prox_beats_every_point_of_a_grid(loss: Loss, step: float) -> None:
    y, v, C = data(loss, n=40)
    z = loss.prox(y, v, C, step)

    def objective(z: np.ndarray) -> np.ndarray:
        rows = 0.0 * z
        return loss.value(y + rows, z, C + rows) + (z - v) ** 2 / (2.0 * step)

    for width in (1e-6, 1e-2, 3.0):
        others = z + width * np.linspace(-1.0, 1.0, 101)[:, None]
        # Strongly convex: away from the minimum it rises at least so much.
        rise = (others - z) ** 2 / (2.0 * step)
        least = objective(z[None])
        error = 1e-13 * (np.abs(least) + (1.0 + np.abs(v)) * width / step) + 1e-15 * C
        assert np.all(objective(others) >= least + rise - error)


@every_loss
@pytest.mark.parametrize("step", STEPS)
def test_prox_and_slope_found_from_the_gradient_alone_are_the_same(loss: Loss, step: float) -> None:
    y, v, C = data(loss)
    z = loss.prox(y, v, C, step)
    plain = Plain(loss)
    numeric = plain.prox(y, v, C, step)
    np.testing.assert_allclose(z, numeric, rtol=1e-13, atol=1e-14)
    slope = loss.prox_slope(y, v, z, C, step)
    # Differences of gradients have fewer digits, and look round corners that are very near.
    found = plain.prox_slope(y, v, numeric, C, step)
    np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-7)


@every_loss
@pytest.mark.parametrize("step", STEPS)
def test_slope_is_the_derivative_of_the_prox(loss: Loss, step: float) -> None:
    y, v, C = data(loss)
    z = loss.prox(y, v, C, step)
    slope = loss.prox_slope(y, v, z, C, step)
    assert np.all(slope >= 0.0)
    assert np.all(slope <= 1.0)
    if not loss.smooth:
        assert set(slope) <= {0.0, 1.0}
    h = 1e-6
    before, after = ((loss.prox(y, v + side, C, step) - z) / side for side in (-h, h))
    # At a kink of the prox the derivative is one of two numbers.
    low, high = np.minimum(before, after) - 1e-5, np.maximum(before, after) + 1e-5
    assert np.all((low <= slope) & (slope <= high))
    straight = np.abs(after - before) < 1e-5
    assert straight.mean() > 0.9
    np.testing.assert_allclose(slope[straight], after[straight], rtol=1e-4, atol=1e-7)


@every_loss
@pytest.mark.parametrize("step", STEPS)
def test_a_sample_of_weight_zero_stays_where_it_is(loss: Loss, step: float) -> None:
    y, v, _ = data(loss)
    none = np.zeros_like(v)
    z = loss.prox(y, v, none, step)
    assert np.array_equal(z, v)
    assert np.array_equal(Plain(loss).prox(y, v, none, step), v)
    assert np.array_equal(loss.prox_slope(y, v, z, none, step), np.ones_like(v))


@every_loss
def test_prox_works_for_huge_numbers_and_on_tables(loss: Loss) -> None:
    v = np.array([[-1e9, -40.0, 0.0], [1e-12, 40.0, 1e9]])
    y, C = np.ones_like(v), np.full_like(v, 1e4)
    for step in (1e-12, 1e12):
        z = loss.prox(y, v, C, step)
        assert z.shape == v.shape
        assert np.all(np.isfinite(z))
        assert np.all(np.isfinite(loss.prox_slope(y, v, z, C, step)))
        flat = loss.prox(y.ravel(), v.ravel(), C.ravel(), step)
        assert_same_numbers(z.ravel(), flat)


@pytest.mark.parametrize(
    ("loss", "corner"), [(Hinge(), 1.0), (OneClass(), 0.0), (EpsilonInsensitive(0.25), 0.75)]
)
@pytest.mark.parametrize("step", [1e-3, 0.5, 20.0])
def test_a_corner_holds_a_whole_interval(loss: Loss, corner: float, step: float) -> None:
    v = corner - 2.0 * step * np.array([0.1, 0.5, 0.9])
    y, C = np.ones(3), np.full(3, 2.0)
    for made in (loss, Plain(loss)):
        z = made.prox(y, v, C, step)
        np.testing.assert_allclose(z, corner, rtol=1e-14, atol=1e-30)
        assert not np.any(made.prox_slope(y, v, z, C, step))
        outside = np.array([corner - 2.5 * step, corner + 0.1])
        z = made.prox(y[:2], outside, C[:2], step)
        np.testing.assert_allclose(z, outside + np.array([2.0 * step, 0.0]), rtol=1e-14)
        assert np.all(made.prox_slope(y[:2], outside, z, C[:2], step) == 1.0)


def test_a_loss_of_a_user_has_a_prox_by_itself() -> None:
    y, v, C = data(Huber())
    step = 0.7
    off, weight = v - y, step * C
    expected = y + np.where(
        np.abs(off) <= 1.0 + weight, off / (1.0 + weight), off - weight * np.sign(off)
    )
    z = Huber().prox(y, v, C, step)
    np.testing.assert_allclose(z, expected, atol=1e-14)
    slope = np.where(np.abs(off) <= 1.0 + weight, 1.0 / (1.0 + weight), 1.0)
    np.testing.assert_allclose(Huber().prox_slope(y, v, z, C, step), slope, rtol=1e-6)
    assert not Huber().steep


@every_loss
def test_steep_losses_have_conjugates_without_a_minimum_at_an_end(loss: Loss) -> None:
    y, C = (np.array([-1.0, 1.0]), np.ones(2)) if loss.task != "one_class" else np.ones((2, 1))
    ends = loss.domain(y, C)
    unbounded = []
    for end, other in (ends, ends[::-1]):
        inner = np.where(np.isfinite(other), other, 0.0)
        far = np.where(np.isfinite(end), end, 0.0)
        away = np.where(np.isfinite(end), 0.0, np.sign(end))

        def slope(k: int, inner=inner, far=far, away=away) -> np.ndarray:
            alpha = far + 10.0**-k * (inner - far) + 10.0**k * np.nan_to_num(away)
            return loss.conjugate_gradient(y, alpha, C)

        # Towards an end at which the slope grows like a logarithm, it keeps growing.
        early, late = np.abs(slope(6) - slope(3)), np.abs(slope(12) - slope(9))
        unbounded.append(np.all((late > 0.9 * early) & (early > 0.0)))
    assert loss.steep == all(unbounded)


def test_which_losses_are_steep() -> None:
    assert {loss.name for loss in LOSSES if loss.steep} >= {"logistic", "smooth_hinge", "squared"}
    assert Squared.steep
    assert not Hinge.steep
