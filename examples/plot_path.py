"""
How much regularisation? A path over C
======================================

C says how much the losses weigh against the size of the function. ``MKLClassifierCV`` fits a whole
path of values, each from the solution before it, in every fold and on all samples, and keeps the
model whose C scores best. The weights along the path tell which kernels matter first.
"""

# %%
# A path from the first kernel on
# -------------------------------
# Thirty measurements of tumours, each with a kernel of its own. Under the l1 penalty all weights
# are zero up to some C, which is known in closed form: there the path starts.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from kernelweave import MKLClassifierCV, plot

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
model = MKLClassifierCV("features", loss="logistic", regularizer="l1", scoring="neg_log_loss")
model.fit(X_train, y_train)
print(f"C = {model.C_:.3g} of {model.Cs_[0]:.3g} to {model.Cs_[-1]:.3g}")
print(f"held-out accuracy {model.score(X_test, y_test):.3f}")

# %%
# Kernels enter one after the other. Some leave again: another one says the same and more. The
# numbers along the upper edge count the kernels that have weight. Below, the score over the folds,
# and a band of one standard deviation.

fig, panels = plt.subplots(
    2, 1, sharex=True, height_ratios=[2, 1], figsize=(8, 5.6), layout="constrained"
)
plot.path(model, panels)
plt.show()

# %%
# All of it as a table
# --------------------
# ``cv_results_`` has the columns of ``GridSearchCV``, and the certificates: ``max_gap`` is the
# largest relative duality gap of the folds.

table = pd.DataFrame(model.cv_results_)
columns = ["param_C", "mean_test_score", "std_test_score", "mean_n_kernels", "max_gap"]
print(table[columns].iloc[::3].round(4).to_string(index=False))

# %%
# Which kernel came when
# ----------------------
# ``path_weights_`` are the weights on all samples, a row for each C.

entered = (model.path_weights_ > 0).argmax(axis=0)
ever = model.path_weights_.any(axis=0)
order = [k for k in np.argsort(entered, kind="stable") if ever[k]]
for k in order[:6]:
    print(f"{model.kernel_names_[k]:24s} from C = {model.Cs_[entered[k]]:.3g}")

# %%
# On the simplex
# --------------
# Weights that sum to one have no empty model. There the path starts where the best kernel moves
# decision values by half a unit, and shows how weight passes from simple kernels to flexible ones
# as C grows.

simplex = MKLClassifierCV(Cs=15).fit(X_train, y_train)
fig, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
plot.path(simplex, ax)
plt.show()

# %%
# The model kept is that of ``C_`` on all the samples, with its own certificate.

print(f"C = {simplex.C_:.3g}, gap {simplex.gap_:.1e}, accuracy {simplex.score(X_test, y_test):.3f}")
