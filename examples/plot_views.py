"""
Views: which group of columns matters?
======================================

The 30 columns of the breast cancer data are three views of the same ten measurements: the mean over
the nuclei of an image, its standard error, and the worst (largest) values. Each view gets kernels
of its own, with preprocessing of its own.
"""

# %%
# Kernels on named columns
# ------------------------
# ``kernel.on(columns, transformer)`` fits the transformer on those columns of the training data,
# inside the kernel. Skewed standard errors get a power transform; the others are standardised.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import PowerTransformer, StandardScaler

from kernelweave import MKLClassifier
from kernelweave.kernels import RBF, Linear

X, y = load_breast_cancer(return_X_y=True, as_frame=True)

views = {
    "mean": (slice("mean radius", "mean fractal dimension"), StandardScaler()),
    "error": (slice("radius error", "fractal dimension error"), PowerTransformer()),
    "worst": (slice("worst radius", "worst fractal dimension"), StandardScaler()),
}
kernels, owner = [], []
for view, (span, transformer) in views.items():
    columns = list(X.loc[:, span].columns)
    for kernel in (Linear(), RBF(width=2.0), RBF(width=8.0)):
        kernels.append(kernel.on(columns, transformer))
        owner.append(view)

model = MKLClassifier(kernels).fit(X, y)

# %%
# The weight of a view
# --------------------
# Weights on the simplex sum to one, so the weight of a view is the sum over its kernels.

share = {
    view: sum(w for w, who in zip(model.weights_, owner, strict=True) if who == view)
    for view in views
}
print({view: round(float(weight), 3) for view, weight in share.items()})

fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
ax.barh(list(share), list(share.values()), color="#0072B2")
ax.set_xlabel("weight of the view")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Does combining help?
# --------------------
# The same kernels on one view at a time, and on all of them.

for view in [*views, "all"]:
    chosen = [kernel for kernel, who in zip(kernels, owner, strict=True) if view in (who, "all")]
    scores = cross_val_score(MKLClassifier(chosen), X, y, cv=5)
    print(f"{view:>5}: {np.mean(scores):.3f} +- {np.std(scores):.3f}")
