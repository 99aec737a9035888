"""Equality of numbers that were computed twice."""

from __future__ import annotations

import numpy as np

__all__ = ["AFTER_A_FIT", "assert_same_numbers"]

# Two runs of an iterative fit start from the same numbers, but every step may carry the last bits
# further apart.
AFTER_A_FIT = 1e-6


def assert_same_numbers(found, expected, rtol=1e-9):
    """Assert equality up to rounding at the scale of the largest expected value.

    The last bits of a product depend on where its arrays lie in memory: BLAS and NumPy treat the
    first and last entries of a row that does not start on a vector boundary in another order. So
    numbers that were computed twice may differ there, while labels, counts and other values that
    are not floating-point must be equal.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected)
        return
    sizes = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * sizes.max(initial=0.0))
