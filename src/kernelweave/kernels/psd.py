"""Is a given matrix a kernel? Symmetry and definiteness, cheap for large matrices; repairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

from kernelweave.compiled.blocks import TILE
from kernelweave.compiled.matrix_checks import probe_rows, scan_rows
from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

__all__ = ["Spectrum", "bounds_spectrum", "nearest_psd", "scan", "symmetrized"]

# Up to this size all of a matrix is looked at, whose Cholesky factor takes some ten milliseconds;
# beyond it a submatrix of so many rows, and 2 x 2 minors in some rows more.
_EXACT, _LARGE, _MINOR_ROWS = 1000, 500, 64
# Of the largest diagonal entry: eigenvalues as far below zero as this are left alone anyway. Those
# of a submatrix are compared with its trace, a bound on its largest eigenvalue.
_ROUNDING = {np.dtype(np.float64): (5e-11, 1e-11), np.dtype(np.float32): (5e-7, 1e-7)}
# Rows that a thread multiplies with a vector at a time.
_PROBE_ROWS = 512


def scan(K: NDArray[Any]) -> tuple[float, bool]:
    """Return the largest |K_ij - K_ji| and whether all entries are finite.

    A large matrix is probed first: for a Gaussian vector v, K v - K'v is NaN where an entry is not
    finite, and shows every asymmetry above rounding with certainty for all practical purposes.
    Only if it shows anything are all pairs of entries compared.
    """
    if len(K) > _EXACT and _looks_symmetric(K):
        return 0.0, True
    found: list[tuple[float, float]] = []
    map_blocks(lambda i, j: found.append(scan_rows(K, i, j)), len(K), TILE)
    return max(worst for worst, _ in found), all(trouble == 0 for _, trouble in found)


def _looks_symmetric(K: NDArray[Any]) -> bool:
    n = len(K)
    v = np.random.default_rng(0).standard_normal(n)
    right = np.empty(n)
    left = np.zeros((-(-n // _PROBE_ROWS), n))

    def probe(first: int, last: int) -> None:
        probe_rows(K, v, first, last, right, left[first // _PROBE_ROWS])

    map_blocks(probe, n, _PROBE_ROWS)
    difference = np.abs(right - left.sum(axis=0)).max()
    # Rounding of sums of n terms; what is asymmetric by less is left alone anyway.
    unit = np.finfo(K.dtype).eps if K.dtype == np.float64 else 1e-15
    scale = float(np.abs(K.diagonal()).max()) * float(np.abs(v).sum())
    return bool(difference <= 8.0 * unit * scale)


def symmetrized(K: NDArray[Any]) -> NDArray[Any]:
    """Return (K + K') / 2 as a new array."""
    out = K + K.T
    out *= K.dtype.type(0.5)
    return out


@dataclass(frozen=True)
class Spectrum:
    """An upper bound on the smallest and a lower bound on the largest eigenvalue.

    `share` is the part of the rows they were found on. A negative `smallest` proves that the matrix
    is not positive semidefinite, because it is attained on some vector; if `share` is one and it is
    negative beyond rounding, both are exact.
    """

    smallest: float
    largest: float
    share: float


# Other threads of a busy machine would slow these small problems down, not speed them up.
@one_blas_thread()
def bounds_spectrum(K: NDArray[Any]) -> Spectrum:
    """Look for negative eigenvalues of a symmetric matrix.

    Up to 1,000 rows a Cholesky factorization shows a matrix to be positive semidefinite up to
    rounding, for a fraction of what eigenvalues cost; if it does not, all of them are computed.
    Beyond that the diagonal, 2 x 2 minors in some rows and a principal submatrix of 500 rows, all
    chosen with a fixed seed, are looked at in the same way.
    """
    values: NDArray[Any]
    n, (of_whole, of_part) = len(K), _ROUNDING[K.dtype]
    if n <= _EXACT:
        whole = K.astype(np.float64, copy=False)
        diag = whole.diagonal()
        if _is_definite(whole, of_whole * diag.max()):
            return Spectrum(float(diag.min()), float(diag.max()), 1.0)
        values = np.linalg.eigvalsh(whole)
        # Without the last two bits of rounding, for readable messages.
        smallest, largest = (float(f"{value:.14g}") for value in values[[0, -1]])
        return Spectrum(smallest, largest, 1.0)
    rng = np.random.default_rng(0)
    part = np.sort(rng.choice(n, _LARGE, replace=False))
    sub = K[np.ix_(part, part)].astype(np.float64, copy=False)
    smallest, largest = _smallest_minor(K, rng), float(np.abs(sub.diagonal()).max())
    if not _is_definite(sub, of_part * _LARGE * largest):
        values = np.linalg.eigvalsh(sub)
        smallest, largest = min(smallest, float(values[0])), float(values[-1])
    return Spectrum(smallest, largest, _LARGE / n)


def _is_definite(K: NDArray[Any], shift: float) -> bool:
    """Whether K + shift I has a Cholesky factor: no eigenvalue is below -shift, then."""
    shifted = K.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    # LAPACK itself: NumPy's factor takes twice as long, for what nobody looks at.
    return bool(dpotrf(shifted.T, clean=False, overwrite_a=True)[1] == 0)


def _smallest_minor(K: NDArray[Any], rng: np.random.Generator) -> float:
    """Smallest of the diagonal and of the worst [[K_ii, K_ij], [K_ij, K_jj]] for some rows i."""
    diag = K.diagonal().astype(np.float64)
    worst = min(0.0, float(diag.min()))
    roots = np.sqrt(np.maximum(diag, 0.0)).astype(K.dtype)
    rows = rng.choice(len(K), min(len(K), _MINOR_ROWS), replace=False)
    part = np.abs(K[rows]) - roots[rows, None] * roots
    a, j = divmod(int(part.argmax()), len(K))
    if part[a, j] > 0:
        pair = [int(rows[a]), j]
        minor = K[np.ix_(pair, pair)].astype(np.float64)
        worst = min(worst, float(np.linalg.eigvalsh(minor)[0]))
    return worst


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
