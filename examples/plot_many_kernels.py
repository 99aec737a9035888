"""
Many kernels: twenty thousand sets of columns
=============================================

Which columns of the breast cancer data belong together, and at which width? Here 20,000 Gaussian
kernels, each on one to five of the thirty columns, stand to choose from. An ``RBFBatch`` describes
them by two arrays, and no kernel matrix is ever stored.
"""

# %%
# A batch of kernels
# ------------------
# Every kernel draws its columns and one of SimpleMKL's ten widths. The transformer is fitted once,
# on all columns of the training data.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier
from kernelweave.kernels import RBFBatch

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

batch = RBFBatch.random(20_000, X.shape[1], transformer=StandardScaler())
print(batch)
print(f"{(batch.columns.nbytes + batch.gamma.nbytes) / batch.m:.0f} bytes for each kernel")

# %%
# Fit
# ---
# The certificate covers all 20,000 kernels, although the solver works on few of them at a time.
# More kernels are not more accurate here: the seven of the default family do as well. What they add
# is an answer to which columns go together.

model = MKLClassifier(batch).fit(X_train, y_train)
used = np.flatnonzero(model.weights_)
default = MKLClassifier().fit(X_train, y_train)
print(f"test accuracy, 20,000 kernels: {model.score(X_test, y_test):.3f}")
print(f"test accuracy, default family: {default.score(X_test, y_test):.3f}")
print(f"{len(used)} of {batch.m} kernels have weight, {model.gap_kind_} gap {model.gap_:.1e}")
for k in used[np.argsort(-model.weights_[used])][:5]:
    print(f"{model.weights_[k]:.3f}  {model.kernel_names_[k]}")

# %%
# Which columns the weight falls on
# ---------------------------------
# A kernel's weight counts for each of its columns. The size of the worst nuclei leads (area and
# radius), with concave points and texture; several columns are in no kernel that has weight.

on_column = np.zeros(X.shape[1])
for k in used:
    on_column[batch.columns[k][batch.columns[k] >= 0]] += model.weights_[k]
drawn = np.argsort(on_column)

fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
ax.barh(X.columns[drawn], on_column[drawn], color="#0072B2")
ax.set_xlabel("weight of the kernels on this column")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
