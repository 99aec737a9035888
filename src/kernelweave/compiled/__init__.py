"""Everything Numba touches: plain functions on arrays, and the threads they run on."""

from __future__ import annotations

from kernelweave.compiled.first_run import ensure_cache_folder

# Before the first compiled function is defined, which is when Numba looks for a folder.
ensure_cache_folder()
