"""Is a given matrix a kernel? Symmetry and definiteness, cheap for large matrices; repairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

__all__ = ["Spectrum", "asymmetry", "bounds_spectrum", "nearest_psd", "symmetrized"]

# Up to this size all eigenvalues are computed; beyond it a few telling ones.
_EXACT = 1000
_BLOCK = 256
_SUBMATRICES, _SUBMATRIX_SIZE = 3, 300
_LANCZOS_STEPS = 6


def asymmetry(K: NDArray[Any]) -> float:
    """Return the largest |K_ij - K_ji|, block by block.

    Examples
    --------
    >>> asymmetry(np.array([[1.0, 0.5], [0.25, 1.0]]))
    0.25
    """
    worst = 0.0
    for i in range(0, len(K), _BLOCK):
        for j in range(0, i + 1, _BLOCK):
            upper = K[j : j + _BLOCK, i : i + _BLOCK]
            step = K[i : i + _BLOCK, j : j + _BLOCK] - upper.T
            worst = max(worst, float(np.abs(step).max()))
    return worst


def symmetrized(K: NDArray[Any]) -> NDArray[Any]:
    """Return (K + K') / 2 as a new array.

    Examples
    --------
    >>> symmetrized(np.array([[1.0, 0.5], [0.25, 1.0]]))
    array([[1.   , 0.375],
           [0.375, 1.   ]])
    """
    out = K + K.T
    out *= K.dtype.type(0.5)
    return out


@dataclass(frozen=True)
class Spectrum:
    """An upper bound on the smallest and a lower bound on the largest eigenvalue.

    Both are exact if `exact`; otherwise a negative `smallest` still proves that the matrix is not
    positive semidefinite, because it is attained on some vector.
    """

    smallest: float
    largest: float
    exact: bool


def bounds_spectrum(K: NDArray[Any]) -> Spectrum:
    """Look for negative eigenvalues of a symmetric matrix.

    All eigenvalues up to 1,000 rows. Beyond that the most negative of: the smallest eigenvalues
    of the 2 x 2 minors, of some principal submatrices (fixed seed) and of a short Lanczos process.

    Examples
    --------
    >>> bounds_spectrum(np.array([[1.0, 2.0], [2.0, 1.0]]))
    Spectrum(smallest=-1.0, largest=3.0, exact=True)
    """
    n = len(K)
    if n <= _EXACT:
        values = np.linalg.eigvalsh(K.astype(np.float64, copy=False))
        return Spectrum(round_off(values[0]), round_off(values[-1]), True)
    rng = np.random.default_rng(0)
    smallest, largest = _lanczos(K, rng.standard_normal(n))
    smallest = min(smallest, _smallest_minor(K))
    for _ in range(_SUBMATRICES):
        part = np.sort(rng.choice(n, _SUBMATRIX_SIZE, replace=False))
        values = np.linalg.eigvalsh(K[np.ix_(part, part)].astype(np.float64, copy=False))
        smallest, largest = min(smallest, float(values[0])), max(largest, float(values[-1]))
    return Spectrum(smallest, largest, False)


def round_off(value: float) -> float:
    """Return a float with the last two bits of rounding taken off, for readable messages.

    Examples
    --------
    >>> round_off(2.9999999999999996)
    3.0
    """
    return float(f"{value:.14g}")


def _smallest_minor(K: NDArray[Any]) -> float:
    """Smallest eigenvalue of any [[K_ii, K_ij], [K_ij, K_jj]], or 0 if none is negative."""
    diag = K.diagonal().astype(np.float64)
    worst = min(0.0, float(diag.min()))
    roots = np.sqrt(np.maximum(diag, 0.0)).astype(K.dtype)
    for i in range(0, len(K), _BLOCK):
        part = np.abs(K[i : i + _BLOCK])
        part -= roots[i : i + _BLOCK, None] * roots
        # The eigenvalue is at least -(|K_ij| - sqrt(K_ii K_jj)); exact where K_ii = K_jj.
        excess = float(part.max())
        if excess > 0:
            a, b = divmod(int(part.argmax()), len(K))
            minor = K[np.ix_([i + a, b], [i + a, b])].astype(np.float64)
            worst = min(worst, float(np.linalg.eigvalsh(minor)[0]))
    return worst


def _lanczos(K: NDArray[Any], start: NDArray[np.float64]) -> tuple[float, float]:
    """Extreme Ritz values after a few steps; each is attained by a vector, so each is a bound."""
    basis = np.zeros((_LANCZOS_STEPS, len(K)), dtype=np.float64)
    image = np.zeros_like(basis)
    v = start
    for step in range(_LANCZOS_STEPS):
        v = v - basis[:step].T @ (basis[:step] @ v)
        norm = float(np.linalg.norm(v))
        if norm <= 1e-12 * len(K):
            basis, image = basis[:step], image[:step]
            break
        basis[step] = v / norm
        image[step] = K @ basis[step].astype(K.dtype, copy=False)
        v = image[step]
    if not len(basis):
        return 0.0, 0.0
    ritz = np.linalg.eigvalsh(basis @ image.T)
    return float(ritz[0]), float(ritz[-1])


def nearest_psd(K: Any, method: str = "clip") -> NDArray[np.float64]:
    r"""Return a positive semidefinite matrix near a symmetric similarity matrix.

    With the eigenvalues :math:`\lambda_i` and eigenvectors :math:`u_i` of (K + K') / 2 the result
    is :math:`\sum_i \lambda'_i u_i u_i^\top`.

    Parameters
    ----------
    K : array of shape (n, n)
        A real, finite matrix, such as alignment scores or a sigmoid "kernel".
    method : {"clip", "flip", "shift"}, default="clip"
        ``"clip"``: :math:`\lambda' = \max(\lambda, 0)`, the nearest matrix in the Frobenius norm;
        ``"flip"``: :math:`\lambda' = |\lambda|`, keeps what the negative part has to say;
        ``"shift"``: :math:`\lambda' = \lambda - \min(\lambda_{min}, 0)`, changes only the diagonal.

    Examples
    --------
    >>> K = np.array([[1.0, 2.0], [2.0, 1.0]])
    >>> nearest_psd(K)
    array([[1.5, 1.5],
           [1.5, 1.5]])
    >>> nearest_psd(K, "shift")
    array([[2., 2.],
           [2., 2.]])
    """
    A = np.asarray(K, dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInputError(f"K must be a square matrix; got shape {A.shape}.")
    if not np.isfinite(A).all():
        raise InvalidInputError("K must be finite; got NaN or infinity.")
    if method not in ("clip", "flip", "shift"):
        raise unknown_name("method", method, ("clip", "flip", "shift"))
    A = symmetrized(A)
    if method == "shift":
        lowest = float(np.linalg.eigvalsh(A)[0])
        A[np.diag_indices_from(A)] -= min(lowest, 0.0)
        return A
    values, vectors = np.linalg.eigh(A)
    kept = np.maximum(values, 0.0) if method == "clip" else np.abs(values)
    out = (vectors * kept) @ vectors.T
    return symmetrized(out)
