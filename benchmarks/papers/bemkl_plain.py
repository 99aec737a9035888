"""BEMKL (Gönen 2012) as one would write it in NumPy from the paper: the rival in bemkl_speed.py.

Binary classification, all kernels in one dense array, section 4.1 line by line in its order, and
the lower bound (eq. 2) once an iteration. Covariances come from Cholesky factors; matrix products
are single BLAS calls, which take all threads. `sigma_g` is the standard deviation of the
intermediate outputs, 1 in the paper.
"""

import time
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.special import digamma, gammaln, log_ndtr

Array = np.ndarray
LOG_2PI = float(np.log(2.0 * np.pi))
# (shape, scale) of the prior of omega; those of lambda and gamma are (1, 1) in both.
OMEGA = {"dense": (1.0, 1.0), "sparse": (1e-10, 1e10)}


@dataclass
class PlainFit:
    """Posterior means, the lower bound after every iteration, seconds at its end."""

    a: Array
    e: Array
    b: float
    bounds: list[float]
    seconds: list[float]

    def decision(self, cross: Array) -> Array:
        """Mean of f for new points; `cross` is (m, points, n)."""
        return np.tensordot(self.e, cross @ self.a, 1) + self.b


def plain_bemkl(
    K: Array,
    y: Array,
    *,
    seed: int = 0,
    sparsity: str = "dense",
    sigma_g: float = 1.0,
    margin: float = 1.0,
    iterations: int = 200,
) -> PlainFit:
    """Run the updates from where the library starts: half-normal G, with the signs of y."""
    m, n = K.shape[:2]
    flat = K.reshape(m * n, n)
    KK = flat.T @ flat
    tau = sigma_g**-2
    prior = OMEGA[sparsity]
    G = y * np.abs(np.random.default_rng(seed).standard_normal((m, n)))
    f, _ = truncated(np.zeros(n), y, margin)
    a_square, b_square, e_square = np.ones(n), 1.0, np.full(m, 2.0)
    e, b, cov_be = np.ones(m), 0.0, np.eye(m + 1)
    bounds, seconds = [], []
    began = time.perf_counter()
    for _ in range(iterations):
        lam = gamma_posterior(1.0, 1.0, a_square)

        precision = tau * KK
        precision[np.diag_indices(n)] += lam[0] * lam[1]
        cov_a, logdet_a = inverse(precision)
        a = tau * (cov_a @ (flat.T @ G.ravel()))
        aa = cov_a + np.outer(a, a)
        a_square = aa.diagonal()

        precision = cov_be[1:, 1:] + np.outer(e, e)
        precision[np.diag_indices(m)] += tau
        cov_g, logdet_g = inverse(precision)
        Ka = (flat @ a).reshape(m, n)
        be = cov_be[1:, 0] + b * e
        G = cov_g @ (tau * Ka + np.outer(e, f) - be[:, None])
        GG = G @ G.T + n * cov_g

        gam = gamma_posterior(1.0, 1.0, np.array([b_square]))
        omega = gamma_posterior(*prior, e_square)

        precision = np.empty((m + 1, m + 1))
        precision[0, 0] = gam[0] * gam[1][0] + n
        precision[0, 1:] = precision[1:, 0] = G.sum(axis=1)
        precision[1:, 1:] = GG
        precision[np.arange(1, m + 1), np.arange(1, m + 1)] += omega[0] * omega[1]
        cov_be, logdet_be = inverse(precision)
        both = cov_be @ np.append(f.sum(), G @ f)
        b, e = float(both[0]), both[1:]
        second = cov_be + np.outer(both, both)
        b_square, e_square = float(second[0, 0]), second.diagonal()[1:]

        location = e @ G + b
        f, log_mass = truncated(location, y, margin)

        # The lower bound: expectations of the log densities, then entropies.
        bound = gamma_terms(1.0, 1.0, lam) + normal_terms(a_square, lam)
        residual = np.trace(GG) - 2.0 * np.sum(G * Ka) + np.sum(KK * aa)
        bound += -0.5 * tau * residual + m * n * (0.5 * np.log(tau) - 0.5 * LOG_2PI)
        bound += gamma_terms(1.0, 1.0, gam) + normal_terms(np.array([b_square]), gam)
        bound += gamma_terms(*prior, omega) + normal_terms(e_square, omega)
        # E[(f - e'g - b)^2] = E[(f - location)^2] + E[(e'g + b)^2] - location^2; the first part
        # cancels against the entropy of f, of which log_mass stays.
        cross = 2.0 * second[1:, 0] @ G.sum(axis=1) + n * b_square
        score = np.sum(second[1:, 1:] * GG) + cross - location @ location
        bound += np.sum(log_mass) - 0.5 * score
        bound += 0.5 * (n * (1.0 + LOG_2PI) + logdet_a)
        bound += 0.5 * n * (m * (1.0 + LOG_2PI) + logdet_g)
        bound += 0.5 * ((m + 1) * (1.0 + LOG_2PI) + logdet_be)
        bounds.append(float(bound))
        seconds.append(time.perf_counter() - began)
    return PlainFit(a, e, b, bounds, seconds)


def inverse(precision: Array) -> tuple[Array, float]:
    """Inverse of a positive definite matrix through its Cholesky factor, and its logdet."""
    factor, _ = lapack.dpotrf(precision, lower=1)
    logdet = -2.0 * float(np.log(factor.diagonal()).sum())
    lower, _ = lapack.dpotri(factor, lower=1)
    return np.tril(lower) + np.tril(lower, -1).T, logdet


def gamma_posterior(shape: float, scale: float, square: Array) -> tuple[float, Array]:
    """Shape and scales of the precisions of normal variables with these second moments."""
    return shape + 0.5, 1.0 / (1.0 / scale + 0.5 * square)


def gamma_terms(shape: float, scale: float, q: tuple[float, Array]) -> float:
    """E[log p] of precisions plus their entropy."""
    mean, log_mean = q[0] * q[1], digamma(q[0]) + np.log(q[1])
    prior = (shape - 1.0) * log_mean - mean / scale - gammaln(shape) - shape * np.log(scale)
    entropy = q[0] + np.log(q[1]) + gammaln(q[0]) + (1.0 - q[0]) * digamma(q[0])
    return float(np.sum(prior + entropy))


def normal_terms(square: Array, q: tuple[float, Array]) -> float:
    """E[log p] of normal variables given their precisions."""
    log_mean = digamma(q[0]) + np.log(q[1])
    return float(np.sum(0.5 * (log_mean - LOG_2PI - q[0] * q[1] * square)))


def truncated(location: Array, y: Array, margin: float) -> tuple[Array, Array]:
    """Mean and log mass of N(location, 1) where y f > margin."""
    z = y * location - margin
    log_mass = log_ndtr(z)
    hazard = np.exp(-0.5 * z * z - 0.5 * LOG_2PI - log_mass)
    return location + y * hazard, log_mass
