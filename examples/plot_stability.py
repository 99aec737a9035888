"""
How sure are the weights?
=========================

A fit gives every kernel one weight. Another sample of the same kind would have given another one.
The bootstrap draws the rows again and again, refits, and shows which weights would stay.
"""

# %%
# Two signals, one of them measured twice, and noise
# --------------------------------------------------
# The class depends on age and dose. The dose was measured by two instruments, so two columns say
# nearly the same. Seven more columns say nothing. Every column gets a Gaussian kernel of its own.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelweave import MKLClassifier, stability

rng = np.random.default_rng(0)
age, dose = rng.normal(size=(2, 200))
columns = {
    "age": age,
    "dose, instrument 1": dose + 0.2 * rng.normal(size=200),
    "dose, instrument 2": dose + 0.2 * rng.normal(size=200),
}
columns |= {f"noise {j}": rng.normal(size=200) for j in range(1, 8)}
X = pd.DataFrame(columns)
y = np.where(age + dose + 0.5 * rng.normal(size=200) > 0, "ill", "well")

model = MKLClassifier("features", C=0.2).fit(X, y)
for name, weight in zip(model.kernel_names_, model.weights_, strict=True):
    print(f"{weight:.3f}  {name}")

# %%
# Fifty replicates
# ----------------
# Each has as many rows as the data, drawn with replacement from every class. Scaling, normalisation
# and weights are learnt anew.

result = stability(model, X, y, n_bootstrap=50, random_state=0)
print(result)

# %%
# The light bars hold 95 % of the replicates. Age is there in all of them, noise in a few. Both
# instruments are often there too, but nobody can say how much weight each of them has.

fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
result.plot(ax=ax)
plt.show()

# %%
# Together they are sure
# ----------------------
# Kernels that resemble each other take turns: where one is heavy the other is light. ``replicates``
# has all the weights, so anything can be computed from them, such as the weight of the dose.

first, second = result.replicates[:, 1], result.replicates[:, 2]
dose_weight = first + second
low, high = np.quantile(dose_weight, [0.025, 0.975])
print(f"correlation of the two instruments: {np.corrcoef(first, second)[0, 1]:.2f}")
print(f"weight of the dose: {dose_weight.mean():.2f}, between {low:.2f} and {high:.2f}")

fig, ax = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
ax.plot(first, second, "o", color="#0072B2", alpha=0.6, markersize=5)
ax.set_xlabel("weight of instrument 1")
ax.set_ylabel("weight of instrument 2")
ax.set_title("one dot for each replicate", fontsize=11)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Halves of the rows
# ------------------
# A bootstrap replicate has copies of rows. Half of the rows without replacement has none (stability
# selection, Meinshausen and Bühlmann 2010). It also has half of the loss, so the penalty weighs
# more: a stricter choice, which leaves out more of the noise.

halves = stability(model, X, y, n_bootstrap=50, sampling="subsample", random_state=0)
print(f"{'selected in':<20} bootstrap  halves")
for name, one, other in zip(result.names, result.frequency, halves.frequency, strict=True):
    print(f"{name:<20} {one:9.0%} {other:7.0%}")

assert result.frequency[0] == 1.0
assert result.frequency[3:].max() < 0.5 < result.frequency[1:3].min()
assert high - low < min(result.high[1] - result.low[1], result.high[2] - result.low[2])
assert halves.frequency[3:].mean() < result.frequency[3:].mean()
