"""Names of types in files: which of them may be made on load, and where those live that moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

# Where types live now that files know under an older name: "old.module.Name": "new.module.Name".
# Whoever moves or renames a class that `stored_name` does not find a public name for adds a line.
_OLD, _BAYES = "kernelweave.solvers.bemkl", "kernelweave.bayes"
MOVED = {
    "kernelweave.bank.DaskBank": "kernelweave.cluster.DaskBank",
    "kernelweave.kernels.BatchSet": "kernelweave.operators.GaussianOperator",
    "kernelweave.kernels.CompositeSet": "kernelweave.operators.StackedOperator",
    "kernelweave.kernels.DistanceSet": "kernelweave.operators.DistanceOperator",
    "kernelweave.kernels.KernelSet": "kernelweave.operators.ComputedOperator",
    "kernelweave.estimators.nystrom_map.NystromMap": "kernelweave.estimators.nystrom.NystromMap",
    "kernelweave.kernels.families._Default": "kernelweave.kernels.families._Grid",
    "kernelweave.kernels.batch.BatchNames": "kernelweave.kernels.names.BatchNames",
    "kernelweave.kernels.batch.StackedNames": "kernelweave.kernels.names.StackedNames",
    f"{_OLD}.BayesRecord": f"{_BAYES}.BayesRecord",
    f"{_OLD}.Posterior": f"{_BAYES}.Posterior",
    f"{_OLD}.covariances.FullCovariance": f"{_BAYES}.matrices.FullMatrix",
    f"{_OLD}.covariances.ThinCovariance": f"{_BAYES}.matrices.ThinMatrix",
    f"{_OLD}.matrices.FullMatrix": f"{_BAYES}.matrices.FullMatrix",
    f"{_OLD}.matrices.ThinMatrix": f"{_BAYES}.matrices.ThinMatrix",
    f"{_OLD}.sample_weights.SampleCovariance": f"{_BAYES}.factors.SampleCovariance",
    f"{_OLD}.squares.FullSquares": f"{_BAYES}.matrices.FullMatrix",
    f"{_OLD}.squares.ThinSquares": f"{_BAYES}.matrices.ThinMatrix",
}

# Rooms whose classes models consist of, and what in them is no part of a model: checkpoints write
# files, and workers of a cluster talk to it.
_ROOMS = {
    "bank",
    "bayes",
    "cluster",
    "combine",
    "estimators",
    "kernels",
    "losses",
    "operators",
    "regularizers",
    "solvers",
    "tables",
}
_KEPT_OUT = re.compile(r"kernelweave\.(solvers\.checkpoint|cluster\.(?!plan$))")
# Nodes that stand for something to be called later. No model of ours has them, and they were the
# weak places of older versions of skops.
_CALLS = ("MethodNode", "OperatorFuncNode", "PartialNode", "RandomGeneratorNode")
_MODULE = re.compile(r"kernelweave(\.[a-z]\w*)*")


@cache
def stored_name(cls: type[Any]) -> tuple[str, str]:
    """Return the module and the name under which files know a class or function.

    Ours go by the shortest public name they have, which stays when files are rearranged.
    """
    module, name = cls.__module__, cls.__name__
    if module.partition(".")[0] == "kernelweave":
        parts = module.split(".")
        for depth in range(1, len(parts)):
            home = ".".join(parts[:depth])
            if getattr(import_module(home), name, None) is cls:
                return home, name
    return module, name


@cache
def own_class(module: str, name: str) -> type[Any] | None:
    """Return the class of kernelweave that a file means, if models may hold it; else None.

    Nothing but a class that kernelweave itself defines will do: no function, nothing that a module
    of ours has only imported.
    """
    if not _MODULE.fullmatch(module) or not name.isidentifier():
        return None
    room = module.split(".")[1:2]
    if room and room[0] not in _ROOMS:
        return None
    try:
        found = getattr(import_module(module), name, None)
    except ImportError:
        return None
    if not isinstance(found, type) or found.__qualname__ != name:
        return None
    home = found.__module__
    if home.split(".")[0] != "kernelweave" or home.split(".")[1] not in _ROOMS:
        return None
    if _KEPT_OUT.match(home) or (module, name) not in (stored_name(found), (home, name)):
        return None
    return found


@cache
def _of_others() -> dict[str, frozenset[str]]:
    """Types of other packages that models hold and skops does not know, by the kind of node.

    They only hold values, or are functions that only compute.
    """
    import sklearn.calibration as calibration
    import sklearn.metrics._scorer as scorers
    import sklearn.model_selection as splits
    from sklearn.compose import make_column_selector
    from sklearn.metrics import get_scorer, get_scorer_names
    from sklearn.utils import _metadata_requests as requests

    objects = {make_column_selector, requests.MetadataRequest, requests.MethodMetadataRequest}
    for found in vars(splits).values():
        if isinstance(found, type) and hasattr(found, "split") and hasattr(found, "get_n_splits"):
            objects.add(found)
    objects |= set(_there(calibration, "_CalibratedClassifier", "_SigmoidCalibration"))
    objects |= set(_there(calibration, "_TemperatureScaling"))
    objects |= set(_there(scorers, "_Scorer", "_PassthroughScorer", "_MultimetricScorer"))
    measures = {get_scorer(name)._score_func for name in get_scorer_names()}
    sparse = {
        f"scipy.sparse._{kind}.{kind}_{what}"
        for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
        for what in ("array", "matrix")
    }
    full = "{0.__module__}.{0.__name__}".format
    return {
        "ObjectNode": frozenset(map(full, objects)),
        "FunctionNode": frozenset(map(full, measures)),
        "TypeNode": frozenset(
            {"builtins.object", "numpy.number", "numpy.integer", "numpy.floating", "numpy.generic"}
        ),
        "ConstructorFromReduceNode": frozenset({"builtins.range", "builtins.frozenset"}),
        "DictNode": frozenset({"sklearn.utils._bunch.Bunch"}),
        "DTypeNode": frozenset({"numpy.dtype"}),
        "SparseMatrixNode": frozenset(sparse),
    }


def _there(module: Any, *names: str) -> Iterator[Any]:
    """Private names of scikit-learn, as far as this version has them."""
    return (getattr(module, name) for name in names if hasattr(module, name))


def trusted_names(
    nodes: Iterable[dict[str, Any]], by_user: frozenset[str]
) -> tuple[set[str], set[str]]:
    """Sort the types of a file into those that are ours to trust and those to be refused.

    What is in neither is for skops to judge. skops trusts a name whatever it is used for; here a
    name is good only for the kind of node that models have it in, so that nothing of ours is ever
    called with arguments from the file.
    """
    others = _of_others()
    special = frozenset().union(*others.values())
    trusted: set[str] = set()
    refused: set[str] = set()
    for node in nodes:
        loader, module, name = node["__loader__"], node["__module__"], node["__class__"]
        full = f"{module}.{name}"
        if loader == "CachedNode" or full in by_user:
            continue
        if loader in _CALLS:
            refused.add(full)
        elif module.partition(".")[0] == "kernelweave":
            cls = own_class(module, name)
            fits = loader == "ObjectNode" or (
                loader == "TupleNode" and cls is not None and issubclass(cls, tuple)
            )
            (trusted if cls is not None and fits else refused).add(full)
        elif full in special:
            (trusted if full in others.get(loader, ()) else refused).add(full)
    return trusted - refused, refused
