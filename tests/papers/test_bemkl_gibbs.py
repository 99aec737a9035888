"""Variational Bayesian MKL beside Gibbs sampling, and on data from its own model.

All full conditionals of the model are known, so a sampler can say how far the mean-field posterior
is from the true one. Far, for the scale of a classifier's scores; not far, for what is predicted.
Signs of (e, G, a) may change together, and e may grow while G and a shrink: only what such changes
leave alone is compared.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, ndtri_exp
from scipy.stats import ks_2samp
from sklearn.exceptions import ConvergenceWarning

from kernelweave.bank import DenseBank
from kernelweave.bayes import (
    Hyperparameters,
    Labels,
    Outputs,
    Settings,
    class_probability,
    infer,
    sum_of_squares,
    truncated_moments,
)
from kernelweave.solvers import Limits


@dataclass
class Chains:
    """S chains of the model of `bemkl_literal` with one task and sigma_g = 1.

    All precisions have the prior Gamma(shape, 1 / shape), of mean one.
    """

    K: np.ndarray  # (m, n, n)
    margin: float | None  # None: a regression.
    shape: float
    rng: np.random.Generator
    lam: np.ndarray  # (S, n)
    a: np.ndarray  # (S, n)
    G: np.ndarray  # (S, m, n)
    gam: np.ndarray  # (S,)
    ome: np.ndarray  # (S, m)
    be: np.ndarray  # (S, 1 + m)
    ups: np.ndarray  # (S,)
    f: np.ndarray  # (S, n)
    y: np.ndarray  # (S, n)

    def __post_init__(self):
        self.flat = self.K.reshape(-1, self.K.shape[1])
        self.square = self.flat.T @ self.flat

    def normal(self, precision, linear):
        """Draws of N(precision^-1 linear, precision^-1), one a column of `linear`."""
        root = np.linalg.cholesky(precision)
        half = np.linalg.solve(root, linear) + self.rng.normal(size=linear.shape)
        return np.linalg.solve(np.swapaxes(root, 1, 2), half)

    def precisions(self, count, squares):
        """Draws of gammas, given `count` normals each."""
        return self.rng.gamma(self.shape + 0.5 * count, 1.0 / (self.shape + 0.5 * squares))

    def products(self):
        """K_k a, (S, m, n)."""
        return (self.a @ self.flat.T).reshape(self.G.shape)

    def score(self):
        """e' g_i + b, (S, n)."""
        return (self.be[:, None, 1:] @ self.G)[:, 0] + self.be[:, :1]

    def sweep(self):
        """Every variable once from its full conditional, then the scales (`rescale`)."""
        (m, n), ups = self.K.shape[:2], self.ups[:, None, None]
        self.lam = self.precisions(1, self.a**2)
        pull = self.G.reshape(len(self.G), -1) @ self.flat
        self.a = self.normal(self.square + diagonal(self.lam), pull[:, :, None])[:, :, 0]
        b, e = self.be[:, :1], self.be[:, 1:, None]
        right = self.products() + ups * e * (self.f - b)[:, None]
        self.G = self.normal(np.eye(m) + ups * e * np.swapaxes(e, 1, 2), right)
        self.gam = self.precisions(1, b[:, 0] ** 2)
        self.ome = self.precisions(1, e[:, :, 0] ** 2)
        H = np.concatenate([np.ones((len(b), 1, n)), self.G], axis=1)
        prior = diagonal(np.column_stack([self.gam, self.ome]))
        right = ups * (H @ self.f[:, :, None])
        self.be = self.normal(prior + ups * H @ np.swapaxes(H, 1, 2), right)[:, :, 0]
        if self.margin is None:
            self.ups = self.precisions(n, np.sum((self.f - self.score()) ** 2, axis=1))
        else:
            self.f = truncated_draws(self.score(), self.y, self.margin, self.rng)
            self.rescale(f=1, be=1)
        self.rescale(G=1, a=1, be=-1)

    def log_joint(self):
        """Log of the joint density, up to what no change of scale touches."""
        prior = np.column_stack([self.gam, self.ome])
        total = np.sum(self.lam * self.a**2, axis=1) + np.sum(prior * self.be**2, axis=1)
        total += np.sum((self.G - self.products()) ** 2, axis=(1, 2))
        total += self.ups * np.sum((self.f - self.score()) ** 2, axis=1)
        inside = self.margin is not None and np.any(self.y * self.f <= self.margin, axis=1)
        return np.where(inside, -np.inf, -0.5 * total)

    def rescale(self, **powers):
        """A Metropolis step: these variables times c^power each (b only along with f).

        Such ridges are where the plain sampler crawls: scores and weights may grow together, and
        e against G.
        """
        log_c = 0.2 * self.rng.normal(size=len(self.a))
        moved, size = {}, 0
        for name, power in powers.items():
            value = getattr(self, name)
            exponent = np.full(value.shape[1:], float(power))
            if name == "be" and power < 0:
                exponent[0] = 0.0
            size += exponent.sum()
            moved[name] = value * np.exp(expand(log_c, value) * exponent)
        trial = replace(self, **moved)
        gain = trial.log_joint() - self.log_joint() + size * log_c
        take = np.log(self.rng.random(len(log_c))) < gain
        for name, value in moved.items():
            setattr(self, name, np.where(expand(take, value), value, getattr(self, name)))


def expand(x, like):
    return x.reshape(-1, *[1] * (like.ndim - 1))


def diagonal(rows):
    return rows[:, :, None] * np.eye(rows.shape[1])


def truncated_draws(location, y, margin, rng):
    """f ~ N(location, 1) with y f > margin, through the logs of the tails."""
    tail = np.log(rng.random(location.shape)) + log_ndtr(y * location - margin)
    return location - y * ndtri_exp(tail)


def prior_chains(K, margin, shape, count, rng):
    """Chains that start at draws of the prior; of `count`, those with all f outside the margin."""
    m, n = K.shape[:2]
    lam, ome, prior_of_b, ups = (
        rng.gamma(shape, 1.0 / shape, size=(count, size)) for size in (n, m, 1, 1)
    )
    ups = ups if margin is None else np.ones((count, 1))
    a = rng.normal(size=(count, n)) / np.sqrt(lam)
    G = np.einsum("kij,sj->ski", K, a) + rng.normal(size=(count, m, n))
    be = rng.normal(size=(count, m + 1)) / np.sqrt(np.column_stack([prior_of_b, ome]))
    f = np.einsum("sk,ski->si", be[:, 1:], G) + be[:, :1]
    f += rng.normal(size=(count, n)) / np.sqrt(ups)
    kept = np.all(np.abs(f) > (margin or 0.0), axis=1)
    y = f if margin is None else np.sign(f)
    drawn = (part[kept] for part in (lam, a, G, prior_of_b[:, 0], ome, be, ups[:, 0], f, y))
    return Chains(K, margin, shape, rng, *drawn)


def redraw_targets(chains):
    """New targets given all the rest: f, or the label and then f, outside the margin."""
    score = chains.score()
    if chains.margin is None:
        noise = chains.rng.normal(size=score.shape)
        chains.f = chains.y = score + noise / np.sqrt(chains.ups)[:, None]
        return
    up, down = ndtr(score - chains.margin), ndtr(-score - chains.margin)
    side = chains.rng.random(score.shape) * (up + down) < up
    chains.y = np.where(side, 1.0, -1.0)
    chains.f = truncated_draws(score, chains.y, chains.margin, chains.rng)


@pytest.mark.parametrize(
    ("margin", "shape", "count"), [(None, 1.0, 5000), (0.0, 1.0, 5000), (1.0, 3.0, 15000)]
)
def test_sampler_leaves_the_joint_distribution_alone(margin, shape, count):
    """Draws of the joint distribution stay such draws under sweeps and new targets in turn."""
    half = np.random.default_rng(0).normal(size=(2, 4, 3))
    K = half @ half.transpose(0, 2, 1) / 3.0
    moved = prior_chains(K, margin, shape, count, np.random.default_rng(1))
    for _ in range(12):
        moved.sweep()
        redraw_targets(moved)
    fresh = prior_chains(K, margin, shape, count, np.random.default_rng(2))
    for name in ("lam", "a", "G", "gam", "ome", "be", "ups", "f"):
        one, two = getattr(moved, name), getattr(fresh, name)
        for k in range(one[0].size):
            test = ks_2samp(one.reshape(len(one), -1)[:, k], two.reshape(len(two), -1)[:, k])
            # Some forty comparisons.
            assert test.pvalue > 2e-4, (name, k)


def kernels(points, train):
    """Two that matter, on both columns and on the first; one on a column of noise."""

    def squared(columns):
        return np.sum((points[:, None, columns] - train[None, :, columns]) ** 2, axis=2)

    noise = np.exp(-squared([2]) / 0.5)
    return np.array([np.exp(-squared([0, 1]) / 2.0), np.exp(-squared([0]) / 0.5), noise])


def toy(n, n_new, seed=0):
    """Kernels, and a smooth function with noise at the training points."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n + n_new, 3))
    truth = 1.5 * np.sin(2.0 * X[:n, 0]) + 0.5 * X[:n, 1]
    return kernels(X[:n], X[:n]), kernels(X[n:], X[:n]), truth + 0.5 * rng.normal(size=n)


def variational(K, y, margin, shape, tol=1e-7, seed=0, squares=None, max_iter=3000):
    bank = DenseBank().from_matrices(list(K))
    names = ("lambda", "gamma", "omega", "upsilon")
    priors = {f"alpha_{name}": shape for name in names}
    priors |= {f"beta_{name}": 1.0 / shape for name in names}
    targets = Outputs(y[None]) if margin is None else Labels(y[None], margin)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        limits = Limits(max_iter=max_iter, tol=tol)
        return infer(bank, targets, Settings(Hyperparameters(**priors)), limits, seed, squares)


def moments(found, cross):
    every = np.arange(len(cross))
    return found.mean(cross, every)[0], np.sqrt(found.variance(cross, every)[0])


@dataclass
class Sampled:
    """Averages over chains that started from the variational posterior means."""

    mean: np.ndarray  # (p,), of f at new points
    std: np.ndarray  # (p,), likewise, noise included
    probability: np.ndarray  # (p,), of the label +1
    f: np.ndarray  # (n,), of f at the training points
    e: np.ndarray  # (m,), of the size of e_k / |e|
    error: float  # Largest standard error of `mean`, from chain to chain, relative to `std`.


def sampled(K, cross, y, margin, shape, found, sweeps, count=16):
    m, n = K.shape[:2]
    rng = np.random.default_rng(11)
    ones, many = np.ones(count), (count, 1)
    a = found.a_mean + 0.1 * rng.normal(size=(count, n))
    G = np.tile(K @ found.a_mean[0], (count, 1, 1))
    be = np.tile(np.concatenate([found.b_mean, found.e_mean]), many)
    f = np.tile(y if margin is None else y * (margin + 1.0), many)
    ups = ones / found.noise_variance[0]
    rest = (np.ones((count, n)), a, G, ones, np.ones((count, m)), be, ups, f, np.tile(y, many))
    chains = Chains(K, margin, shape, rng, *rest)
    flat = cross.reshape(-1, n)
    sums = {name: 0.0 for name in ("mean", "square", "up", "down", "f", "e")}
    for sweep in range(sweeps):
        chains.sweep()
        if sweep < sweeps // 5:
            continue
        b, e = chains.be[:, :1], chains.be[:, 1:]
        score = (e[:, None] @ (chains.a @ flat.T).reshape(count, m, -1))[:, 0] + b
        # g at a new point has noise of variance 1 around K a, f around e'g + b.
        std = np.sqrt(1.0 / chains.ups + np.sum(e**2, axis=1))[:, None]
        sums["mean"] = sums["mean"] + score
        sums["square"] = sums["square"] + score**2 + std**2
        sums["up"] = sums["up"] + ndtr((score - (margin or 0.0)) / std)
        sums["down"] = sums["down"] + ndtr((-score - (margin or 0.0)) / std)
        sums["f"] = sums["f"] + chains.f
        sums["e"] = sums["e"] + np.abs(e) / np.linalg.norm(e, axis=1, keepdims=True)
    kept = sweeps - sweeps // 5
    by_chain = sums["mean"] / kept
    mean, square, up, down, f, e = (total.mean(axis=0) / kept for total in sums.values())
    std = np.sqrt(square - mean**2)
    error = float(np.max(by_chain.std(axis=0) / np.sqrt(count) / std))
    return Sampled(mean, std, up / (up + down), f, e, error)


@pytest.mark.parametrize("shape", [1.0, 10.0])
def test_regression_beside_the_sampler(shape):
    """Means and spreads are near those of the true posterior; the spread is the smaller one.

    Measured, with priors Gamma(1, 1) and Gamma(10, 1/10): the means of f at new points differ by
    0.19 and 0.09 of a posterior standard deviation (root mean square), correlate by 0.97 and 0.98,
    and are 0.82 and 1.08 times as large; standard deviations are 0.84 to 0.97 times those of the
    sampler. With the sampler's own error that leaves about 0.2, allowed is 0.3.
    """
    K, cross, y = toy(24, 40)
    found = variational(K, y, None, shape)
    true = sampled(K, cross, y, None, shape, found, sweeps=700)
    mean, std = moments(found, cross)
    assert true.error < 0.08
    assert np.sqrt(np.mean(((mean - true.mean) / true.std) ** 2)) < 0.3
    assert np.corrcoef(mean, true.mean)[0, 1] > 0.93
    assert 0.7 < (mean @ true.mean) / (true.mean @ true.mean) < 1.3
    assert np.all(std / true.std < 1.05)
    assert np.all(std / true.std > 0.75)
    # Up to its sign and length, e says the same of the kernels.
    order = np.argsort(np.abs(found.e_mean))
    np.testing.assert_array_equal(order, np.argsort(true.e))
    direction = np.abs(found.e_mean) / np.linalg.norm(found.e_mean)
    np.testing.assert_allclose(direction, true.e, atol=0.3)


@pytest.mark.parametrize("shape", [1.0, 10.0])
def test_classification_beside_the_sampler(shape):
    """Probabilities are near those of the true posterior; the scale of f is not.

    Labels hold f on one side of the margin and say nothing of how far: the true posterior is wide
    there, with scores of 10 and more. The variational one, which takes f, G and e for independent,
    stays near the margin: its scores and their spread are both too small by the same factor
    (measured: scores 0.12 and spread 0.05 to 0.09 times those of the sampler with priors
    Gamma(1, 1); 0.44 and 0.35 to 0.41 with Gamma(10, 1/10)). The factor all but cancels in the
    probabilities: off by 0.09 and 0.07 on average, by 0.25 and 0.19 at most.
    """
    K, cross, values = toy(24, 40)
    turned = np.random.default_rng(3).random(24) < 0.15
    y = np.where(turned, -1.0, 1.0) * np.sign(values)
    found = variational(K, y, 1.0, shape)
    true = sampled(K, cross, y, 1.0, shape, found, sweeps=1000)
    mean, std = moments(found, cross)
    assert true.error < 0.25
    off = np.abs(class_probability(mean, std, 1.0) - true.probability)
    assert off.mean() < 0.13
    assert off.max() < 0.35
    assert np.corrcoef(mean, true.mean)[0, 1] > 0.88
    assert (mean @ true.mean) / (true.mean @ true.mean) < 0.7
    assert np.all(std < 0.7 * true.std)
    fitted = truncated_moments(moments(found, K)[0], y, 1.0).mean
    assert np.corrcoef(fitted, true.f)[0, 1] > 0.9


def fits_to_own_data(margin, count):
    """Data drawn from the model, a fit to each, and new points from the same functions.

    Yields f at the new points, with mean and standard deviation as predicted. A set of labels has
    f outside the margin at all its points, because that is what the model says of f.
    """
    K, cross, _ = toy(24, 100)
    drawn = prior_chains(K, margin, 1.0, count, np.random.default_rng(7))
    rng = np.random.default_rng(8)
    squares = sum_of_squares(DenseBank().from_matrices(list(K)))
    for a, be, ups, y in zip(drawn.a, drawn.be, drawn.ups, drawn.y, strict=True):
        g = cross @ a + rng.normal(size=cross.shape[:2])
        f = be[1:] @ g + be[0] + rng.normal(size=cross.shape[1]) / np.sqrt(ups)
        found = variational(K, y, margin, 1.0, 1e-5, squares=squares, max_iter=60)
        yield f, *moments(found, cross)


def test_probabilities_are_calibrated():
    """Of the new points with p(y = +1) about p, a part p has that label.

    Points inside the margin have no label in this model and are not counted. Measured over 54 data
    sets: a little too sure of itself, 0.89 where 0.83 is true and 0.11 where 0.16 is, and a mean
    square error 1.26 times p(1 - p). Standard deviations 0.7 or 1.5 times as large would make that
    2.5 and 0.67. With margin 0 it is the other way round, 0.87 where 0.96 is true.
    """
    margin, told, known, owner = 1.0, [], [], []
    for number, (f, mean, std) in enumerate(fits_to_own_data(margin, 160)):
        outside = np.abs(f) > margin
        told.append(class_probability(mean, std, margin)[outside])
        known.append(f[outside] > 0.0)
        owner.append(np.full(outside.sum(), number))
    assert len(told) > 30
    told, known, owner = (np.concatenate(parts) for parts in (told, known, owner))
    assert np.mean((told > 0.5) == known) > 0.85
    assert 0.85 < np.mean((told - known) ** 2) / np.mean(told * (1.0 - told)) < 1.6
    for low, high in itertools.pairwise([0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.01]):
        chosen = (told >= low) & (told < high)
        surplus = np.bincount(owner[chosen], (known - told)[chosen])
        # Points of one data set err together: the data sets are the independent draws.
        error = np.sqrt(np.sum(surplus**2)) / chosen.sum()
        assert abs(surplus.sum()) / chosen.sum() < 0.02 + 3.0 * error, (low, high)


def test_intervals_of_a_regression_cover():
    """Measured over 80 data sets: 47, 64 and 91 % where 50, 68 and 95 % are meant."""
    z = np.array([(f - mean) / std for f, mean, std in fits_to_own_data(None, 40)])
    for width, meant in ((0.674, 0.5), (1.0, 0.683), (1.96, 0.95)):
        covered = np.mean(np.abs(z) < width)
        assert meant - 0.09 < covered < meant + 0.03, meant
