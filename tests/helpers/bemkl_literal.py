"""Bayesian MKL written out: one factor a function, explicit inverses, nothing shared or saved.

The model, with T tasks that share the kernel weights e (Gönen 2012, section 3, is T = 1)::

    lambda_ci ~ Gamma,   a_ci | lambda ~ N(0, 1 / lambda_ci)
    g_cki | a            ~ N((K_k a_c)_i, sigma_g^2)
    gamma_c ~ Gamma,     b_c | gamma ~ N(0, 1 / gamma_c)
    omega_k ~ Gamma,     e_k | omega ~ N(0, 1 / omega_k)
    f_ci | b, e, g       ~ N(e' g_ci + b_c, 1 / upsilon_c)
    labels:              upsilon = 1; y f > margin where y = +-1, |f| > margin where y = 0
    outputs:             f = y, upsilon_c ~ Gamma

A gamma has a shape and a scale. Each update maximises the lower bound in its own factor, from the
expected log joint density; the bound is E_q[log p] - E_q[log q], term by term, at any state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import digamma, gammaln
from scipy.stats import norm

__all__ = [
    "ONES",
    "UPDATES",
    "Problem",
    "State",
    "f_moments",
    "iterate",
    "lower_bound",
    "predict",
    "predictive_variance",
    "random_state",
    "start",
    "terms",
    "update_G",
    "update_a",
    "update_be",
    "update_f",
    "update_gamma",
    "update_lambda",
    "update_omega",
    "update_upsilon",
]

LOG_2PI = np.log(2.0 * np.pi)
ONES = {
    f"{kind}_{name}": 1.0
    for name in ("lambda", "gamma", "omega", "upsilon")
    for kind in ("alpha", "beta")
}


@dataclass(frozen=True)
class Problem:
    """Kernels (m, n, n), targets (T, n), and the constants of the model."""

    K: np.ndarray
    y: np.ndarray
    regression: bool = False
    margin: float = 1.0
    sigma_g: float = 1.0
    priors: dict = field(default_factory=lambda: dict(ONES))

    @property
    def shape(self):
        """T, m, n."""
        return len(self.y), len(self.K), self.K.shape[1]


@dataclass(frozen=True)
class State:
    """Parameters of all the factors. `be` is b_1 .. b_T, then e_1 .. e_m."""

    lambda_shape: np.ndarray  # (T, n)
    lambda_scale: np.ndarray  # (T, n)
    a_mean: np.ndarray  # (T, n)
    a_cov: np.ndarray  # (T, n, n)
    G_mean: np.ndarray  # (T, m, n)
    G_cov: np.ndarray  # (T, m, m), the same for every sample of a task
    gamma_shape: np.ndarray  # (T,)
    gamma_scale: np.ndarray  # (T,)
    omega_shape: np.ndarray  # (m,)
    omega_scale: np.ndarray  # (m,)
    be_mean: np.ndarray  # (T + m,)
    be_cov: np.ndarray  # (T + m, T + m)
    f_location: np.ndarray  # (T, n), of the normals before they are truncated; unused for outputs
    upsilon_shape: np.ndarray  # (T,), unused for labels
    upsilon_scale: np.ndarray  # (T,), unused for labels
    f_mean: np.ndarray | None = None  # Given only at the start, which is no truncated normal.


def f_moments(problem, state):
    """E[f], E[f^2], E[(f - location)^2] and the log of the mass kept, each (T, n)."""
    mu, c, y = state.f_location, problem.margin, problem.y
    # A side that the label forbids has density and mass zero.
    no_upper, no_lower = np.where(y < 0, -np.inf, 0.0), np.where(y > 0, -np.inf, 0.0)
    log_mass = np.logaddexp(norm.logsf(c - mu) + no_upper, norm.logcdf(-c - mu) + no_lower)
    up = np.exp(norm.logpdf(c - mu) + no_upper - log_mass)
    down = np.exp(norm.logpdf(-c - mu) + no_lower - log_mass)
    mean = mu + up - down
    around = 1.0 + (c - mu) * up + (c + mu) * down
    square = around + 2.0 * mu * mean - mu**2
    return mean, square, around, log_mass


def _f(problem, state):
    """E[f] and E[f^2], (T, n) each."""
    if problem.regression:
        return problem.y, problem.y**2
    if state.f_mean is not None:
        return state.f_mean, np.full_like(state.f_mean, np.nan)
    return f_moments(problem, state)[:2]


def _noise(problem, state):
    """E[upsilon] and E[log upsilon], (T,) each."""
    if problem.regression:
        return _gamma_means(state.upsilon_shape, state.upsilon_scale)
    return np.ones(len(problem.y)), np.zeros(len(problem.y))


def _gamma_means(shape, scale):
    return shape * scale, digamma(shape) + np.log(scale)


def _split(problem, state):
    """Means of b and e; E[b^2], E[b e], E[e e']."""
    T = len(problem.y)
    mean, second = state.be_mean, state.be_cov + np.outer(state.be_mean, state.be_mean)
    return mean[:T], mean[T:], np.diag(second)[:T], second[:T, T:], second[T:, T:]


def update_lambda(problem, state):
    priors = problem.priors
    shape, scale = np.empty_like(state.a_mean), np.empty_like(state.a_mean)
    for c, i in np.ndindex(shape.shape):
        square = state.a_mean[c, i] ** 2 + state.a_cov[c, i, i]
        shape[c, i] = priors["alpha_lambda"] + 0.5
        scale[c, i] = 1.0 / (1.0 / priors["beta_lambda"] + 0.5 * square)
    return replace(state, lambda_shape=shape, lambda_scale=scale)


def update_a(problem, state):
    mean, cov = np.empty_like(state.a_mean), np.empty_like(state.a_cov)
    for c in range(len(problem.y)):
        precision = np.diag(state.lambda_shape[c] * state.lambda_scale[c])
        linear = np.zeros(mean.shape[1])
        for K, g in zip(problem.K, state.G_mean[c], strict=True):
            precision += K.T @ K / problem.sigma_g**2
            linear += K.T @ g / problem.sigma_g**2
        cov[c] = np.linalg.inv(precision)
        mean[c] = cov[c] @ linear
    return replace(state, a_mean=mean, a_cov=cov)


def update_G(problem, state):
    T, m, n = problem.shape
    _, e, _, be, ee = _split(problem, state)
    f, (upsilon, _) = _f(problem, state)[0], _noise(problem, state)
    mean, cov = np.empty_like(state.G_mean), np.empty_like(state.G_cov)
    for c in range(T):
        cov[c] = np.linalg.inv(np.eye(m) / problem.sigma_g**2 + upsilon[c] * ee)
        for i in range(n):
            prior = np.array([K[i] @ state.a_mean[c] for K in problem.K]) / problem.sigma_g**2
            mean[c, :, i] = cov[c] @ (prior + upsilon[c] * (f[c, i] * e - be[c]))
    return replace(state, G_mean=mean, G_cov=cov)


def update_gamma(problem, state):
    priors, square = problem.priors, _split(problem, state)[2]
    shape = np.full(len(square), priors["alpha_gamma"] + 0.5)
    scale = 1.0 / (1.0 / priors["beta_gamma"] + 0.5 * square)
    return replace(state, gamma_shape=shape, gamma_scale=scale)


def update_omega(problem, state):
    priors, square = problem.priors, np.diag(_split(problem, state)[4])
    shape = np.full(len(square), priors["alpha_omega"] + 0.5)
    scale = 1.0 / (1.0 / priors["beta_omega"] + 0.5 * square)
    return replace(state, omega_shape=shape, omega_scale=scale)


def update_be(problem, state):
    T, m, n = problem.shape
    f, (upsilon, _) = _f(problem, state)[0], _noise(problem, state)
    gamma, omega = state.gamma_shape * state.gamma_scale, state.omega_shape * state.omega_scale
    precision, linear = np.diag(np.concatenate([gamma, omega])), np.zeros(T + m)
    for c in range(T):
        for i in range(n):
            # f_ci is normal about h' (b, e), h the unit vector of the task, then g_ci.
            h, spread = np.zeros(T + m), np.zeros((T + m, T + m))
            h[c] = 1.0
            h[T:] = state.G_mean[c, :, i]
            spread[T:, T:] = state.G_cov[c]
            precision += upsilon[c] * (np.outer(h, h) + spread)
            linear += upsilon[c] * f[c, i] * h
    cov = np.linalg.inv(precision)
    return replace(state, be_mean=cov @ linear, be_cov=cov)


def update_f(problem, state):
    b, e, *_ = _split(problem, state)
    location = np.array(
        [[e @ g + b_c for g in G.T] for G, b_c in zip(state.G_mean, b, strict=True)]
    )
    return replace(state, f_location=location, f_mean=None)


def update_upsilon(problem, state):
    n = problem.K.shape[1]
    shape = np.full(len(problem.y), problem.priors["alpha_upsilon"] + 0.5 * n)
    rate = 1.0 / problem.priors["beta_upsilon"] + 0.5 * _residual(problem, state).sum(axis=1)
    return replace(state, upsilon_shape=shape, upsilon_scale=1.0 / rate)


UPDATES = {
    "lambda": update_lambda,
    "a": update_a,
    "G": update_G,
    "gamma": update_gamma,
    "omega": update_omega,
    "be": update_be,
    "f": update_f,
    "upsilon": update_upsilon,
}


def iterate(problem, state):
    """One iteration: each factor once, in the paper's order."""
    last = "f" if not problem.regression else "upsilon"
    for name in ("lambda", "a", "G", "gamma", "omega", "be", last):
        state = UPDATES[name](problem, state)
    return state


def _residual(problem, state):
    """E[(f_ci - e' g_ci - b_c)^2], (T, n), every factor independent of the others."""
    b, e, bb, be, ee = _split(problem, state)
    f, ff = _f(problem, state)
    out = np.empty(problem.y.shape)
    for c, i in np.ndindex(out.shape):
        g = state.G_mean[c, :, i]
        gg = state.G_cov[c] + np.outer(g, g)
        out[c, i] = (
            ff[c, i] + np.trace(ee @ gg) + bb[c] - 2.0 * f[c, i] * (e @ g + b[c]) + 2.0 * be[c] @ g
        )
    return out


def _gamma_prior(mean, log_mean, alpha, beta):
    return np.sum((alpha - 1.0) * log_mean - mean / beta - gammaln(alpha) - alpha * np.log(beta))


def _gamma_entropy(shape, scale):
    return np.sum(shape + np.log(scale) + gammaln(shape) + (1.0 - shape) * digamma(shape))


def _normal_entropy(cov):
    return 0.5 * (len(cov) * (1.0 + LOG_2PI) + np.linalg.slogdet(cov)[1])


def terms(problem, state):
    """The terms of the bound: ``p_x`` is E[log p(x | ...)], ``q_x`` is -E[log q(x)]."""
    priors, out = problem.priors, {}
    T, m, n = problem.shape
    lam, log_lam = _gamma_means(state.lambda_shape, state.lambda_scale)
    gam, log_gam = _gamma_means(state.gamma_shape, state.gamma_scale)
    ome, log_ome = _gamma_means(state.omega_shape, state.omega_scale)
    ups, log_ups = _noise(problem, state)
    _, _, bb, _, ee = _split(problem, state)
    aa = np.array(
        [cov + np.outer(mu, mu) for cov, mu in zip(state.a_cov, state.a_mean, strict=True)]
    )

    def gamma_prior(name, mean, log_mean):
        return _gamma_prior(mean, log_mean, priors[f"alpha_{name}"], priors[f"beta_{name}"])

    out["p_lambda"] = gamma_prior("lambda", lam, log_lam)
    out["p_gamma"] = gamma_prior("gamma", gam, log_gam)
    out["p_omega"] = gamma_prior("omega", ome, log_ome)
    out["p_a"] = 0.5 * np.sum(log_lam - LOG_2PI - lam * np.diagonal(aa, axis1=1, axis2=2))
    out["p_b"] = 0.5 * np.sum(log_gam - LOG_2PI - gam * bb)
    out["p_e"] = 0.5 * np.sum(log_ome - LOG_2PI - ome * np.diag(ee))

    square = 0.0
    for c in range(T):
        for k, K in enumerate(problem.K):
            g = state.G_mean[c, k]
            square += g @ g + n * state.G_cov[c, k, k]
            square += np.trace(K @ aa[c] @ K.T) - 2.0 * g @ K @ state.a_mean[c]
    sigma2 = problem.sigma_g**2
    out["p_G"] = -0.5 * (T * m * n * (LOG_2PI + np.log(sigma2)) + square / sigma2)
    residual = _residual(problem, state)
    out["p_f"] = 0.5 * np.sum(log_ups[:, None] - LOG_2PI - ups[:, None] * residual)

    out["q_lambda"] = _gamma_entropy(state.lambda_shape, state.lambda_scale)
    out["q_gamma"] = _gamma_entropy(state.gamma_shape, state.gamma_scale)
    out["q_omega"] = _gamma_entropy(state.omega_shape, state.omega_scale)
    out["q_a"] = sum(_normal_entropy(cov) for cov in state.a_cov)
    out["q_G"] = n * sum(_normal_entropy(cov) for cov in state.G_cov)
    out["q_be"] = _normal_entropy(state.be_cov)
    if problem.regression:
        out["p_upsilon"] = gamma_prior("upsilon", ups, log_ups)
        out["q_upsilon"] = _gamma_entropy(state.upsilon_shape, state.upsilon_scale)
    else:
        _, _, around, log_mass = f_moments(problem, state)
        out["q_f"] = np.sum(0.5 * LOG_2PI + log_mass + 0.5 * around)
    return out


def lower_bound(problem, state):
    return float(sum(terms(problem, state).values()))


def start(problem, z, f=None, G=None):
    """The state before the first iteration, from standard normal numbers z (T, m + 1, n).

    The last row of z is for f, the others for G. `f` or `G`, when given, replace those means.
    """
    T, m, n = problem.shape
    if G is None:
        G = z[:, :m] if problem.regression else problem.y[:, None, :] * np.abs(z[:, :m])
    if f is None:
        f = problem.y * (1.0 if problem.regression else problem.margin + np.abs(z[:, m]))
    priors = problem.priors
    return State(
        lambda_shape=np.full((T, n), priors["alpha_lambda"]),
        lambda_scale=np.full((T, n), priors["beta_lambda"]),
        a_mean=np.zeros((T, n)),
        a_cov=np.array([np.eye(n)] * T),
        G_mean=np.array(G, dtype=float),
        G_cov=np.array([np.eye(m)] * T),
        gamma_shape=np.full(T, priors["alpha_gamma"]),
        gamma_scale=np.full(T, priors["beta_gamma"]),
        omega_shape=np.full(m, priors["alpha_omega"]),
        omega_scale=np.full(m, priors["beta_omega"]),
        be_mean=np.concatenate([np.zeros(T), np.ones(m)]),
        be_cov=np.eye(T + m),
        f_location=np.full((T, n), np.nan),
        upsilon_shape=np.full(T, priors["alpha_upsilon"]),
        upsilon_scale=np.full(T, priors["beta_upsilon"]),
        f_mean=np.array(f, dtype=float),
    )


def random_state(problem, rng):
    """Any valid state: every factor proper, none of them at its best."""
    T, m, n = problem.shape

    def covs(count, size):
        half = rng.normal(size=(count, size, 2 * size)) / np.sqrt(2 * size)
        return half @ half.transpose(0, 2, 1) + 0.05 * np.eye(size)

    def positive(*shape):
        return rng.uniform(0.5, 2.5, size=shape)

    return State(
        lambda_shape=positive(T, n),
        lambda_scale=positive(T, n),
        a_mean=rng.normal(size=(T, n)),
        a_cov=covs(T, n),
        G_mean=rng.normal(size=(T, m, n)),
        G_cov=covs(T, m),
        gamma_shape=positive(T),
        gamma_scale=positive(T),
        omega_shape=positive(m),
        omega_scale=positive(m),
        be_mean=rng.normal(size=T + m),
        be_cov=covs(1, T + m)[0],
        f_location=2.0 * rng.normal(size=(T, n)),
        upsilon_shape=positive(T),
        upsilon_scale=positive(T),
    )


def predict(problem, state, cross):
    """E[f*], (T, b), of new points with kernels `cross` (m, b, n) against the training points."""
    b, e, *_ = _split(problem, state)
    return np.array(
        [[e @ row + bc for row in (cross @ a).T] for a, bc in zip(state.a_mean, b, strict=True)]
    )


def predictive_variance(problem, state, cross, noise):
    """Var[f*], (T, b): noise (T,), and all of (b, e), g* and a, the g* of one point correlated."""
    T, m, _ = problem.shape
    second = state.be_cov + np.outer(state.be_mean, state.be_mean)
    out = np.empty((T, cross.shape[1]))
    for c, p in np.ndindex(out.shape):
        rows = cross[:, p]
        h, spread = np.zeros(T + m), np.zeros((T + m, T + m))
        h[c] = 1.0
        h[T:] = rows @ state.a_mean[c]
        spread[T:, T:] = problem.sigma_g**2 * np.eye(m) + rows @ state.a_cov[c] @ rows.T
        total = np.trace(second @ (np.outer(h, h) + spread))
        out[c, p] = noise[c] + total - (h @ state.be_mean) ** 2
    return out
