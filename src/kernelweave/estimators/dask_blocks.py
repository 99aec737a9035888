"""Prediction on Dask arrays and DataFrames, block by block, where the blocks are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave.errors import InvalidInputError

__all__ = ["is_collection", "refuse_collection", "wrap_predictions"]

# What an estimator says of every row by itself.
_ROWWISE = ("decision_function", "predict", "predict_proba", "_predict_proba", "score_samples")


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array or DataFrame.

    Examples
    --------
    >>> is_collection([[1.0]])
    False
    """
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def refuse_collection(X: Any) -> None:
    """Raise where samples have to be in memory."""
    if is_collection(X):
        raise InvalidInputError(
            f"X is a Dask {type(X).__name__}, which predict, decision_function and predict_proba "
            "take block by block; here samples in memory are needed: X.compute(). To fit on a "
            "cluster, pass them with bank=DaskBank(client)."
        )


def wrap_predictions(cls: type) -> None:
    """Let the prediction methods that a class defines itself take Dask collections."""
    for name in _ROWWISE:
        method = cls.__dict__.get(name)
        if callable(method):
            setattr(cls, name, _in_blocks(method))


def _in_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def predict(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        check_is_fitted(self)
        return _lazily(self, X, functools.partial(_call, method.__name__, args, kwargs))

    return predict


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], model: Any, block: Any) -> Any:
    return getattr(model, name)(block, *args, **kwargs)


def _lazily(model: Any, X: Any, call: Callable[[Any, Any], Any]) -> Any:
    """Return what `call(model, block)` gives for every block of X as Dask arrays."""
    import dask.array as da
    from dask import delayed

    # One training row says what comes out, so that nothing of X has to be looked at.
    like = call(model, model._kernel_set.samples.take([0]).native)
    several = isinstance(like, tuple)
    likes = like if several else (like,)
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
        sizes, blocks = X.chunks[0], X.to_delayed().ravel()
    else:
        blocks = X.to_delayed()
        sizes = (np.nan,) * len(blocks)
    run = delayed(functools.partial(_safely, call, likes), pure=False)
    # The model travels once, not with every block.
    here = delayed(model, traverse=False)
    done = [run(here, block) for block in blocks]
    outs = []
    for place, each in enumerate(likes):
        parts = [
            da.from_delayed(result[place], (size, *each.shape[1:]), dtype=each.dtype)
            for result, size in zip(done, sizes, strict=True)
        ]
        outs.append(da.concatenate(parts, allow_unknown_chunksizes=True))
    return tuple(outs) if several else outs[0]


def _safely(
    call: Callable[[Any, Any], Any], likes: tuple[Any, ...], model: Any, block: Any
) -> tuple[Any, ...]:
    """Predict one block; DataFrames may have empty ones, which no estimator takes."""
    if not block.shape[0]:
        return tuple(np.empty((0, *each.shape[1:]), each.dtype) for each in likes)
    answer = call(model, block)
    return answer if isinstance(answer, tuple) else (answer,)
