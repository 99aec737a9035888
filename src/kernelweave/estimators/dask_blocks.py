"""Prediction on Dask arrays and DataFrames, block by block, where the blocks are."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted


def predict_in_blocks(
    model: Any, X: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what the method of that name gives for every block of X, as Dask arrays."""
    import dask.array as da
    from dask import delayed

    check_is_fitted(model)
    # One training row says what comes out, so that nothing of X has to be looked at.
    like = getattr(model, name)(model._kernel_set.samples.take([0]).native, *args, **kwargs)
    several = isinstance(like, tuple)
    likes = like if several else (like,)
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
        sizes, blocks = X.chunks[0], X.to_delayed().ravel()
    else:
        blocks = X.to_delayed()
        sizes = (np.nan,) * len(blocks)
    run = delayed(partial(_predict, name, args, kwargs, likes), pure=False)
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


def _predict(
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    likes: tuple[Any, ...],
    model: Any,
    block: Any,
) -> tuple[Any, ...]:
    """Predict one block; DataFrames may have empty ones, which no estimator takes."""
    if not block.shape[0]:
        return tuple(np.empty((0, *each.shape[1:]), each.dtype) for each in likes)
    answer = getattr(model, name)(block, *args, **kwargs)
    return answer if isinstance(answer, tuple) else (answer,)
