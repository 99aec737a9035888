"""
Outliers: which columns hold the normal samples together?
=========================================================

A machine has two arms, and while one of them works the other one rests: in every normal sample at
least one of the first two columns is near zero. Eighteen more columns are noise. Nobody says which
samples are normal, which columns matter, or what the rule is.
"""

# %%
# A cross in two columns out of twenty
# ------------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from kernelweave import MKLOneClass
from kernelweave.kernels import RBF

rng = np.random.default_rng(0)


def normal(n):
    X = rng.uniform(-3, 3, size=(n, 20))
    X[np.arange(n), rng.integers(2, size=n)] = rng.normal(scale=0.15, size=n)  # the arm at rest
    return X


def faulty(n):
    X = rng.uniform(-3, 3, size=(n, 20))
    X[:, :2] = rng.uniform(0.8, 3, size=(n, 2)) * rng.choice([-1, 1], size=(n, 2))
    return X


X = np.vstack([normal(390), faulty(10)])  # a few faults have slipped in
X_test = np.vstack([normal(1000), faulty(1000)])
good = np.arange(2000) < 1000

# %%
# One kernel for each column
# --------------------------
# Without labels, weight goes to the kernels by which the samples are alike. Neither of the first
# two columns holds all of them together, but each does it for those that the other one leaves out:
# so the two share the weight. ``nu`` is the share of samples that may be left outside; it has to be
# larger than the share of faults, or they are what the boundary is drawn around.

kernels = [RBF(width=0.7).on(j) for j in range(20)]
model = MKLOneClass(kernels, nu=0.1).fit(X)
for k in np.argsort(-model.weights_)[:5]:
    print(f"{model.weights_[k]:.3f}  {model.kernel_names_[k]}")
print(f"left outside: {np.mean(model.predict(X) == -1):.3f} of the samples (gap {model.gap_:.1e})")

# %%
# Against other weights and single kernels
# ----------------------------------------
# The score is the area under the ROC curve on new samples, half of them faulty. Equal weights
# listen to eighteen columns of noise, and one kernel on all columns finds no two samples alike. A
# single column is no help at all: every value of it occurs in normal samples.

rivals = {
    "learnt weights": model,
    "equal weights": MKLOneClass(kernels, nu=0.1, solver="uniform").fit(X),
    "column 0 alone": MKLOneClass(kernels[0], nu=0.1).fit(X),
    "column 1 alone": MKLOneClass(kernels[1], nu=0.1).fit(X),
    "one kernel on all": MKLOneClass(RBF(width=0.7 * np.sqrt(20)), nu=0.1).fit(X),
}
auc = {name: roc_auc_score(good, rival.decision_function(X_test)) for name, rival in rivals.items()}
for name, value in auc.items():
    print(f"{name:<18} AUC {value:.3f}")

# %%
# The boundary
# ------------
# In the plane of the first two columns, the others at zero. Inside is blue, the dots are the
# training samples. One column alone can only draw bands, and one kernel on all columns finds the
# whole plane normal.

axis = np.linspace(-3.4, 3.4, 121)
grid = np.zeros((axis.size**2, 20))
grid[:, :2] = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
fig, axes = plt.subplots(1, 5, figsize=(13, 3.9), layout="constrained", sharey=True)
for ax, (name, rival) in zip(axes, rivals.items(), strict=True):
    height = rival.decision_function(grid).reshape(axis.size, axis.size)
    ax.contourf(axis, axis, height, levels=[0, np.inf], colors=["#CFE6F6"])
    ax.contour(axis, axis, height, levels=[0], colors=["#0072B2"], linewidths=1)
    ax.plot(*X[:390, :2].T, ".", color="#222222", markersize=2.5, label="normal")
    ax.plot(*X[390:, :2].T, "x", color="#D55E00", markersize=6, label="faulty")
    ax.set_title(f"{name}\nAUC {auc[name]:.2f}", loc="left", fontsize=10)
    ax.set_xlabel("column 0")
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("column 1")
handles, labels = axes[0].get_legend_handles_labels()
fig.legend(handles, labels, frameon=False, ncols=2, loc="outside lower center")
plt.show()

# %%
# The two columns have most of the weight, and the learnt boundary is the best.

assert model.weights_[:2].sum() > 0.75
assert auc["learnt weights"] > 0.03 + max(auc[name] for name in auc if name != "learnt weights")
