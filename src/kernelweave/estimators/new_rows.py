"""New samples for a model with precomputed kernels: matrices that grow after the fit."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.kernels import Kernel, Precomputed
from kernelweave.validation import unknown_name


def precomputed_kernels(model: Any) -> dict[str, Precomputed]:
    """Return the precomputed kernels that a fitted estimator knows, by name."""
    kernels = getattr(model._kernel_set, "kernels", ())
    found = (kernel.core if isinstance(kernel, Kernel) else kernel for kernel in kernels)
    return {kernel.name: kernel for kernel in found if isinstance(kernel, Precomputed)}


def with_new_rows(model: KernelEstimator, matrices: Mapping[str, Array]) -> KernelEstimator:
    """Return a copy of a fitted estimator whose precomputed kernels also know new samples.

    Parameters
    ----------
    model : fitted estimator
        With precomputed kernels over n samples.
    matrices : mapping from names to arrays of shape (q, n)
        For each precomputed kernel, its values between the q new samples and the n old ones. The
        new samples have the ids n, ..., n + q - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLClassifier, sample_ids
    >>> from kernelweave.kernels import from_matrices
    >>> x = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> model = MKLClassifier(from_matrices([np.outer(x, x)], names=["products"]))
    >>> model = model.fit(sample_ids(4), x > 0)
    >>> new = with_new_rows(model, {"products": np.outer([-5.0, 3.0], x)})
    >>> new.predict([[4], [5]])
    array([False,  True])
    """
    known = precomputed_kernels(model)
    for name in matrices:
        if name not in known:
            raise unknown_name("precomputed kernel", name, known)
    used = model.required_columns_ if hasattr(model, "required_columns_") else known
    missing = [name for name in known if name in used and name not in matrices]
    if missing:
        raise InvalidInputError(
            f"the model needs precomputed kernel {missing[0]!r} between the new samples and those "
            "of the fit; no matrix was given for it."
        )
    normalize = model.normalize
    if "diagonal" in ((normalize,) if isinstance(normalize, str) else tuple(normalize or ())):
        raise InvalidInputError(
            "the model divides kernels by their diagonal (normalize='diagonal'), which the values "
            "between new and old samples do not have. Fit with a matrix over all samples, the new "
            "ones among them."
        )
    sizes = {name: np.shape(rows) for name, rows in matrices.items()}
    if len({shape[0] for shape in sizes.values()}) > 1:
        raise InvalidInputError(f"all matrices must be of the same new samples; got {sizes}.")
    twin = copy.deepcopy(model)
    for name, kernel in precomputed_kernels(twin).items():
        if name in matrices:
            kernel._checked = (_grown(kernel._matrix, np.asarray(matrices[name]), name), None)
    return twin


def _grown(K: Array, rows: Array, name: str) -> Array:
    """Return K with new rows and columns; nothing is known between two new samples."""
    n, q = len(K), len(rows)
    if rows.shape != (q, n):
        raise InvalidInputError(
            f"kernel {name!r} is over {n} samples, so its values for new samples must have {n} "
            f"columns; got shape {rows.shape}."
        )
    out = np.full((n + q, n + q), np.nan, dtype=K.dtype)
    out[:n, :n] = K
    out[n:, :n] = rows
    out[:n, n:] = rows.T
    return out
