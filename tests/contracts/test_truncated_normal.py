"""Truncated normals against the same formulas at 60 digits, and against quadrature."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from same_numbers import assert_same_numbers
from scipy.integrate import quad
from scipy.stats import norm

from kernelweave.bayes import class_probability, truncated_moments

SIZES = [
    0.0,
    1e-9,
    0.1,
    0.5,
    1.0,
    2.5,
    4.9,
    5.9,
    6.1,
    7.0,
    12.0,
    25.0,
    36.0,
    39.0,
    150.0,
    999.9,
    1e3,
]
LOCATIONS = np.array(SIZES + [-size for size in SIZES[1:]])
MARGINS = [0.0, 0.01, 1.0, 3.0, 40.0, 1e3]
LABELS = [1, -1, 0]


def exact(location, label, margin):
    """Mean, mean beyond the margin, second moment, log mass; the plain formulas, 60 digits."""
    with mpmath.workdps(60):
        mu, c = mpmath.mpf(float(location)), mpmath.mpf(float(margin))

        def tail(z):
            return mpmath.erfc(z / mpmath.sqrt(2)) / 2

        if label == 0:
            mass = tail(c - mu) + tail(c + mu)
            mean = mu + (mpmath.npdf(c - mu) - mpmath.npdf(c + mu)) / mass
            edges = (c - mu) * mpmath.npdf(c - mu) + (c + mu) * mpmath.npdf(c + mu)
            second = 1 + edges / mass
            return float(mean), float(abs(mean)), float(second), float(mpmath.log(mass))
        z = c - label * mu
        hazard = mpmath.npdf(z) / tail(z)
        log_mass = mpmath.log1p(-tail(-z)) if z < 0 else mpmath.log(tail(z))
        return (
            float(label * (c + hazard - z)),
            float(hazard - z),
            float(1 + z * hazard),
            float(log_mass),
        )


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("label", LABELS)
def test_moments_match_sixty_digits(label, margin):
    got = truncated_moments(LOCATIONS, label, margin)
    mean, _, second, log_mass = np.transpose([exact(mu, label, margin) for mu in LOCATIONS])
    np.testing.assert_allclose(got.mean, mean, rtol=2e-14)
    np.testing.assert_allclose(got.second, second, rtol=2e-14)
    # The log of a mass next to one is a small number: its digits fall with the cancellation
    # in the location itself, z^2 eps.
    np.testing.assert_allclose(got.log_mass, log_mass, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("label", [1, -1])
def test_distance_to_the_margin_keeps_its_digits(label):
    """With margin 0 the mean is the distance; on the wrong side it is 1/|z| out of |z| - |z|."""
    location = -label * np.geomspace(0.01, 1e3, 60)
    beyond = np.array([exact(mu, label, 0.0)[1] for mu in location])
    np.testing.assert_allclose(
        label * truncated_moments(location, label, 0.0).mean, beyond, rtol=5e-15
    )
    beyond = np.array([exact(mu, label, 1.0)[1] for mu in location])
    got = label * truncated_moments(location, label, 1.0).mean - 1.0
    np.testing.assert_allclose(got, beyond, rtol=1e-13, atol=1e-15)


def test_the_plain_formula_would_fail_here():
    """What the closed forms are for: the textbook line loses every digit, then divides 0 by 0."""
    location = np.array([-1e2, -1e3])
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = location + norm.pdf(-location) / norm.cdf(location)
    beyond = np.array([exact(mu, 1, 0.0)[0] for mu in location])
    assert not np.allclose(plain, beyond, rtol=1e-6)
    np.testing.assert_allclose(truncated_moments(location, 1, 0.0).mean, beyond, rtol=5e-15)


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("location", [-3.0, -0.7, 0.0, 1.2, 4.0])
@pytest.mark.parametrize("label", LABELS)
def test_moments_match_quadrature(label, location, margin):
    edge = location + np.array([-12.0, 12.0])
    sides = {1: [(margin, edge[1])], -1: [(edge[0], -margin)]}
    sides[0] = sides[1] + sides[-1]

    def integral(power):
        def integrand(f):
            return (1.0, f, (f - location) ** 2)[power] * np.exp(-0.5 * (f - location) ** 2)

        pieces = (quad(integrand, a, b, epsabs=1e-13, epsrel=1e-12)[0] for a, b in sides[label])
        return sum(pieces) / np.sqrt(2 * np.pi)

    mass, first, second = (integral(power) for power in range(3))
    got = truncated_moments(location, label, margin)
    np.testing.assert_allclose(got, [first / mass, second / mass, np.log(mass)], atol=1e-9)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("label", [1, -1])
def test_mean_never_leaves_its_side(label, margin):
    location = np.concatenate([LOCATIONS, [1e8, -1e8, 1e16, -1e16, 1e100, -1e100]])
    assert np.all(label * truncated_moments(location, label, margin).mean > margin)


def test_all_finite_very_far_out():
    with np.errstate(all="raise", under="ignore"):
        for margin in MARGINS:
            for label in LABELS:
                got = truncated_moments(np.array([1e8, -1e8]), label, margin)
                assert np.all(np.isfinite(got))
                assert np.all(got.log_mass <= 0.0)


def test_unlabelled_without_margin_is_not_truncated():
    got = truncated_moments(LOCATIONS, 0, 0.0)
    np.testing.assert_array_equal(got.mean, LOCATIONS)
    np.testing.assert_array_equal(got.second, 1.0)
    np.testing.assert_array_equal(got.log_mass, 0.0)


def test_mixed_labels_and_shapes():
    rng = np.random.default_rng(0)
    location, label = rng.normal(size=(3, 5)), rng.integers(-1, 2, size=(3, 5))
    got = truncated_moments(location, label, 1.0)
    for at in np.ndindex(3, 5):
        one = truncated_moments(location[at], label[at], 1.0)
        assert one.mean.shape == ()
        assert_same_numbers([part[at] for part in got], one)
    wide = truncated_moments(location, label[:1], 1.0)
    assert wide.mean.shape == (3, 5)
    assert truncated_moments(np.empty((0,)), np.empty((0,)), 1.0).mean.shape == (0,)


@pytest.mark.parametrize("margin", MARGINS)
def test_mirror_images(margin):
    up, down = truncated_moments(LOCATIONS, 1, margin), truncated_moments(-LOCATIONS, -1, margin)
    np.testing.assert_array_equal(up.mean, -down.mean)
    np.testing.assert_array_equal(up.log_mass, down.log_mass)
    free, mirrored = (
        truncated_moments(LOCATIONS, 0, margin),
        truncated_moments(-LOCATIONS, 0, margin),
    )
    np.testing.assert_array_equal(free.mean, -mirrored.mean)
    np.testing.assert_array_equal(free.second, mirrored.second)


def exact_probability(mean, std, margin):
    with mpmath.workdps(60):
        mu, s, c = (mpmath.mpf(float(value)) for value in (mean, std, margin))
        up, down = (
            mpmath.erfc((c - mu) / s / mpmath.sqrt(2)),
            mpmath.erfc((c + mu) / s / mpmath.sqrt(2)),
        )
        return float(up / (up + down))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("std", [0.1, 1.0, 7.0])
def test_class_probability(margin, std):
    got = class_probability(LOCATIONS, std, margin)
    expected = [exact_probability(mu, std, margin) for mu in LOCATIONS]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)
    # The two classes share one. Below 1e-300 both answer zero, at most.
    np.testing.assert_allclose(got + class_probability(-LOCATIONS, std, margin), 1.0, rtol=4e-16)


def test_class_probability_one_std_each():
    mean, std = np.array([[0.3, -2.0]]), np.array([[1.0, 4.0]])
    got = class_probability(mean, std, 1.0)
    expected = [[exact_probability(0.3, 1.0, 1.0), exact_probability(-2.0, 4.0, 1.0)]]
    np.testing.assert_allclose(got, expected, rtol=1e-13)
