"""
A loss of your own: regression that ignores outliers
====================================================

Some values of a curve were written down wrong. The squared loss lets every sample pull the curve
by its residual, the wrong ones most of all. The Huber loss bounds the pull. It is not among the
losses of the library, so we add it: three methods.
"""

# %%
# The loss
# --------
# Its value, its gradient, and its convex conjugate. What else the solvers need is found by numbers.
# ``check_loss`` would say if the three did not belong together.

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MKLRegressor
from kernelweave.kernels import RBF
from kernelweave.losses import Loss, check_loss, per_weight


class Huber(Loss):
    """Squared for residuals up to delta, absolute for larger ones."""

    name = "huber"
    task = "regression"

    def __init__(self, delta=1.0):
        self.delta = delta

    def value(self, y, z, C):
        r = np.abs(y - z)
        return C * np.where(r <= self.delta, 0.5 * r**2, self.delta * (r - 0.5 * self.delta))

    def gradient(self, y, z, C):
        return C * np.clip(z - y, -self.delta, self.delta)

    def conjugate(self, y, alpha, C):
        values = 0.5 * alpha * per_weight(alpha, C) - alpha * y
        return self._finite_in_domain(y, alpha, C, values)


huber = Huber(delta=0.2)
check_loss(huber)

# %%
# The data
# --------
# A curve with a slow and a fast part, some noise, and 20 of 150 values far too large.


def truth(x):
    return np.sin(0.9 * x) + 0.3 * np.sin(5 * x)


rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, size=150))
y = truth(x) + rng.normal(scale=0.1, size=x.size)
wrong = rng.choice(x.size, size=20, replace=False)
y[wrong] += rng.uniform(2, 5, size=wrong.size)
grid = np.linspace(0.2, 9.8, 800)

# %%
# Two losses, five widths
# -----------------------
# Each loss gets the one of four ``C`` that suits it best, judged by the true curve: no choice of
# ``C`` makes up for the pull of the wrong values.

widths = (0.1, 0.3, 1.0, 3.0, 10.0)
kernels = [RBF(width=width) for width in widths]
best = {}
for name, loss in (("squared", "squared"), ("Huber", huber)):
    for C in (0.01, 0.1, 1.0, 10.0):
        model = MKLRegressor(kernels, loss=loss, C=C).fit(x[:, None], y)
        error = np.sqrt(np.mean((model.predict(grid[:, None]) - truth(grid)) ** 2))
        if name not in best or error < best[name][0]:
            best[name] = error, C, model
    error, C, model = best[name]
    print(f"{name:<8} error {error:.2f} at C = {C:g}  (gap {model.gap_:.1e})")

# %%
# What was learnt
# ---------------
# The squared loss is drawn upwards, and at its best it still gives half of the weight to the
# narrowest kernel, which follows single points. With the Huber loss the weights tell of the two
# parts of the curve.

colours = {"squared": "#D55E00", "Huber": "#0072B2"}
fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.6), width_ratios=[1.7, 1], layout="constrained"
)
left.plot(x, y, ".", color="#999999", markersize=5, label="data")
left.plot(grid, truth(grid), "--", color="black", lw=1, label="truth")
for name, (_, _, model) in best.items():
    left.plot(grid, model.predict(grid[:, None]), color=colours[name], lw=1.4, label=name)
left.set_xlabel("x")
left.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.14))
place = np.arange(len(widths))
for shift, (name, (_, _, model)) in zip((-0.2, 0.2), best.items(), strict=True):
    right.bar(place + shift, model.weights_, width=0.38, color=colours[name], label=name)
right.set_xticks(place, [f"{width:g}" for width in widths])
right.set_xlabel("width of the kernel")
right.set_ylabel("weight")
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The effect, as numbers:

assert best["Huber"][0] < 0.4 * best["squared"][0]
assert best["squared"][2].weights_[0] > 0.4 > best["Huber"][2].weights_[0]
