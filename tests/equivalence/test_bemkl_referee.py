"""The written-out Bayesian MKL is right: its bound by Monte Carlo, its updates by the bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bemkl_literal import ONES, UPDATES, Problem, iterate, lower_bound, random_state, start, terms
from scipy.stats import gamma, multivariate_normal, norm, truncnorm

SPARSE = {**ONES, "alpha_omega": 1e-10, "beta_omega": 1e10}
SKEWED = {name: value for value, name in zip(np.linspace(0.6, 2.0, 8), ONES, strict=True)}


def make(n, m, T, seed, **options):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(m, n, 3))
    K = half @ half.transpose(0, 2, 1) / 3.0
    if options.get("regression"):
        y = rng.normal(size=(T, n))
    else:
        y = rng.choice([-1.0, 0.0, 1.0], p=[0.4, 0.2, 0.4], size=(T, n))
    return Problem(K, y, **options)


VARIANTS = {
    "binary": dict(T=1),
    "classes": dict(T=3, sigma_g=0.7, priors=SKEWED),
    "no-margin": dict(T=2, margin=0.0),
    "sparse": dict(T=2, priors=SPARSE),
    "output": dict(T=1, regression=True),
    "outputs": dict(T=3, regression=True, sigma_g=1.4, priors=SKEWED),
    "sparse-outputs": dict(T=2, regression=True, priors=SPARSE),
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]


def factors(problem):
    return [name for name in UPDATES if name != ("f" if problem.regression else "upsilon")]


def test_no_update_lowers_the_bound_from_anywhere(variant):
    for seed in range(3):
        problem = make(6, 3, seed=seed, **variant)
        rng = np.random.default_rng(100 + seed)
        for name in factors(problem):
            state = random_state(problem, rng)
            before = lower_bound(problem, state)
            state = UPDATES[name](problem, state)
            after = lower_bound(problem, state)
            assert after > before, name
            # A second time there is nothing left to gain.
            again = lower_bound(problem, UPDATES[name](problem, state))
            assert again == pytest.approx(after, rel=1e-12), name


def nudged(state, name, rng):
    """The same state with the parameters of one factor moved a little, still proper."""
    changes = {}
    for field, value in vars(state).items():
        if field.split("_")[0] == name and value is not None:
            step = 1e-3 * rng.normal(size=value.shape)
            if field.endswith("_cov"):
                step = step + np.swapaxes(step, -1, -2)
                changes[field] = value + value @ step @ value
            elif field.endswith(("_mean", "_location")):
                changes[field] = value + step
            else:
                changes[field] = value * np.exp(step)
    assert changes
    return replace(state, **changes)


def test_each_update_is_the_top(variant):
    problem = make(5, 3, seed=7, **variant)
    rng = np.random.default_rng(8)
    for name in factors(problem):
        state = UPDATES[name](problem, random_state(problem, rng))
        top = lower_bound(problem, state)
        for _ in range(5):
            assert lower_bound(problem, nudged(state, name, rng)) < top, name


def test_bound_climbs_in_every_iteration_from_the_start(variant):
    problem = make(8, 4, seed=3, **variant)
    T, m, n = problem.shape
    state = iterate(problem, start(problem, np.random.default_rng(0).normal(size=(T, m + 1, n))))
    before = lower_bound(problem, state)
    for _ in range(15):
        for name in factors(problem):
            state = UPDATES[name](problem, state)
            after = lower_bound(problem, state)
            assert after >= before - 1e-10 * abs(before)
            before = after


def draw(problem, state, count, rng):
    """Samples of every variable from q."""
    T, _, n = problem.shape
    out = {}
    for name in ("lambda", "gamma", "omega", "upsilon"):
        shape, scale = getattr(state, f"{name}_shape"), getattr(state, f"{name}_scale")
        out[name] = rng.gamma(shape, scale, size=(count, *shape.shape))
    out["a"] = np.stack(
        [rng.multivariate_normal(state.a_mean[c], state.a_cov[c], size=count) for c in range(T)], 1
    )
    noise = [
        [rng.multivariate_normal(np.zeros(len(C)), C, size=count) for _ in range(n)]
        for C in state.G_cov
    ]
    out["G"] = state.G_mean + np.transpose(noise, (2, 0, 3, 1))
    out["be"] = rng.multivariate_normal(state.be_mean, state.be_cov, size=count)
    if problem.regression:
        out["f"] = np.broadcast_to(problem.y, (count, T, n))
        return out
    f = np.empty((count, T, n))
    for c, i in np.ndindex(T, n):
        mu, side = state.f_location[c, i], np.full(count, problem.y[c, i])
        if problem.y[c, i] == 0:
            up, down = norm.sf(problem.margin - mu), norm.cdf(-problem.margin - mu)
            side = np.where(rng.random(count) < up / (up + down), 1.0, -1.0)
        f[:, c, i] = mu + side * truncnorm.rvs(
            problem.margin - side * mu, np.inf, size=count, random_state=rng
        )
    out["f"] = f
    return out


def sampled_terms(problem, state, x):
    """Each log density at the samples, from SciPy's distributions; one array a term."""
    T, _, n = problem.shape
    priors, out = problem.priors, {}
    b, e = x["be"][:, :T], x["be"][:, T:]
    names = ["lambda", "gamma", "omega"] + (["upsilon"] if problem.regression else [])
    for name in names:
        alpha, beta = priors[f"alpha_{name}"], priors[f"beta_{name}"]
        shape, scale = getattr(state, f"{name}_shape"), getattr(state, f"{name}_scale")
        out[f"p_{name}"] = gamma.logpdf(x[name], alpha, scale=beta)
        out[f"q_{name}"] = -gamma.logpdf(x[name], shape, scale=scale)
    out["p_a"] = norm.logpdf(x["a"], 0.0, x["lambda"] ** -0.5)
    out["p_b"] = norm.logpdf(b, 0.0, x["gamma"] ** -0.5)
    out["p_e"] = norm.logpdf(e, 0.0, x["omega"] ** -0.5)
    center = np.einsum("kij,scj->scki", problem.K, x["a"])
    out["p_G"] = norm.logpdf(x["G"], center, problem.sigma_g)
    center = np.einsum("sk,scki->sci", e, x["G"]) + b[:, :, None]
    spread = x["upsilon"][:, :, None] ** -0.5 if problem.regression else 1.0
    out["p_f"] = norm.logpdf(x["f"], center, spread)
    out["q_be"] = -multivariate_normal.logpdf(x["be"], state.be_mean, state.be_cov)
    out["q_a"] = sum(
        -multivariate_normal.logpdf(x["a"][:, c], state.a_mean[c], state.a_cov[c]) for c in range(T)
    )
    out["q_G"] = sum(
        -multivariate_normal.logpdf(x["G"][:, c, :, i], state.G_mean[c, :, i], state.G_cov[c])
        for c, i in np.ndindex(T, n)
    )
    if not problem.regression:
        mu, c = state.f_location, problem.margin
        up, down = norm.sf(c - mu), norm.cdf(-c - mu)
        mass = np.select([problem.y > 0, problem.y < 0], [up, down], up + down)
        out["q_f"] = -(norm.logpdf(x["f"], mu) - np.log(mass))
    return {name: np.reshape(value, (len(b), -1)).sum(axis=1) for name, value in out.items()}


@pytest.mark.parametrize("name", ["binary", "classes", "outputs"])
def test_every_term_of_the_bound_is_its_expectation(name):
    """Averages of log p and log q over samples of q, at a random state; five standard errors."""
    problem = make(3, 2, seed=1, **VARIANTS[name])
    if not problem.regression:
        labels = np.resize([1.0, -1.0, 0.0], problem.y.shape)
        problem = replace(problem, y=labels)
    rng = np.random.default_rng(2)
    state, count = random_state(problem, rng), 40_000
    sampled = sampled_terms(problem, state, draw(problem, state, count, rng))
    written = terms(problem, state)
    assert set(sampled) == set(written)
    for term, values in sampled.items():
        error = values.std() / np.sqrt(count)
        assert abs(values.mean() - written[term]) < 5.0 * error + 1e-12, term
