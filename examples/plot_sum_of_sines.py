r"""
A sum taken apart: two waves and a line
=======================================

The curve is :math:`\sin(a x) + \sin(b x) + c x`, a slow wave, a fast wave and a line, of which the
learner sees only the sum. It gives weight to three groups of widths: a narrow kernel for the fast
wave, a medium one for the slow wave and the widest for the line.

After Sonnenburg et al. (2006), *Large Scale Multiple Kernel Learning*, the second regression
example. The number of points (1,000, without noise), C = 1 and the frequencies are those that the
authors published with their toolbox SHOGUN. Three things are ours: a range three times as long
with half the slope, because over two periods a slow wave and a line look alike; evenly spaced
widths; and centred kernels.
"""

# %%
# The curve, and kernels that can tell its parts
# ----------------------------------------------
# A very wide Gaussian is almost flat over the data: a large constant with a small line on top. The
# constant is of no use, the intercept does the same, and so little of the kernel is a line that
# drawing one with it is dear. Centring takes the constant away, and scaling after it (trace) puts
# what is left on one scale with the other kernels: now the widest kernel *is* a linear one.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from scipy.stats import spearmanr

from kernelweave import MKLRegressor
from kernelweave.estimators import LearntKernel
from kernelweave.kernels import RBF

x = np.linspace(0, 12 * np.pi, 1000)
widths = np.geomspace(0.03, 100, 14)
kernels = [RBF(width=width) for width in widths]


def parts_of_the_curve(b):
    return {"fast wave": np.sin(b * x), "slow wave": np.sin(x), "line": 0.25 * (x - x.mean())}


def learn(b):
    # The authors' C is for the curve as it is.
    raw = {"C": 1, "epsilon": 0.01, "target_scale": None}
    model = MKLRegressor(kernels, **raw, normalize=("center", "trace"), solver="silp")
    return model.fit(x[:, None], sum(parts_of_the_curve(b).values()))


# %%
# The parts of the learnt function
# --------------------------------
# The learnt function is a sum of one part for each kernel, :math:`f_k = d_k K_k \alpha`. The part
# of a group of kernels comes from the learnt kernel with the weights of that group alone.

groups = {
    "fast wave": widths < 1,
    "slow wave": (widths > 1) & (widths < 5),
    "line": widths > 5,
}


def part(model, group):
    kernel = LearntKernel(model.as_kernel().kernel_set, np.where(group, model.weights_, 0))
    return kernel.against_training(x[:, None], model.support_) @ model.dual_coef_[0]


model, truth = learn(16), parts_of_the_curve(16)
parts = {name: part(model, group) for name, group in groups.items()}
match = {name: np.corrcoef(parts[name], truth[name])[0, 1] for name in groups}
add_up = np.allclose(sum(parts.values()) + model.intercept_, model.predict(x[:, None]))
print("the parts and the intercept add up to the prediction:", add_up)
for name, group in groups.items():
    print(f"{name}: weight {model.weights_[group].sum():.2f}, correlation {match[name]:.2f}")

# %%
# The weights while the fast wave gets faster
# -------------------------------------------

frequencies = np.geomspace(2, 20, 16)
models = [learn(b) for b in frequencies]
weights = np.array([model.weights_ for model in models])

# %%
# What one sees
# -------------
# On the left, the three parts have the shapes of the curve's parts. They are not as clean as the
# weights: a narrow kernel can draw slow waves too, and once it has weight, nearly for free. So it
# carries some of the slow wave, and the green part is too small by as much.
#
# On the right, the narrow width follows the fast wave and the widest stays with the line. The
# medium one has weight only when the waves are far enough apart; before, one kernel does for both.
# A sine of frequency :math:`f` is cheapest in the kernel of width :math:`1 / f` (dashed). The
# weights are shares of norm, not of height: fast waves cost more, so the narrow kernel has most of
# the weight.

COLOURS = {"fast wave": "#D55E00", "slow wave": "#009E73", "line": "#AA4499"}


def edges(values):
    """Where a cell of the map ends: half way between two values, on a logarithmic scale."""
    half = np.sqrt(values[1] / values[0])
    return np.append(values / half, values[-1] * half)


fig, axes = plt.subplot_mosaic(
    [["sum", "map"], ["fast wave", "map"], ["slow wave", "map"], ["line", "map"]],
    width_ratios=[1, 1.1],
    figsize=(10, 6.2),
    layout="constrained",
)
fig.get_layout_engine().set(w_pad=0.12)
curves = {"sum": (sum(truth.values()), model.predict(x[:, None]))}
curves |= {name: (truth[name], parts[name]) for name in groups}
for name, (true, learnt) in curves.items():
    axes[name].plot(x, true, color="#C8C8C8", lw=3)
    axes[name].plot(x, learnt, color=COLOURS.get(name, "#222222"), lw=1.2)
    axes[name].set_title(name, loc="left", fontsize=10)
    axes[name].set_xlim(4 * np.pi, 8 * np.pi)
    axes[name].spines[["top", "right"]].set_visible(False)
    axes[name].tick_params(labelbottom=name == "line")
axes["sum"].set_title("the sum at b = 16 (grey: true, thin: learnt)", loc="left", fontsize=10)
axes["sum"].set_ylim(-3.5, 3.5)
axes["line"].set_ylim(-2, 2)
axes["line"].set_xlabel("x (the middle third)")

ax = axes["map"]
mesh = ax.pcolormesh(
    edges(frequencies), edges(widths), weights.T, cmap="Blues", norm=PowerNorm(0.5, 0, 1)
)
dashes = {"ls": "--", "lw": 1.8}
ax.plot(frequencies, 1 / frequencies, color=COLOURS["fast wave"], **dashes)
ax.plot(frequencies[[0, -1]], [1, 1], color=COLOURS["slow wave"], **dashes)
ax.text(2.0, 0.22, "1 / b\nfast wave", color=COLOURS["fast wave"], va="top")
ax.text(2.0, 1.2, "1 / a  slow wave", color=COLOURS["slow wave"], va="bottom")
ax.text(2.0, 45, "line", color=COLOURS["line"], va="center")
ax.set(
    xscale="log", yscale="log", xlabel="frequency b of the fast wave", ylabel="width of the kernel"
)
ax.set_xticks([2, 5, 10, 20], ["2", "5", "10", "20"])
ticks = [0.03, 0.1, 0.3, 1, 3, 10, 30, 100]
ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
ax.minorticks_off()
bar = fig.colorbar(mesh, ax=ax, label="kernel weight", pad=0.02)
bar.set_ticks([0, 0.05, 0.2, 0.5, 1], labels=["0", "0.05", "0.2", "0.5", "1"])
fig.savefig("sum_of_sines.png", dpi=150)
plt.show()

# %%
# What to take away
# -----------------
# The weights name the scales that a curve is made of. The script fails if they do not: once the
# waves are apart there are three groups with weight and nothing between them, and the narrow one
# gets narrower as the fast wave gets faster.

share = {name: weights[:, group].sum(axis=1) for name, group in groups.items()}
narrow = np.where(groups["fast wave"], weights, 0) / share["fast wave"][:, None]
narrow_width = np.exp(narrow @ np.log(widths))
trend = spearmanr(frequencies, narrow_width).statistic
apart = frequencies > 7
between = ((widths > 0.25) & (widths < 1)) | ((widths > 5) & (widths < 50))
print(f"narrow width from {narrow_width[0]:.2f} to {narrow_width[-1]:.3f}, trend {trend:.3f}")
for name, weight in share.items():
    print(f"{name}: weight at least {weight[apart].min():.2f} for b > 7")

assert add_up and all(model.converged_ for model in models)
assert min(match.values()) > 0.8
assert all(weight[apart].min() > 0.03 for weight in share.values())
assert weights[np.ix_(apart, between)].max() < 0.01
assert trend < -0.95
assert np.all((narrow_width * frequencies > 0.5) & (narrow_width * frequencies < 2))
