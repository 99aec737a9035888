"""Everything Numba touches: plain functions on arrays, and the threads they run on."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.compiled.first_run import ensure_cache_folder

# Before the first compiled function is defined, which is when Numba looks for a folder.
ensure_cache_folder()

# Options of functions that Python calls, without a wrapper for C that nobody calls.
CALLED: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
# Options of functions that only compiled code calls. Without two wrappers and a file in the cache
# they compile in little more than half the time; those they are part of are kept in the cache.
INSIDE: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# Numba gives a plain 0 a type of its own, for which it compiles what is called once more.
ZERO: Any = np.int64(0)
