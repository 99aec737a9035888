"""
A first fit: which measurements, at which scale?
================================================

The breast cancer data have 30 measurements of cell nuclei. The SimpleMKL family puts 13 kernels on
all of them and 13 on each one, 403 in all, and lets the data choose.
"""

# %%
# Fit
# ---
# The family standardises the features inside. A data frame gives the kernels readable names.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from kernelweave import MKLClassifier, plot
from kernelweave.report import summary_text

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

model = MKLClassifier(kernels="simplemkl").fit(X_train, y_train)
print(summary_text(model))

# %%
# Against equal weights
# ---------------------
# ``solver="uniform"`` gives every kernel the same weight: what one would do without learning.

uniform = MKLClassifier(kernels="simplemkl", solver="uniform").fit(X_train, y_train)
print(f"test accuracy, learnt weights: {model.score(X_test, y_test):.3f}")
print(f"test accuracy, equal weights:  {uniform.score(X_test, y_test):.3f}")

# %%
# What was learnt
# ---------------
# Most weights are exactly zero.

fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
plot.weights(model, ax=ax, top=12)
plt.show()

# %%
# How sure are we of the optimum?
# -------------------------------
# The duality gap bounds the distance to the best objective possible; the fit ends when it is below
# the tolerance.

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
plot.convergence(model, ax=ax)
plt.show()
