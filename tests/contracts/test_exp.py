"""The vectorised exponential: accuracy, the ends of its range, threads."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.compiled.exp import exp_inplace
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError

DTYPES = [np.float32, np.float64]
LIMIT = {np.float32: 2e-7, np.float64: 1e-15}
RANGE = {np.float32: (-87.3, 88.7), np.float64: (-708.3, 709.7)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_relative_error_over_the_whole_range(dtype):
    rng = np.random.default_rng(0)
    low, high = RANGE[dtype]
    x = np.concatenate(
        [
            rng.uniform(low, high, 100_000),
            rng.uniform(-20, 0, 100_000),
            rng.normal(size=100_000) * 1e-3,
            # halves of ln 2: the ends of the reduced range
            (np.arange(-120, 120) + 0.5) * np.log(2.0),
        ]
    ).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(exp_inplace(x[None].copy())[0] / exact - 1)
    assert error.max() <= LIMIT[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_is_applied_before_the_exponential(dtype):
    x = np.linspace(0, 40, 1001, dtype=dtype).reshape(7, 143)
    expected = np.exp((dtype(-0.25) * x).astype(np.float64))
    np.testing.assert_allclose(exp_inplace(x.copy(), -0.25), expected, rtol=LIMIT[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_ends_of_the_range(dtype):
    low, high = RANGE[dtype]
    special = np.array([[0.0, -0.0, low - 60, -1e30, -np.inf, high + 1, np.inf, np.nan]], dtype)
    out = exp_inplace(special)[0]
    np.testing.assert_array_equal(out, [1, 1, 0, 0, 0, np.inf, np.inf, np.nan])
    assert out.dtype == dtype


@pytest.mark.parametrize("bits", [np.uint32(0x7FC00001), np.uint64(0x7FF8000000000001)])
def test_any_nan_stays_nan(bits):
    # A NaN that carries a payload would be shifted into an ordinary number.
    value = bits.view(np.float32 if bits.nbytes == 4 else np.float64)
    assert np.isnan(exp_inplace(np.full((1, 9), value))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_for_one_and_two_threads(dtype):
    x = np.random.default_rng(1).uniform(-9, 0, (501, 1501)).astype(dtype)
    outs = []
    for n_jobs in (1, 2):
        with use_threads(n_jobs):
            outs.append(exp_inplace(x.copy(), 0.7))
    np.testing.assert_array_equal(*outs)


def test_empty_arrays_are_fine():
    assert exp_inplace(np.empty((0, 5))).shape == (0, 5)


@pytest.mark.parametrize(
    "bad",
    [np.zeros(3), np.zeros((3, 3), dtype=int), np.zeros((4, 4))[:, ::2], np.zeros((4, 3)).T],
)
def test_arrays_that_cannot_be_changed_in_place_are_refused(bad):
    with pytest.raises(InvalidInputError, match="C-contiguous 2-D"):
        exp_inplace(bad)
