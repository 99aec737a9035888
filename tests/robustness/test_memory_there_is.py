"""How much memory there is: the machine's, the process's own limits, and those of its groups."""

from __future__ import annotations

import sys

import pytest

from kernelweave import memory
from kernelweave.errors import MemoryBudgetError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write the files that say what there is: a machine with 8 GB free."""
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))

    write(proc__meminfo="MemTotal: 16000000 kB\nMemAvailable: 7812500 kB\n")
    return lambda files: write(**files)


def test_the_machine_alone(machine):
    assert memory.available_bytes() == 8e9


@pytest.mark.parametrize("folder", ["groups__job__step", "groups__job", "groups"])
def test_groups_of_version_2(machine, folder):
    machine({"proc__self__cgroup": "0::/job/step\n"})
    machine({f"{folder}__memory.max": "3000000000\n", f"{folder}__memory.current": "1000000000\n"})
    assert memory.available_bytes() == 2e9
    # What is only cached gives way.
    machine({f"{folder}__memory.stat": "anon 5\ninactive_file 500000000\n"})
    assert memory.available_bytes() == 2.5e9
    machine({f"{folder}__memory.max": "max\n"})
    assert memory.available_bytes() == 8e9


@pytest.mark.parametrize("folder", ["groups__memory__docker__x", "groups__memory"])
def test_groups_of_version_1(machine, folder):
    machine({"proc__self__cgroup": "5:devices:/\n4:cpu,memory:/docker/x\n0::/\n"})
    machine(
        {
            f"{folder}__memory.limit_in_bytes": "3000000000\n",
            f"{folder}__memory.usage_in_bytes": "1000000000\n",
            f"{folder}__memory.stat": "inactive_file 1\ntotal_inactive_file 200000000\n",
        }
    )
    assert memory.available_bytes() == 2.2e9


def test_a_group_that_is_full_leaves_nothing(machine):
    machine({"proc__self__cgroup": "0::/\n"})
    machine({"groups__memory.max": "1000", "groups__memory.current": "2000"})
    assert memory.available_bytes() == 0.0


@pytest.mark.parametrize(("limit", "use"), [("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")])
def test_limits_of_the_process(machine, monkeypatch, limit, use):
    import resource

    machine({"proc__self__status": f"Name: python\n{use}:  1000000 kB\n"})
    none = resource.RLIM_INFINITY
    soft = {getattr(resource, limit): 3_024_000_000}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft.get(which, none), none))
    assert memory.available_bytes() == 2e9


def test_a_system_that_says_only_how_much_it_has(machine, monkeypatch):
    """Half of it may be free."""
    machine({"proc__meminfo": ""})
    sizes = {"SC_PHYS_PAGES": 4_000_000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(memory.os, "sysconf", sizes.__getitem__)
    assert memory.available_bytes() == 4_000_000 * 4096 / 2


def test_sizes_and_budgets():
    sizes = memory.square_side(8e6), memory.square_side(32e6, copies=4), memory.square_side(10)
    assert sizes == (1000, 1000, 256)
    # Cached rows and the matrices of solvers share a budget.
    assert memory.rows_and_work(900.0, wanted=2000.0) == (600.0, 225.0)
    assert memory.rows_and_work(900.0, wanted=100.0) == (100.0, 600.0)
    assert (memory.cache_bytes(1), memory.format_bytes(3.2e9)) == (1e6, "3.2 GB")


def test_what_does_not_fit_is_refused():
    with pytest.raises(MemoryBudgetError, match=r"a dense bank need 1e\+03 TB but"):
        memory.require_bytes(1e15, "a dense bank")
    error = memory.out_of_memory("a fit", MemoryError("Unable to allocate 3.1 GiB"))
    assert str(error).startswith("a fit ran out of memory: Unable to allocate 3.1 GiB.")
