"""kernelweave: learn which kernels to trust.

From many similarity measures (kernels) on the same samples, learn one weighted combination and
the predictor on top of it, with a certificate of optimality.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelweave.estimators.bayesian_classifier import BayesianMKLClassifier
    from kernelweave.estimators.bayesian_regressor import BayesianMKLRegressor
    from kernelweave.estimators.classifier import MKLClassifier
    from kernelweave.estimators.cv import MKLClassifierCV, MKLRegressorCV
    from kernelweave.estimators.nystrom import NystromMKLClassifier
    from kernelweave.estimators.one_class import MKLOneClass
    from kernelweave.estimators.regressor import MKLRegressor
    from kernelweave.inspect.comparison import compare
    from kernelweave.inspect.stability import stability
    from kernelweave.kernels.precomputed import sample_ids
    from kernelweave.model_files import load, save
    from kernelweave.reading import read_sequences, read_table
    from kernelweave.solvers.checkpoint import Checkpoint

__version__ = "0.1.0"

__all__ = [
    "BayesianMKLClassifier",
    "BayesianMKLRegressor",
    "Checkpoint",
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "NystromMKLClassifier",
    "__version__",
    "compare",
    "load",
    "read_sequences",
    "read_table",
    "sample_ids",
    "save",
    "stability",
]

# Names are imported on first use, so that `import kernelweave` and the command line start fast.
_HOMES = {
    "BayesianMKLClassifier": "kernelweave.estimators.bayesian_classifier",
    "BayesianMKLRegressor": "kernelweave.estimators.bayesian_regressor",
    "Checkpoint": "kernelweave.solvers.checkpoint",
    "MKLClassifier": "kernelweave.estimators.classifier",
    "MKLClassifierCV": "kernelweave.estimators.cv",
    "MKLOneClass": "kernelweave.estimators.one_class",
    "MKLRegressor": "kernelweave.estimators.regressor",
    "MKLRegressorCV": "kernelweave.estimators.cv",
    "NystromMKLClassifier": "kernelweave.estimators.nystrom",
    "compare": "kernelweave.inspect.comparison",
    "load": "kernelweave.model_files",
    "read_sequences": "kernelweave.reading",
    "read_table": "kernelweave.reading",
    "sample_ids": "kernelweave.kernels.precomputed",
    "save": "kernelweave.model_files",
    "stability": "kernelweave.inspect.stability",
}
_ROOMS = (
    "bank",
    "combine",
    "describe",
    "estimators",
    "inspect",
    "kernels",
    "losses",
    "model_files",
    "plot",
    "regularizers",
    "report",
    "solvers",
    "tables",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"kernelweave.{name}")
    raise AttributeError(f"module 'kernelweave' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
