"""
Matrices somebody computed for you
==================================

Similarities often come as matrices: alignments of sequences, distances between graphs, a kernel
from another program. Each matrix is a kernel on *sample ids*, so plain ``GridSearchCV`` slices it.
"""

# %%
# Three matrices on the same samples
# ----------------------------------
# Here they are made from the digits data: one similarity of the whole image, one of its rows, and
# one that knows nothing at all.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from kernelweave import MKLClassifier, plot, sample_ids
from kernelweave.kernels import RBF, Linear, from_matrices

images, digit = load_digits(return_X_y=True)
chosen = np.isin(digit, [3, 8, 9])
images, digit = images[chosen] / 16.0, digit[chosen]

rows = images.reshape(-1, 8, 8).sum(axis=2)
noise = np.random.default_rng(0).normal(size=(len(digit), 20))
matrices = {
    "image": RBF(width=2.0)(images),
    "row sums": RBF(width=2.0)(rows),
    "noise": Linear()(noise),
}

# %%
# Fit on sample ids
# -----------------
# ``sample_ids(n)`` stands in for ``X``. Splitting it splits rows and columns of every matrix.

ids = sample_ids(len(digit))
train, test, y_train, y_test = train_test_split(ids, digit, stratify=digit, random_state=0)

model = MKLClassifier(from_matrices(list(matrices.values()), names=list(matrices)))
search = GridSearchCV(model, {"C": [0.1, 1.0, 10.0]}, cv=3).fit(train, y_train)
print("best C:", search.best_params_["C"])
print(f"test accuracy: {search.score(test, y_test):.3f}")

# %%
# What each matrix was worth
# --------------------------
# Three classes share one set of weights (``multi_class="shared"``, the default).

fig, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
plot.weights(search, ax=ax)
plt.show()
