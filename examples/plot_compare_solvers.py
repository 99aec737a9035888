"""
Which solver? All of them on one problem
========================================

Every solver of the same problem ends at the same optimum. What differs is how long it takes, and
what one gets with other models of the same kernels. ``compare`` fits them all on the same splits of
the data.
"""

# %%
# One problem
# -----------
# Thirty measurements of tumours in three groups: the mean over the cells of a sample, its standard
# error, and the worst cells. Each group gets a linear and three Gaussian kernels.

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier, compare, plot
from kernelweave.kernels import RBF, Linear

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
kernels = [
    kernel.on([name for name in X if group in name.split()], StandardScaler(), label=group)
    for group in ("mean", "error", "worst")
    for kernel in (Linear(), *(RBF(width=width) for width in (1.0, 2.0, 5.0)))
]
problem = MKLClassifier(kernels)

# %%
# All solvers
# -----------
# The solvers of the problem have a *gap*, the certificate: none of them is further than that from
# the best objective there is. The Bayesian model, Nystrom features, weights by alignment and equal
# weights answer another question with the same kernels, so they have none.

solvers = ["active-set", "silp", "spg", "spicy", "mwu", "bayes", "nystrom", "align", "uniform"]
found = compare(X, y, solvers, estimator=problem, n_splits=3)
print(found)

# %%
# The same as a figure: small dots are splits. Sparse weights keep a few kernels, the bars with
# hatching are all of them.

fig, ax = plt.subplots(figsize=(9, 4.4), layout="constrained")
plot.compare(found, ax=ax)
plt.show()

# %%
# A thousand times more exact
# ---------------------------
# Second-order steps pay when the tolerance is small. A time limit keeps the slowest from taking
# long; a fit that it ends has a hollow mark.

problem.set_params(tol=1e-6)
exact = compare(
    X, y, ["active-set", "silp", "spg", "mwu"], estimator=problem, n_splits=1, time_limit=5.0
)
print(exact)
fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
plot.compare(exact, ax=ax)
plt.show()

# %%
# Which kernels say the same?
# ---------------------------
# Several of the kernels are much alike, so solvers may choose other ones at about the same
# objective. The map puts those alike side by side; an alignment of 1 is the same kernel but for its
# scale.

model = MKLClassifier(kernels, regularizer="lp_ball").fit(X, y)
fig, ax = plt.subplots(figsize=(7, 5.6), layout="constrained")
plot.alignment(model, ax=ax)
plt.show()

certified = [row for row in found.rows if row.gap is not None]
assert len(certified) == 5
assert all(row.gap <= 1e-3 for row in certified)
assert max(row.objective for row in certified) < 1.002 * min(row.objective for row in certified)
assert exact.rows[0].gap <= 1e-6
