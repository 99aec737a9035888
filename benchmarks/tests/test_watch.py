"""Every function of the library that a benchmark looks into is where it looks for it."""

import importlib
from pkgutil import walk_packages

import numpy as np
import pytest

import benchmarks
from benchmarks.limit.counts import COUNTS
from benchmarks.papers import silp_solvers, spicy_problems, tuned_constants
from benchmarks.peers import mkl_fit
from benchmarks.watch import missing, seconds_in, watching
from kernelweave.operators import DenseOperator


def places():
    yield from (place for kind in COUNTS.values() for place in kind)
    yield from (place for kind in silp_solvers.PROGRAMS.values() for place in kind)
    yield from (place for kind in mkl_fit.CERTIFICATES.values() for place in kind)
    yield from spicy_problems.PRODUCTS


def test_every_module_finds_what_it_imports_of_the_library():
    gone = {}
    for module in walk_packages(benchmarks.__path__, "benchmarks."):
        if ".tests" in module.name:
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:  # peers are not installed here
            if str(error.name).startswith(("kernelweave", "benchmarks")):
                gone[module.name] = str(error)
    assert not gone


def test_every_place_is_there():
    assert missing(places()) == []


def test_messages_of_a_cluster_are_there():
    supersteps = pytest.importorskip("benchmarks.growth.dask_supersteps")
    assert missing(supersteps.MESSAGES) == []


@pytest.mark.parametrize("constant", tuned_constants.VALUES)
def test_every_tuned_constant_is_there(constant):
    module, name = tuned_constants.place_of(constant)
    assert getattr(module, name) in tuned_constants.VALUES[constant]


def test_places_that_are_gone_are_all_named():
    gone = {"DenseOperator.no_such": None, "bundle:nothing": None, "Nobody.apply": None}
    message = r"DenseOperator.no_such, bundle:nothing, Nobody.apply"
    with pytest.raises(LookupError, match=message), watching(gone):
        pass


def test_watching_ends_with_the_block():
    before = DenseOperator.apply
    with watching({"DenseOperator.apply": lambda done: lambda *args: done(*args)}):
        assert DenseOperator.apply is not before
    assert DenseOperator.apply is before


def test_seconds_of_calls_inside_calls_count_once():
    bank = DenseOperator([np.eye(2)])
    ticks = iter([0.0, 1.0, 5.0])
    kinds = {"products": ["DenseOperator.quad", "DenseOperator.apply"], "rest": []}
    with seconds_in(kinds, lambda: next(ticks)) as spent:
        bank.apply(np.ones(2))
    assert spent == {"products": 1.0, "rest": 0.0}
