"""
Stars: how wide a kernel the boundary needs
===========================================

One star lies inside another. While they nearly touch, the boundary between them has to follow
every ray, and only a narrow kernel can bend that sharply. As they move apart a smoother boundary
will do, in the end almost a circle, and the weight moves to wider kernels.

After Sonnenburg et al. (2006), *Large Scale Multiple Kernel Learning*, the example of the stars,
with the settings that the authors published with their toolbox SHOGUN: 2,000 points, noise 0.3,
C = 0.5 and five widths.
"""

# %%
# The stars
# ---------
# The radius of both outlines is a wave with ten rays around a circle. The inner circle has radius
# 4, the outer one is larger by the separation. Every separation uses the same angles and noise, so
# that nothing else changes.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

from kernelweave import MKLClassifier
from kernelweave.kernels import RBF

INNER, OUTER, INK = "#0072B2", "#E69F00", "#222222"


def two_stars(separation, seed, n=2000):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n // 2)
    angle = rng.uniform(0, 2 * np.pi, size=n)
    radius = 4 + separation * y + np.sin(10 * angle) + rng.normal(scale=0.3, size=n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


# %%
# One fit for each separation
# ---------------------------
# The paper's width is the denominator in :math:`\exp(-\|x - x'\|^2 / \text{width})`. A Gaussian
# kernel is 1 on its diagonal, so all five are on one scale already, and the default normalisation
# (trace) changes nothing.

widths = [0.01, 0.1, 1.0, 10.0, 100.0]
kernels = [RBF(gamma=1 / width, name=f"width {width:g}") for width in widths]
separations = np.arange(1, 60, 4) / 10

models, errors = [], []
for separation in separations:
    model = MKLClassifier(kernels, C=0.5, solver="silp").fit(*two_stars(separation, seed=0))
    models.append(model)
    errors.append(1 - model.score(*two_stars(separation, seed=1)))
    print(f"{separation:.1f}  weights {model.weights_.round(2)}  test error {errors[-1]:.3f}")
weights = np.array([model.weights_ for model in models])

# %%
# The weights against the separation
# ----------------------------------
# At the left nothing separates the stars: the narrowest kernel learns single points by heart and is
# wrong on half of the new ones. Then each width takes over from the one before. This goes on after
# the error has reached zero: a wider kernel draws a smoother boundary (black; every picture has its
# own scale). The widest kernel is almost flat over the whole picture. It is of no use here and
# never chosen, as in the paper.


def draw_stars(ax, model, separation):
    X, y = two_stars(separation, seed=0)
    for label, colour in ((1, OUTER), (0, INNER)):
        ax.plot(*X[y == label].T, ".", color=colour, markersize=1.8, rasterized=True)
    side = np.linspace(-1, 1, 161) * (6 + separation)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    height = model.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
    ax.contour(side, side, height, levels=[0], colors=INK, linewidths=1.1)
    ax.set_title(f"separation {separation:.1f}", fontsize=10)
    ax.set_aspect("equal")
    ax.axis("off")


fig, axes = plt.subplot_mosaic(
    "abc;www;eee", height_ratios=[2.5, 2.6, 1], figsize=(8.4, 8), layout="constrained"
)
shown = [1, 4, 13]
for panel, i in zip("abc", shown, strict=True):
    draw_stars(axes[panel], models[i], separations[i])

colours = plt.colormaps["viridis"](np.linspace(0.0, 0.88, len(widths)))
for width, line, colour, marker in zip(widths, weights.T, colours, "osD^v", strict=True):
    style = {"color": colour, "lw": 1.8, "clip_on": False, "label": f"{width:g}"}
    # Markers on the axis, where the weight is zero, would only hide each other.
    used = np.flatnonzero(line)
    axes["w"].plot(separations, line, marker=marker, markersize=5.5, markevery=used, **style)
axes["w"].legend(title="width", frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
axes["w"].set_ylabel("kernel weight")
axes["w"].tick_params(labelbottom=False)
axes["e"].plot(separations, errors, "o-", color=INK, markersize=4, lw=1.4, clip_on=False)
axes["e"].set_ylabel("test error")
axes["e"].set_xlabel("separation of the stars (dotted: the pictures above)")
for panel, top in (("w", 1.0), ("e", 0.5)):
    axes[panel].set_ylim(0, top)
    axes[panel].set_xlim(0, 5.8)
    axes[panel].spines[["top", "right"]].set_visible(False)
    for i in shown:
        axes[panel].axvline(separations[i], color="#999999", ls=":", lw=1, zorder=0)
fig.savefig("concentric_stars.png", dpi=150)
plt.show()

# %%
# What to take away
# -----------------
# The mean width, weighted and on a logarithmic scale, rises with the separation. The script fails
# if it does not.

mean_width = 10 ** (weights @ np.log10(widths))
trend = spearmanr(separations, mean_width).statistic
print(f"mean width from {mean_width[0]:.3f} to {mean_width[-1]:.1f}, rank correlation {trend:.3f}")

assert all(model.converged_ for model in models)
assert trend > 0.95
assert widths[weights[0].argmax()] == 0.01 and widths[weights[-1].argmax()] == 10.0
assert errors[0] > 0.4 and errors[-1] == 0.0
