"""
What did it learn from the sequences?
=====================================

Two motifs are hidden in random DNA. A weighted degree kernel, taken apart by position and by k-mer
length, finds where they are and how long their words should be; the model then spells them.
"""

# %%
# Two motifs in noise
# -------------------
# Half of 600 sequences are promoters of a kind: a box like TTGACA at position 20, and one like
# TATAAT around position 40, each letter of them right three times in four.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from kernelweave import MKLClassifier
from kernelweave.kernels import WeightedDegree
from kernelweave.report import (
    kmer_scores,
    length_position_weights,
    plot_kmer_scores,
    plot_length_position_weights,
    plot_position_weights,
    plot_sequence_logo,
    top_kmers,
)

rng = np.random.default_rng(0)


def promoter(letters):
    """Write the two motifs into a sequence, with errors; the second one moves a little."""
    for motif, at in (("TTGACA", 20), ("TATAAT", 40 + rng.integers(-1, 2))):
        right = rng.random(6) < 0.75
        letters[at : at + 6] = np.where(right, list(motif), letters[at : at + 6])
    return "".join(letters)


y = np.repeat(["promoter", "other"], 300)
random = rng.choice(list("ACGT"), (600, 60))
X = [promoter(x) if c == "promoter" else "".join(x) for x, c in zip(random, y, strict=True)]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
print(X[0], y[0])

# %%
# Where? One kernel for every three positions
# -------------------------------------------
# ``by_position`` makes a kernel for each window of start positions; the weights tell where the
# classes differ. Elsewhere they are zero, or nearly so.

model = MKLClassifier(WeightedDegree(6).by_position(3)).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

fig, ax = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
plot_position_weights(model, ax=ax)
plt.show()

# %%
# How long? One kernel for each length at each position
# -----------------------------------------------------
# With an l2 norm no weight is zero, and the map shows which lengths carry the signal. Short words
# do: every fourth letter of a motif is wrong, so few promoters have the whole of it.

both = MKLClassifier(WeightedDegree(6).by_length().by_position(4), regularizer="lp_ball")
both.fit(X_train, y_train)

fig, ax = plt.subplots(figsize=(7.5, 2.6), layout="constrained")
plot_length_position_weights(both, ax=ax)
plt.show()

# %%
# What? A logo
# ------------
# The decision value of a sequence is a sum over all its k-mers. Here every k-mer is shared by its
# letters, and a letter is drawn as high as its mean share over the training sequences that have it:
# above the axis it speaks for a promoter, below against.

fig, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
plot_sequence_logo(model, ax=ax, target="promoter", positions=(14, 52))
plt.show()

# %%
# The same for one sequence says why the model takes it for what it does.

fig, ax = plt.subplots(figsize=(9, 2.4), layout="constrained")
plot_sequence_logo(model, ax=ax, target="promoter", sequence=X[0], positions=(14, 52))
plt.show()

# %%
# K-mers as a table and a map
# ---------------------------
# ``top_kmers`` lists those with the largest scores. ``kmer_scores`` has all of one length at every
# position, as an array; with ``include_shorter=True`` a score is all that a sequence gets from
# these letters.

print(top_kmers(model, n=12, target="promoter"))

table = kmer_scores(model, 6, include_shorter=True, target="promoter")
print(table.scores.shape, table.top(3), sep="\n")

fig, ax = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
plot_kmer_scores(model, 2, ax=ax, target="promoter", positions=(14, 52))
plt.show()

# %%

parts = length_position_weights(model)
heavy = parts.windows[parts.over_positions > 0.05]
assert all(17 <= start < 26 or 36 <= start < 46 for start, _ in heavy)
assert table.top(1).kmers == ["TTGACA"]
assert table.top(1).positions.tolist() == [20]
