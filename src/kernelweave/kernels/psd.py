"""Is a given matrix a kernel, or one of distances? Cheap checks of large ones; repairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dpotrf

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import TILE
from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.validation import LARGEST, unknown_name

# Up to this size all of a matrix is looked at, whose Cholesky factor takes some ten milliseconds;
# beyond it a submatrix of so many rows, and 2 x 2 minors in some rows more. Of 1,500 and 3,000 rows
# a sigmoid "kernel", a negative eigenvalue and one wrong entry in a thousand are always found, also
# with a fifth of either number; ten wrong entries in all are found in 4 of 6 cases, with a fifth of
# the rows of minors in 2 or 3, with five times as many in all 6, which takes as many passes more.
_EXACT, _LARGE, _MINOR_ROWS = 1000, 500, 64
# Of the largest diagonal entry: eigenvalues as far below zero as this are left alone anyway. Those
# of a submatrix are compared with its trace, a bound on its largest eigenvalue.
_ROUNDING = {np.dtype(np.float64): (5e-11, 1e-11), np.dtype(np.float32): (5e-7, 1e-7)}
# Relative to the largest eigenvalue (diagonal entry): below the first a defect is rounding and
# left alone, up to the second it is repaired with a warning, beyond it is an error.
_TOLERANCE = {np.dtype(np.float64): (1e-10, 1e-6), np.dtype(np.float32): (1e-6, 1e-5)}


def check_square(K: Any, name: str, kind: str) -> int:
    """Return the size of a dense square matrix; raise if K is none."""
    if sparse.issparse(K):
        raise InvalidInputError(f"'{name}' is a sparse matrix; pass K.toarray().")
    shape = np.shape(K)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInputError(
            f"'{name}' has shape {shape}, but a precomputed {kind} matrix must be square: one row "
            f"and one column for every sample, training and test. Features go to the estimator as "
            f"X, with a kernel such as RBF(width=1)."
        )
    return int(shape[0])


def real_matrix(K: Any, name: str, kind: str) -> tuple[Array, float]:
    """Return a square matrix as a float array (not copied if it is one) and its asymmetry."""
    check_square(K, name, kind)
    A = np.asarray(K)
    if np.iscomplexobj(A):
        raise InvalidInputError(f"'{name}' must be a real matrix; got complex numbers.")
    if A.dtype not in _TOLERANCE:
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"'{name}' must hold numbers; got {A.dtype}.") from error
    if len(A) == 0:
        raise InvalidInputError(f"'{name}' is empty.")
    gaps: list[float] = []

    def compare(first: int, last: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            here, there = A[first:last, :last], A[:last, first:last].T
            gaps.append(float(np.abs(np.subtract(here, there, dtype=np.float64)).max()))

    map_blocks(compare, len(A), TILE)
    asymmetry = float(np.max(gaps))
    if not np.isfinite(asymmetry):  # As differences from what is not finite are not, either.
        bad = ~np.isfinite(A)
        # If there is none, a sum of two entries overflowed.
        allowed = "finite" if bad.any() else f"at most {LARGEST:g} in size"
        i, j = (int(t) for t in np.argwhere(bad if bad.any() else np.abs(A) > LARGEST)[0])
        raise InvalidInputError(f"'{name}' must be {allowed}; got {A[i, j]} at ({i}, {j}).")
    return A, asymmetry


def _symmetric(A: Array, gap: float, name: str, scale: float) -> tuple[Array, str | None]:
    """Return a symmetric version of A and what was done; raise if it is far from symmetric.

    `gap` is the largest |A_ij - A_ji|; it counts relative to `scale`.
    """
    ignored, repaired = _TOLERANCE[A.dtype]
    if gap <= ignored * scale:
        return A, None
    if gap <= repaired * scale:
        return 0.5 * (A + A.T), f"was asymmetric by {gap:.2g} and has been made symmetric"
    raise InvalidInputError(
        f"'{name}' is not symmetric: K[i, j] and K[j, i] differ by up to {gap:.3g} (typical "
        f"entries are {scale:.3g}). If that is meant, pass (K + K.T) / 2."
    )


def check_kernel(K: Any, name: str) -> tuple[Array, str | None]:
    """Return the matrix to use and a warning, or raise if it is no kernel."""
    A, gap = real_matrix(K, name, "kernel")
    top = float(np.abs(A.diagonal()).max())
    A, done = _symmetric(A, gap, name, top or float(np.abs(A).max()) or 1.0)
    smallest, largest, share = bounds_spectrum(A)
    ignored, repaired = _TOLERANCE[A.dtype]
    largest = max(largest, top)
    if smallest < -repaired * largest or (largest <= 0 and smallest < 0):
        raise InvalidInputError(
            f"'{name}' is not positive semidefinite: it has an eigenvalue of {smallest:.3g} "
            f"or less (the largest is about {largest:.3g}), so it is not a kernel. Repair it with "
            f"kernelweave.kernels.nearest_psd(K), which offers 'clip', 'flip' and 'shift'."
        )
    notes = [] if done is None else [done]
    if smallest < -ignored * largest:
        # A part of the rows shows about that part of a spread-out eigenvector: be generous.
        shift = -smallest if share == 1.0 else -2.0 * smallest / share
        A = A.copy() if done is None else A
        A[np.diag_indices_from(A)] += A.dtype.type(shift)
        notes.append(
            f"had an eigenvalue of {smallest:.2g} (the largest is about {largest:.3g}) and "
            f"{shift:.2g} has been added to its diagonal"
        )
    return A, f"precomputed kernel '{name}' {' and '.join(notes)}." if notes else None


def check_distances(D: Any, name: str) -> tuple[Array, str | None]:
    """Return the distances to use and a warning, or raise if they are none."""
    A, gap = real_matrix(D, name, "distance")
    scale = float(np.abs(A).max()) or 1.0
    limit = 1e-6 * scale
    lowest = float(A.min())
    if lowest < -limit:
        raise InvalidInputError(f"'{name}': distances must not be negative; got {lowest:g}.")
    worst = float(np.abs(A.diagonal()).max())
    if worst > limit:
        raise InvalidInputError(
            f"'{name}': a distance matrix has zeros on its diagonal; got {worst:g}. If these are "
            f"similarities, use Precomputed(K)."
        )
    A, done = _symmetric(A, gap, name, scale)
    if lowest < 0:
        A = np.maximum(A, 0)
    return A, None if done is None else f"distance matrix '{name}' {done}."


# Other threads of a busy machine would slow these small problems down, not speed them up.
@one_blas_thread()
def bounds_spectrum(K: Array) -> tuple[float, float, float]:
    """Look for negative eigenvalues of a symmetric matrix.

    Returns an upper bound on the smallest eigenvalue, a lower bound on the largest, and the part of
    the rows that they were found on. A negative first bound proves that the matrix is not positive
    semidefinite, because it is attained on some vector.

    A Cholesky factorization shows a matrix to be positive semidefinite up to rounding, for a
    fraction of what eigenvalues cost; if it does not, all of them are computed. Beyond 1,000 rows
    the diagonal, 2 x 2 minors in some rows and a principal submatrix of 500 rows, all chosen with a
    fixed seed, are looked at.
    """
    n, (of_whole, of_part) = len(K), _ROUNDING[K.dtype]
    sub, lowest, share = K, np.inf, of_whole
    if n > _EXACT:
        rng = np.random.default_rng(0)
        part = np.sort(rng.choice(n, _LARGE, replace=False))
        sub, lowest, share = K[np.ix_(part, part)], _smallest_minor(K, rng), of_part * _LARGE
    sub = sub.astype(np.float64, copy=False)
    diag = sub.diagonal()
    if _is_definite(sub, share * diag.max()):
        return min(lowest, float(diag.min())), float(diag.max()), len(sub) / n
    values = np.linalg.eigvalsh(sub)
    return min(lowest, float(values[0])), float(values[-1]), len(sub) / n


def _is_definite(K: Array, shift: float) -> bool:
    """Whether K + shift I has a Cholesky factor: no eigenvalue is below -shift, then."""
    shifted = K.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    # LAPACK itself: NumPy's factor takes twice as long, for what nobody looks at.
    return bool(dpotrf(shifted.T, clean=False, overwrite_a=True)[1] == 0)


def _smallest_minor(K: Array, rng: np.random.Generator) -> float:
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


def nearest_psd(K: Any, method: str = "clip") -> Array:
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
    A = real_matrix(K, "K", "similarity")[0].astype(np.float64, copy=False)
    if method not in ("clip", "flip", "shift"):
        raise unknown_name("method", method, ("clip", "flip", "shift"))
    A = 0.5 * (A + A.T)
    if method == "shift":
        lowest = float(np.linalg.eigvalsh(A)[0])
        A[np.diag_indices_from(A)] -= min(lowest, 0.0)
        return A
    values, vectors = np.linalg.eigh(A)
    kept = np.maximum(values, 0.0) if method == "clip" else np.abs(values)
    out = (vectors * kept) @ vectors.T
    return 0.5 * (out + out.T)
