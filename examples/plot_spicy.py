"""
SpicyMKL: more digits with every step
=====================================

SpicyMKL takes proximal steps on the parts of the decision function, one part for each kernel. Steps
may be longer and longer, and so each one brings more digits than the one before. Here it tells
threes from eights with the kernels of its paper, 27 on all pixels and 27 on every single pixel, and
we watch the duality gap.
"""

# %%
# Threes and eights
# -----------------
# Pixels that are the same in all images are left out. The logistic loss gives probabilities, and
# its conjugate is smooth, so that SpicyMKL takes it as it is.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from kernelweave import MKLClassifier
from kernelweave.kernels import spicymkl_family
from kernelweave.solvers import Spicy

X, digit = load_digits(return_X_y=True, as_frame=True)
X, y = X[digit.isin([3, 8])], digit[digit.isin([3, 8])]
X = X.loc[:, X.std() > 0]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)


def fitted(solver, **limits):
    model = MKLClassifier(
        spicymkl_family(), loss="logistic", regularizer="l1", solver=solver, tol=1e-8, **limits
    )
    # One fit below is stopped before it gets there, on purpose.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(X_train, y_train)


model = fitted("spicy")
print(f"{len(X_train)} images, {len(model.weights_)} kernels")
for step in model.history_:
    print(f"step {step.iteration}: gap {step.gap:.1e}, {step.active_kernels} kernels in use")
print(f"test accuracy {model.score(X_test, y_test):.3f}")

# %%
# The gap after each outer step
# -----------------------------
# Gamma says how far an outer step may go, and it grows from one step to the next. To see what that
# does we start with a small one and let it grow by different factors. At the left the gap. At the
# right what a step leaves of it: a method that converges linearly would stay at one height. With a
# constant gamma the steps are small and stay small. With a growing one they get better and better:
# *superlinear* convergence.

BLUE, SKY, ORANGE, GREEN = "#0072B2", "#56B4E9", "#E69F00", "#009E73"
runs = {
    "constant": (fitted(Spicy(first_penalty=3.0, growth=1.0), max_iter=14), ORANGE, "s"),
    "times 3": (fitted(Spicy(first_penalty=3.0, growth=3.0)), SKY, "D"),
    "times 10": (fitted(Spicy(first_penalty=3.0, growth=10.0)), BLUE, "o"),
}

fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.8), layout="constrained")
for name, (run, colour, marker) in runs.items():
    gaps = np.array([step.gap for step in run.history_])
    style = {"color": colour, "marker": marker, "markersize": 4.5, "lw": 1.6, "label": name}
    left.semilogy(gaps, **style)
    right.semilogy(np.arange(1, len(gaps)), gaps[1:] / gaps[:-1], **style)
left.axhline(1e-8, color="#999999", ls=":", lw=1, zorder=0)
left.text(14, 1.4e-8, "tolerance", color="#666666", ha="right", fontsize=9)
left.set_ylabel("relative duality gap")
left.legend(title="gamma grows", frameon=False, loc="center right")
right.axhline(1.0, color="#999999", ls=":", lw=1, zorder=0)
right.set_ylabel("gap / gap of the step before")
for ax in (left, right):
    ax.set_xlabel("outer step")
    ax.set_xlim(-0.4, 14.4)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Against the clock
# -----------------
# Active-set and SILP move the weights and solve a single-kernel problem after every move; they take
# more and smaller steps. Every dot is a step. Seconds depend on the machine, the numbers of steps
# do not.

race = {
    "spicy": (fitted("spicy"), BLUE),
    "active-set": (fitted("active-set"), GREEN),
    "silp": (fitted("silp"), ORANGE),
}

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, (run, colour) in race.items():
    seconds, gaps = np.array([(step.seconds, step.gap) for step in run.history_]).T
    # Solvers return the best point so far.
    best = np.minimum.accumulate(gaps)
    style = {"color": colour, "lw": 1.6, "marker": "o", "markersize": 4.5, "label": name}
    ax.step(seconds, best, where="post", **style)
    print(f"{name:10s}  {len(gaps) - 1:3d} steps, gap {gaps.min():.1e}, {seconds[-1]:.2f} s")
ax.axhline(1e-8, color="#999999", ls=":", lw=1, zorder=0)
place = ax.get_yaxis_transform()
ax.text(0.01, 1.4e-8, "tolerance", color="#666666", fontsize=9, transform=place)
ax.set_yscale("log")
ax.set_xlabel("seconds, kernels already built")
ax.set_ylabel("relative duality gap, best so far")
ax.legend(frameon=False, loc="center left")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Which kernels it chose
# ----------------------
# Kernels on a single pixel have its name at their end, so that weights can be added up where they
# belong. Threes and eights differ where the eight closes its loops, at the left; that is where the
# weight is.

on_pixel = np.zeros((8, 8))
for name, weight in zip(model.kernel_names_, model.weights_, strict=True):
    if weight > 0 and " on pixel_" in name:
        row, column = name.split("_")[-2:]
        on_pixel[int(row), int(column)] += weight
share = on_pixel.sum() / model.weights_.sum()
print(f"{np.count_nonzero(model.weights_)} kernels have weight, {share:.0%} of it on single pixels")
for k in np.argsort(-model.weights_)[:5]:
    print(f"{model.weights_[k]:.2f}  {model.kernel_names_[k]}")

fig, axes = plt.subplots(1, 3, figsize=(8, 3), layout="constrained")
images = load_digits().images
for ax, label in zip(axes, (3, 8), strict=False):
    ax.imshow(images[digit == label].mean(axis=0), cmap="Greys")
    ax.set_title(f"mean of the {'threes' if label == 3 else 'eights'}", fontsize=10)
drawn = axes[2].imshow(on_pixel, cmap="Blues")
axes[2].set_title("weight of the kernels on a pixel", fontsize=10)
fig.colorbar(drawn, ax=axes[2], shrink=0.85)
for ax in axes:
    ax.set_xticks([])
    ax.set_yticks([])
plt.show()

# %%
# What one sees
# -------------
# A handful of outer steps take the gap to 1e-8, and most of the digits come with the last ones. Few
# of the kernels are in use from the first steps on, and only these enter the Newton steps inside.
# All solvers that get there find the same weights.

for name in ("active-set", "silp"):
    difference = np.abs(race[name][0].weights_ - model.weights_).max()
    print(f"{name}: weights differ by {difference:.1e} at most")
