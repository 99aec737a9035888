"""The search for roots of rising functions, on functions that are hard to search."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from kernelweave import root_search

NOWHERE = np.nan


def rising_roots(function, start, *args):
    """The roots of all functions at once; one by one they must be the same."""
    found = root_search.rising_roots(function, start, *args)
    silent = getattr(function, "uncounted", function)
    for place in np.ndindex(found.shape) if found.ndim <= 1 else ():

        def alone(x, place=place):
            full = np.array(found)
            full[place] = x
            return [float(np.broadcast_to(part, full.shape)[place]) for part in silent(full)]

        ends = [float(np.broadcast_to(end, found.shape)[place]) for end in args]
        one = root_search.rising_root(alone, np.asarray(start)[place], *ends)
        np.testing.assert_allclose(one, found[place], rtol=1e-12, atol=1e-15)
    return found


def counted(function):
    """The function, and a list that grows by one with every evaluation."""
    calls = []

    def watched(x):
        calls.append(x)
        return function(x)

    watched.uncounted = function
    return watched, calls


def newton(value, slope, size):
    """What a search asks of a function, from its value, slope and the size of its terms."""

    def function(x):
        with np.errstate(all="ignore"):
            return value(x), size(x), x - value(x) / slope(x)

    return function


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e8, 1e200])
def test_newton_steps_find_roots_in_any_unit(scale: float) -> None:
    root = scale * np.array([0.3, 1.0, 7.0])
    function, calls = counted(
        newton(lambda x: x**3 - root**3, lambda x: 3 * x**2, lambda x: x**3 + root**3)
        if scale == 1.0
        else newton(lambda x: x - root, lambda x: np.ones(3), lambda x: np.abs(x) + root)
    )
    found = rising_roots(function, 10.0 * root, 0.0)
    np.testing.assert_allclose(found, root, rtol=1e-14)
    assert len(calls) < 12


@pytest.mark.parametrize("root", [-1e300, -1.0, -1e-300, 5e-324, 1e-30, 0.1, 33.3, 1e300])
def test_halving_alone_finds_every_number_exactly(root: float) -> None:
    function, calls = counted(lambda x: (np.where(x < root, -1.0, 1.0), 1.0, NOWHERE * x))
    for start in (0.0, -5.0, 1e100):
        assert float(rising_roots(function, start)) == root
    assert len(calls) <= 3 * 80


def test_a_jump_over_zero_is_its_upper_side() -> None:
    steps = np.array([-2.5, 0.0, 0.3])
    found = rising_roots(lambda x: (np.sign(x - steps) + 0.5, 1.0, NOWHERE * x), np.zeros(3))
    assert np.all(np.sign(found - steps) + 0.5 > 0)
    assert np.all(np.sign(np.nextafter(found, -np.inf) - steps) + 0.5 < 0)


@pytest.mark.parametrize("steep", [1.0, 1e3, 1e6, 1e12])
def test_a_steep_step_far_from_the_root_does_not_end_the_search(steep: float) -> None:
    # Newton's steps on the first step of the stairs are tiny, and lead nowhere.
    def value(x):
        return expit(steep * (x - 1.0)) + expit(steep * (x - 2.0)) - 1.3

    def slope(x):
        return steep * sum(expit(steep * (x - a)) * expit(-steep * (x - a)) for a in (1.0, 2.0))

    start = np.array([1.0, 1.0 + 1.0 / steep, -50.0, 2.0, 90.0])
    found = rising_roots(newton(value, slope, lambda x: 2.3), start)
    np.testing.assert_allclose(value(found) / steep, 0.0, atol=1e-14)
    np.testing.assert_allclose(found, found[0], rtol=1e-12)


@pytest.mark.parametrize("power", [1.01, 2.0, 9.0, 200.0, 1e4])
@pytest.mark.parametrize("start", [1e-6, 1.0])
def test_powers_from_either_side(power: float, start: float) -> None:
    root = np.array([1e-3, 0.5, 1.0, 1.0 + 1.0 / power])
    target = root + root**power
    function, calls = counted(
        newton(
            lambda x: x + x**power - target,
            lambda x: 1.0 + power * x ** (power - 1.0),
            lambda x: x + x**power + target,
        )
    )
    high = np.minimum(target, target ** (1.0 / power))
    found = rising_roots(function, start * high, 0.0, high)
    np.testing.assert_allclose(found, root, rtol=1e-14)
    assert len(calls) < 30


def test_slopes_that_mislead() -> None:
    # A wrong sign, no number, far too long, far too short: the bracket is what counts.
    for slope in (-1.0, np.nan, 0.0, 1e-30, 1e6):
        function, calls = counted(
            newton(lambda x: x - 0.7, lambda x, s=slope: np.full_like(x, s), lambda x: 1.0)
        )
        assert float(rising_roots(function, 3.0, -9.0, 9.0)) == pytest.approx(0.7, rel=1e-14)
        assert len(calls) <= 130


def test_values_that_are_no_numbers_lie_beyond() -> None:
    with np.errstate(all="ignore"):
        found = rising_roots(
            lambda x: (np.exp(x) / (1 + np.exp(x)) - 0.9, 1.0, NOWHERE * x), np.zeros(1)
        )
    np.testing.assert_allclose(found, np.log(9.0), rtol=1e-14)


def test_values_and_terms_that_overflow() -> None:
    def function(x):
        far = x > 1.0
        return np.where(far, np.inf, x - 0.5), np.where(far, np.inf, x + 0.5), x - 100.0

    found = rising_roots(function, np.array([3.0, 50.0]), 0.0, 60.0)
    np.testing.assert_allclose(found, 0.5, rtol=1e-11)  # by halving, with bad advice


def test_without_a_root_the_search_ends_at_an_end() -> None:
    for sign, end in ((-1.0, np.inf), (1.0, -np.finfo(float).max)):
        assert (
            float(rising_roots(lambda x, s=sign: (np.full_like(x, s), 1.0, NOWHERE * x), 2.0))
            == end
        )
    found = rising_roots(lambda x: (np.array([-1.0, 1.0]), 1.0, NOWHERE * x), np.ones(2), 0.5, 3.0)
    np.testing.assert_array_equal(found, [3.0, np.nextafter(0.5, 1.0)])


def test_roots_where_the_search_begins_and_at_zero() -> None:
    assert float(rising_roots(lambda x: (x - 0.2, 0.2, 0.2 + 0 * x), 0.2)) == 0.2
    function, calls = counted(newton(lambda x: x + x**3, lambda x: 1 + 3 * x**2, lambda x: 1.0))
    assert abs(float(rising_roots(function, 2.0))) <= 1e-15
    assert len(calls) < 12


def test_rounding_that_hides_the_last_digits_does_not_prolong_the_search() -> None:
    # The terms are 1e4 times the value that Newton's method would need to see.
    rng = np.random.default_rng(0)

    def value(x):
        noise = 1e-13 * rng.normal(size=np.shape(x))
        return x**2 - 2.0 + noise

    function, calls = counted(newton(value, lambda x: 2 * x, lambda x: x**2 + 2.0))
    found = rising_roots(function, np.full(50, 3.0), 0.0, 10.0)
    np.testing.assert_allclose(found, np.sqrt(2.0), rtol=1e-12)
    assert len(calls) < 12


def test_no_functions_and_many() -> None:
    assert rising_roots(lambda x: (x, 1.0, x), np.zeros(0)).shape == (0,)
    target = np.geomspace(1e-100, 1e100, 10_000).reshape(100, 100)
    function = newton(lambda x: x**3 - target, lambda x: 3 * x**2, lambda x: x**3 + target)
    found = rising_roots(function, np.ones_like(target), 0.0)
    np.testing.assert_allclose(found, np.cbrt(target), rtol=1e-14)


def test_the_given_arrays_stay_as_they_are() -> None:
    start, low, high = np.ones(2), np.zeros(2), np.full(2, 4.0)
    rising_roots(lambda x: (x - 3.0, 3.0, 3.0 + 0 * x), start, low, high)
    np.testing.assert_array_equal([start, low, high], [[1, 1], [0, 0], [4, 4]])


@pytest.mark.parametrize("zero", [1e-12, 1e-6, 0.01, 0.5, 0.99])
def test_a_slope_that_bends_sharply_anywhere_on_the_way(zero) -> None:
    """Chords alone creep towards a zero next to an end."""

    def slope(t):
        return t / zero - 1.0 if t < zero else t - zero

    t = root_search.zero_of_slope(slope, -1.0)
    assert 0.5 * zero <= t and slope(t) <= 0.1
