"""Run the numeric tests as other processors would, and with bounds checking.

``python .ci/simulated_cpus.py`` does what CI does.

The last digits of a result depend on the processor, because OpenBLAS (NumPy's and SciPy's copies of
it), NumPy itself and LLVM choose other instructions on each. All of them can be told to take those
of an older one. ``python .ci/simulated_cpus.py prescott tests/equivalence/test_silp.py`` runs some
tests on one of them; without tests it runs those that CI does.

Chosen so that all of it takes about a quarter of an hour on two cores: half of the numeric tests on
the oldest processor, which has the least in common with today's (no AVX, no fused multiplication
and addition), and a third of them on each of the three others, together all of them. Each starts
with an empty cache of compiled code, so compiling is part of that time.

``bounds`` is no processor but this machine with Numba's bounds checking on: all numeric tests once
more, five minutes on two cores, and an index outside its array is an error instead of a write to
other memory. (It does not find an index of -1 that was not meant to be one.)
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple


class Cpu(NamedTuple):
    """A processor to simulate.

    Attributes
    ----------
    blas : str
        Kernels of OpenBLAS. Wheels for Zen have those of Haswell; OpenBLAS calls Prescott Katmai.
    llvm : str
        The processor Numba compiles for.
    needs : str
        What this machine must have to run them, a name in NumPy's list of features.
    numpy : tuple of str
        Parts of names of NumPy's dispatched features that this processor does not have.
    sample : tuple of int
        Which tests CI runs: (part, of how many parts).
    """

    blas: str
    llvm: str
    needs: str
    numpy: tuple[str, ...]
    sample: tuple[int, int]


AVX512 = ("AVX512", "X86_V4")
AVX2 = ("AVX2", "FMA3", "X86_V3", *AVX512)
CPUS = {
    "prescott": Cpu("Prescott", "generic", "SSE3", AVX2, (0, 2)),
    "haswell": Cpu("Haswell", "haswell", "AVX2", AVX512, (0, 3)),
    "zen": Cpu("Zen", "generic", "AVX2", AVX512, (1, 3)),
    "skylakex": Cpu("SkylakeX", "skylake-avx512", "AVX512F", ("AVX512_ICL", "AVX512_SPR"), (2, 3)),
}
# Compiled code that looks at every index; any machine can run it.
BOUNDS = "bounds"
TESTS = [
    "tests/contracts",
    "tests/equivalence",
    "tests/papers",
    "tests/robustness/test_estimators_hard.py",
    "tests/robustness/test_model_files.py",
    "tests/robustness/test_newton_hard.py",
    "tests/robustness/test_solvers_agree.py",
    "tests/robustness/test_solvers_hard.py",
    "tests/robustness/test_spg_hard.py",
    "tests/robustness/test_spicy_hard.py",
    "tests/robustness/test_true_certificates.py",
]
# Asked of a process of its own: what each library really uses.
REPORT = """
import numba, numpy, scipy.linalg, threadpoolctl
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
blas = [f"{i['prefix']} {i['architecture']}" for i in threadpoolctl.threadpool_info()
        if "architecture" in i]
total = numba.njit("f8(f8[::1])", fastmath=True)(lambda x: (x * x).sum())
text = "".join(total.inspect_asm().values())
used = [name for name in ("xmm", "ymm", "zmm", "vfmadd") if name in text]
print("BLAS:", ", ".join(blas))
print("NumPy:", " ".join(name for name in __cpu_dispatch__ if __cpu_features__[name]) or "baseline")
print("Numba:", numba.config.CPU_NAME, "with", " ".join(used))
"""


def numpy_features() -> tuple[dict[str, bool], list[str]]:
    """Return what this machine has, and what NumPy has code for and chooses when it starts."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return __cpu_features__, __cpu_dispatch__


def environment(cpu: Cpu, cache: str) -> dict[str, str]:
    """Return the variables that make all libraries use the instructions of that processor."""
    features, dispatched = numpy_features()
    off = [name for name in dispatched if features[name] and name.startswith(cpu.numpy)]
    return {
        "OPENBLAS_CORETYPE": cpu.blas,
        "NPY_DISABLE_CPU_FEATURES": " ".join(off),
        "NUMBA_CPU_NAME": cpu.llvm,
        # Without this Numba adds the features of the machine to those of the processor.
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": cache,
    }


def missing(name: str) -> str:
    """Return what this machine lacks to run that; "" if it can."""
    if name == BOUNDS:
        return ""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "instructions of x86"
    return "" if numpy_features()[0].get(CPUS[name].needs) else CPUS[name].needs


def run(name: str, tests: list[str]) -> bool:
    """Run tests on one simulated processor, or with bounds checking; whether they passed."""
    lacks = missing(name)
    if lacks:
        print(f"--- {name}: this machine has no {lacks}, so it is left out", flush=True)
        return True
    started = time.monotonic()
    part, parts = (0, 1) if name == BOUNDS else CPUS[name].sample
    chosen = tests or [*TESTS, f"--part={part}/{parts}"]
    with tempfile.TemporaryDirectory(prefix=f"kernelweave-{name}-") as cache:
        variables = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
        if name != BOUNDS:
            variables = environment(CPUS[name], cache)
        print(f"--- {name}:", " ".join(f"{k}={v!r}" for k, v in variables.items()), flush=True)
        everything = os.environ | variables
        subprocess.run([sys.executable, "-c", REPORT], env=everything, check=True)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", *chosen], env=everything)
    print(f"--- {name}: {time.monotonic() - started:.0f} s", flush=True)
    return done.returncode == 0


def main(name: str = "", *tests: str) -> int:
    names = [*CPUS, BOUNDS]
    if name and name not in names:
        print(f"unknown processor {name!r}; there are {', '.join(names)}")
        return 2
    failed = [each for each in ([name] if name else names) if not run(each, list(tests))]
    if failed:
        print(f"tests failed on: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
