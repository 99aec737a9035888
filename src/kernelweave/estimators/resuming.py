"""From `warm_start_from` to what a fit goes on with, and from a fit to its checkpoints."""

from __future__ import annotations

import os
from typing import Any

from sklearn.base import BaseEstimator

from kernelweave.errors import InvalidInputError
from kernelweave.operators import KernelOperator
from kernelweave.solvers import Checkpoint, Limits
from kernelweave.solvers.checkpoint import Header, Saved, Session, names_digest, read

__all__ = ["begin_session", "kind_of", "source_of"]


def kind_of(estimator: Any) -> str:
    """Name of the estimator of this library that it is, or is derived from."""
    return _own_class(estimator).__name__


def _own_class(estimator: Any) -> type[Any]:
    return next(c for c in type(estimator).__mro__ if c.__module__.startswith("kernelweave."))


def source_of(estimator: Any, **wanted: Any) -> Saved | None:
    """Read what `estimator.warm_start_from` names, and refuse what cannot be gone on with.

    `wanted` are entries of the header that are known before the kernels are. A fitted estimator
    has no numbers yet: what it has to say may depend on the kernels.
    """
    given = estimator.warm_start_from
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        saved = read(given)
    else:
        saved = Saved(*_of_fitted(estimator, given), {})
    saved.check(kind=kind_of(estimator), **wanted)
    return saved


def _of_fitted(estimator: Any, given: Any) -> tuple[str, Header]:
    own = _own_class(estimator)
    if not isinstance(given, own):
        what = f"a {type(given).__name__}" if isinstance(given, BaseEstimator) else repr(given)
        raise InvalidInputError(
            f"warm_start_from must be the path of a checkpoint, a fitted {own.__name__} or None; "
            f"got {what}."
        )
    if not given.__sklearn_is_fitted__():
        raise InvalidInputError(
            f"warm_start_from: this {type(given).__name__} is not fitted. Fit it first, or give "
            "the path of a checkpoint or None."
        )
    names = given.kernel_names_
    header = Header(
        own.__name__,
        len(given.intercept_),
        1 if given.weights_.ndim == 1 else len(given.weights_),
        given._kernel_set.n,
        len(names),
        names_digest(names),
    )
    return f"the {type(given).__name__} given", header


def begin_session(
    estimator: Any,
    limits: Limits,
    kernel_set: KernelOperator,
    source: Saved | None,
    n_tasks: int,
    n_groups: int,
) -> Session:
    """Begin the checkpoints of a fit; raises if `source` was fitted with other kernels."""
    asked = source is not None or any(isinstance(c, Checkpoint) for c in limits.callbacks)
    digest = names_digest(kernel_set.names) if asked else ""
    if source is not None:
        source.check(m=kernel_set.m, kernels=digest)
    header = Header(kind_of(estimator), n_tasks, n_groups, kernel_set.n, kernel_set.m, digest)
    return Session(limits.callbacks, header, None if source is None else source.groups)
