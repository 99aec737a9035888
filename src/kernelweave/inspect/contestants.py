"""The estimators that a comparison fits: one problem, one for each solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from kernelweave.combine import get_combination
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.bayesian_classifier import BayesianMKLClassifier
from kernelweave.estimators.bayesian_regressor import BayesianMKLRegressor
from kernelweave.estimators.classifier import MKLClassifier
from kernelweave.estimators.nystrom import NystromMKLClassifier
from kernelweave.estimators.regressor import MKLRegressor
from kernelweave.losses import get_loss
from kernelweave.solvers.base import SOLVERS, Solver
from kernelweave.validation import unknown_name

__all__ = ["Contestant", "check_estimator", "default_estimator", "last_step", "line_up"]

# Other models of the same kernels.
_MODELS = ("bayes", "nystrom")
# Their weights do not come from the problem, so its certificate is not about them.
_FIXED = ("align", "uniform")
# With more different whole numbers than these a target is taken for a quantity.
_MOST_CLASSES = 20

# What another model takes over from the estimator, where both have it.
_FOR_BAYES = ("kernels", "multi_class", "bank", "cache_mb", "n_jobs", "random_state", "max_time")
_FOR_NYSTROM = ("kernels", "C", "normalize", "class_weight", "n_jobs", "random_state")


@dataclass(frozen=True)
class Contestant:
    """One of the solvers: its label in tables, and what was asked for."""

    label: str
    spec: Any

    @property
    def _name(self) -> str:
        return self.spec if isinstance(self.spec, str) else self.spec.name

    @property
    def certified(self) -> bool:
        """Whether its gap is one to the optimum of the problem."""
        return self._name not in (*_MODELS, *_FIXED)

    def estimator(self, template: Any, max_time: float | None) -> Any:
        """Return an unfitted estimator of the problem that `template` states, with this solver."""
        model = clone(template)
        last = last_step(model)
        if max_time is not None:
            last.set_params(max_time=max_time)
        if self.spec not in _MODELS:
            last.set_params(solver=self.spec)
            return model
        other = _bayesian(last) if self.spec == "bayes" else _nystrom(last)
        if last is model:
            return other
        model.steps[-1] = (model.steps[-1][0], other)
        return model

    def remarks(self, template: Any) -> list[str]:
        """Return what of the problem this solver does not share."""
        last = last_step(template)
        if self.spec == "bayes" and getattr(last, "class_weight", None) is not None:
            return [f"{self.label} has no class weights."]
        if self.spec == "nystrom" and get_loss(last.loss).name not in ("hinge", "squared_hinge"):
            return [f"{self.label} takes the squared hinge loss instead of {last.loss!r}."]
        return []


def line_up(solvers: Sequence[Any] | str | Solver) -> list[Contestant]:
    """Check the solvers asked for, and give each a label of its own."""
    asked = [solvers] if isinstance(solvers, str | Solver) else list(solvers)
    if not asked:
        raise InvalidInputError("solvers is empty; give at least one, such as 'silp'.")
    allowed = ["auto", *SOLVERS, *_MODELS]
    out: list[Contestant] = []
    for spec in asked:
        if not isinstance(spec, Solver) and spec not in allowed:
            raise unknown_name("solver", spec, allowed)
        label = spec if isinstance(spec, str) else _short_repr(spec)
        if any(label == one.label for one in out):
            raise InvalidInputError(f"solver {label!r} is given twice; a comparison needs it once.")
        out.append(Contestant(label, spec))
    return out


def _short_repr(solver: Solver) -> str:
    """What differs from the solver's defaults."""
    fields = getattr(solver, "__dataclass_fields__", {})
    changed = [
        f"{name}={value!r}"
        for name, field in fields.items()
        if (value := getattr(solver, name)) != field.default
    ]
    return f"{type(solver).__name__}({', '.join(changed)})"


def default_estimator(y: Any) -> MKLClassifier | MKLRegressor:
    """Return a classifier or a regressor, as the target looks.

    Text, truth values and up to 20 different whole numbers are classes.
    """
    values = np.asarray(y)
    if values.dtype.kind not in "iuf":
        return MKLClassifier()
    known = values[np.isfinite(values)]
    whole = np.array_equal(known, np.round(known))
    return MKLClassifier() if whole and len(np.unique(known)) <= _MOST_CLASSES else MKLRegressor()


def last_step(model: Any) -> Any:
    """Return the last step of a pipeline, and anything else as it is."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def check_estimator(estimator: Any) -> None:
    """Raise unless it states a problem that solvers can be put on."""
    got = type(estimator).__name__
    if isinstance(estimator, type):
        got = f"the class {estimator.__name__}"
    elif _states_a_problem(last_step(estimator)):
        return
    raise InvalidInputError(
        "compare takes an MKLClassifier or MKLRegressor, or a pipeline that ends in one; got "
        f"{got}."
    )


def _states_a_problem(last: Any) -> bool:
    params = set(last.get_params()) if hasattr(last, "get_params") else set()
    return {"kernels", "solver"} <= params and (is_classifier(last) or is_regressor(last))


def _bayesian(last: Any) -> Any:
    _needs_sum("bayes", last)
    kind = BayesianMKLClassifier if is_classifier(last) else BayesianMKLRegressor
    return _shared(kind, last, _FOR_BAYES)


def _nystrom(last: Any) -> Any:
    _needs_sum("nystrom", last)
    if not is_classifier(last):
        raise InvalidInputError("nystrom is a classifier; the target is a quantity.")
    model = _shared(NystromMKLClassifier, last, _FOR_NYSTROM)
    if get_loss(last.loss).name in ("hinge", "squared_hinge"):
        model.set_params(loss=get_loss(last.loss).name)
    return model


def _needs_sum(name: str, last: Any) -> None:
    combination = get_combination(last.combination)
    if combination.name != "sum":
        raise InvalidInputError(f"{name} adds kernels up; the combination is {combination.name!r}.")


def _shared(kind: Any, last: Any, names: tuple[str, ...]) -> Any:
    """Return an estimator of that kind with the parameters that both have."""
    given = last.get_params(deep=False)
    known = kind().get_params(deep=False)
    return kind(**{name: given[name] for name in names if name in given and name in known})
