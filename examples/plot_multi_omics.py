"""
Multi-omics: which view, which patients?
========================================

Three measurements of the same tumours: the activity of genes (mRNA), of small RNAs that silence
them (miRNA), and amounts of proteins. Which of them tells the subtype of a breast cancer? And of
which patients is the answer in doubt? ``BayesianMKLClassifier`` gives an error bar to every kernel
and a probability to every patient.
"""

# %%
# The data
# --------
# ``tcga_breast_mixomics.npz`` in the folder that the environment variable ``KERNELWEAVE_DATA``
# names holds 150 patients of The Cancer Genome Atlas with all three views and 70 without proteins
# (``breast.TCGA`` of the R package mixOmics). Without the file a table of the same shape is drawn
# here: mRNA that knows the subtype, proteins that say the same less clearly, miRNA that is mostly
# noise, and some patients between two subtypes.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import BayesianMKLClassifier, plot
from kernelweave.kernels import RBF, Linear
from kernelweave.report import doubtful, plot_doubts, plot_probabilities, summary_text

SIZES = {"mRNA": 200, "miRNA": 184, "protein": 142}
SUBTYPES = {"Basal": 0.3, "Her2": 0.2, "LumA": 0.5}
FILE = Path(os.environ.get("KERNELWEAVE_DATA", ""), "tcga_breast_mixomics.npz")


def read(part):
    """The patients of one part of the file: a table for each view, and the subtypes."""
    with np.load(FILE) as file:
        patients = pd.Index(file[f"{part}_id"], name="patient")
        tables = [
            pd.DataFrame(file[f"{part}_{view}".lower()], patients, file[f"names_{view}".lower()])
            for view in SIZES
            if f"{part}_{view}".lower() in file
        ]
        return pd.concat(tables, axis=1), file[f"{part}_y"]


def draw(rng, first, n):
    """As many patients of a made-up disease, the same one in every call."""
    disease = np.random.default_rng(7)
    centres = disease.normal(size=(3, 6))
    loadings = {view: disease.normal(size=(6, p)) for view, p in SIZES.items()}
    subtype = rng.choice(3, n, p=list(SUBTYPES.values()))
    # Tumours are mixtures of their subtype and another, mostly of little of it.
    other = (subtype + rng.integers(1, 3, n)) % 3
    share = 0.6 * rng.beta(0.7, 1.6, n)[:, None]
    state = (1 - share) * centres[subtype] + share * centres[other]
    signal = {"mRNA": 0.35, "miRNA": 0.03, "protein": 0.2}
    patients = pd.Index([f"P{first + i:03d}" for i in range(n)], name="patient")
    tables = [
        pd.DataFrame(
            signal[view] * (state + 0.3 * rng.normal(size=state.shape)) @ loadings[view]
            + rng.normal(size=(n, p)),
            patients,
            [f"{view}{j}" for j in range(p)],
        )
        for view, p in SIZES.items()
    ]
    return pd.concat(tables, axis=1), np.array(list(SUBTYPES))[subtype]


if FILE.is_file():
    print("150 + 70 patients of The Cancer Genome Atlas")
    X, y = read("train")
    X_new, y_new = read("test")
else:
    print("MADE-UP patients of a made-up disease: the real ones are not on this machine")
    rng = np.random.default_rng(0)
    X, y = draw(rng, 0, 150)
    X_new, y_new = draw(rng, 150, 70)
    X_new = X_new.iloc[:, : SIZES["mRNA"] + SIZES["miRNA"]]
print(f"{X.shape[0]} patients, {X.shape[1]} features, {len(X_new)} new patients without proteins")

# %%
# Kernels on views
# ----------------
# Each view gets a linear kernel and two Gaussian ones, once and twice as wide as the root of its
# number of features: standardised patients are about that far apart.


def model_on(views, gaussians=(1.0, 2.0)):
    """A pipeline with kernels on these views, and the view of each kernel."""
    kernels, owner, first = [], [], 0
    for view, p in SIZES.items():
        columns = slice(first, first + p)
        first += p
        if view in views:
            of_view = [Linear(), *(RBF(width=round(factor * p**0.5)) for factor in gaussians)]
            kernels += [kernel.on(columns, label=view) for kernel in of_view]
            owner += [view] * len(of_view)
    scaler = StandardScaler().set_output(transform="pandas")
    return make_pipeline(scaler, BayesianMKLClassifier(kernels)), owner


X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=1)
model, owner = model_on(SIZES)
model.fit(X_train, y_train)
print(summary_text(model, top=3))
print(f"accuracy on {len(y_test)} held-out patients {model.score(X_test, y_test):.3f}")

# %%
# Which view?
# -----------
# The bars are posterior means, the lines two standard deviations to each side. Kernels of one view
# say much the same and share what it has to say: a pale bar could as well be nothing. With one
# kernel for each view the weights are those of the views.

by_view, views = model_on(SIZES, gaussians=())
by_view.fit(X_train, y_train)
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
plot.weights(model, left, groups=owner)
plot.weights(by_view, right, groups=views)
plt.show()

# %%
# Which subtype?
# --------------
# The probability of the predicted subtype for every held-out patient. Colours are the true
# subtypes, rings are mistakes. A line shows how far the probability moves within two standard
# deviations of the parameters. Patients in the zone of doubt are named.

fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
plot_probabilities(model, X_test, y_test, ax)
plt.show()

# %%
# Who is in doubt?
# ----------------
# As a table, and as a figure of what these patients may have.

print(doubtful(model, X_test))
plot_doubts(model, X_test, y_test, plt.figure(figsize=(7, 3.4), layout="constrained").gca())
plt.show()

# %%
# Is the doubt justified?
# -----------------------
# Every patient once, by a model that has not seen her. Among those it calls sure nearly all are
# right; mistakes are where it said that they may be.

folds = StratifiedKFold(5, shuffle=True, random_state=0)
proba = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
right = model.classes_[proba.argmax(axis=1)] == y
sure = proba.max(axis=1) >= 0.8
for name, rows in (("sure", sure), ("in doubt", ~sure), ("all", sure | ~sure)):
    print(f"{name:>8}: {rows.sum():3d} patients, {100 * right[rows].mean():5.1f} % right")

# %%
# New patients without proteins
# -----------------------------
# A model of the two views that they have. Those it is not sure about are the ones whose proteins
# are worth measuring.

two_views, _ = model_on(["mRNA", "miRNA"])
two_views.fit(X[X_new.columns], y)
table = doubtful(two_views, X_new)
print(f"accuracy on {len(y_new)} new patients {two_views.score(X_new, y_new):.3f}")
print(table)
