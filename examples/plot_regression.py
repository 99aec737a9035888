"""
Regression: two scales in one curve
===================================

A slow wave, a fast ripple and a linear trend. One width fits one of them; a combination of widths
fits all three, and the weights say which scales the curve has.
"""

# %%
# The curve
# ---------

import matplotlib.pyplot as plt
import numpy as np

from kernelweave import MKLRegressor
from kernelweave.kernels import RBF, Linear
from kernelweave.report.plots import plot_weights

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, size=400))
truth = np.sin(0.9 * x) + 0.35 * np.sin(14 * x) + 0.2 * x
y = truth + rng.normal(scale=0.1, size=x.size)
X = x[:, None]

# %%
# Widths from very narrow to very wide
# ------------------------------------

widths = [0.02, 0.1, 0.5, 1.5, 5.0, 20.0]
kernels = [RBF(width=width) for width in widths] + [Linear()]
model = MKLRegressor(kernels, C=10.0, epsilon=0.05).fit(X, y)
print(f"training R2: {model.score(X, y):.3f}, gap {model.gap_:.1e}")

# %%
# What was learnt
# ---------------

grid = np.linspace(0, 10, 1000)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(x, y, ".", color="#999999", markersize=3, label="data")
left.plot(grid, model.predict(grid[:, None]), color="#0072B2", label="learnt")
left.legend(frameon=False)
left.set_xlabel("x")
plot_weights(model, ax=right)
plt.show()
