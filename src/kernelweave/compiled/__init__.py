"""Everything Numba touches: plain functions on arrays, and the threads they run on."""
