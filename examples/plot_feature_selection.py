"""
Features: which ones matter, and only together?
===============================================

The class is the product of the signs of three columns out of forty. No column alone says anything
about it, so a score of one column at a time cannot find them. A product of kernels learns a weight
for each feature together with the classifier, and can.
"""

# %%
# Three columns that matter, thirty-seven that do not
# ---------------------------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_selection import f_classif
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import MKLClassifier
from kernelweave.regularizers import L1

rng = np.random.default_rng(0)
signs = rng.choice([-1, 1], (900, 3))
y = signs.prod(axis=1)
signal = signs + 0.35 * rng.normal(size=signs.shape)
X = np.hstack([signal, rng.normal(size=(900, 37))])
order = rng.permutation(40)
X, true = X[:, order], np.flatnonzero(order < 3)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

# %%
# A weight for each feature
# -------------------------
# ``combination="product"`` is one Gaussian kernel with a weight for each standardised feature,
# :math:`K(d) = \exp(-\sum_k d_k (x_k - x'_k)^2)`. The l1 penalty puts a price on every weight: most
# features of no use get exactly zero, the others next to nothing.

model = MKLClassifier(combination="product", regularizer=L1(10.0), C=1.0).fit(X_train, y_train)
ranked = np.argsort(-model.weights_)
top = np.sort(ranked[:3])
print("features that decide the class:", true)
print("three largest weights:         ", top, model.weights_[top].round(2))
print("fourth largest:                ", model.weights_[ranked[3]].round(3))
print("exactly zero:                  ", np.count_nonzero(model.weights_ == 0), "of 40")
print(f"test accuracy: {model.score(X_test, y_test):.3f}")

# %%
# The problem is not convex, so there is no duality gap: ``gap_`` says how far from stationary the
# weights are.

print(f"{model.gap_kind_}: {model.gap_:.1e}")

# %%
# One kernel on all features
# --------------------------
# Thirty-seven features of noise drown the three: it does no better than a coin.

single = make_pipeline(StandardScaler(), SVC(C=1.0)).fit(X_train, y_train)
print(f"test accuracy: {single.score(X_test, y_test):.3f}")

# %%
# Learnt weights beside scores of one feature at a time
# -----------------------------------------------------
# On the left the three columns stand out. On the right they do not: the largest F-scores belong to
# columns of noise, because what the three say they say only together.

scores, _ = f_classif(X_train, y_train)
colours = np.where(np.isin(np.arange(40), true), "#D55E00", "#BBBBBB")
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for ax, height, title in (
    (axes[0], model.weights_, "learnt weight"),
    (axes[1], scores, "F-score"),
):
    ax.bar(np.arange(40), height, color=colours)
    ax.set_title(title, loc="left")
    ax.set_xlabel("feature")
    ax.spines[["top", "right"]].set_visible(False)
handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in ("#D55E00", "#BBBBBB")]
labels = ["decides the class", "noise"]
fig.legend(handles, labels, frameon=False, ncols=2, loc="outside lower center")
plt.show()
