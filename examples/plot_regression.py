"""
Regression: two scales in one curve
===================================

A slow wave with a fast ripple on a rising line, seen at a hundred places. A narrow kernel can
follow the ripple but wastes the few samples on the slow wave, a wide one misses the ripple. A
combination does both, and its weights say which scales the curve has.
"""

# %%
# The curve
# ---------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import r2_score

from kernelweave import MKLRegressor, plot
from kernelweave.kernels import RBF


def truth(x):
    return np.sin(0.9 * x) + 0.4 * np.sin(12 * x) + 0.2 * x


rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, size=100))
y = truth(x) + rng.normal(scale=0.1, size=x.size)
grid = np.linspace(0, 10, 1000)

# %%
# All widths together, and one at a time
# --------------------------------------
# The score compares with the curve without noise, on a fine grid. The combination helps because
# samples are few: with 400 of them the width 0.1 alone does as well.

kernels = [RBF(width=width) for width in (0.1, 0.3, 1.0, 3.0, 10.0)]
model = MKLRegressor(kernels, epsilon=0.05).fit(x[:, None], y)
learnt = model.predict(grid[:, None])
print(f"learnt combination  R2 {r2_score(truth(grid), learnt):.3f}  (gap {model.gap_:.1e})")
for kernel in kernels:
    single = MKLRegressor(kernel, epsilon=0.05).fit(x[:, None], y)
    print(f"{kernel.name:<18}  R2 {r2_score(truth(grid), single.predict(grid[:, None])):.3f}")

# %%
# What was learnt
# ---------------
# One width for the ripple, one for the slow wave and the line.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.plot(x, y, ".", color="#999999", markersize=5, label="data")
left.plot(grid, learnt, color="#0072B2", lw=1.2, label="learnt")
left.legend(frameon=False)
left.set_xlabel("x")
left.spines[["top", "right"]].set_visible(False)
plot.weights(model, ax=right)
plt.show()
