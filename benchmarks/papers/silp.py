"""What the SILP paper shows (Sonnenburg et al. 2006): weights that say what a problem needs.

    python -m benchmarks.papers.silp --data-dir DIR --figure proof_silp.png
    python -m benchmarks.papers.silp --quick

stars  two concentric stars, 2,000 points, five widths: the weight moves to wider kernels as the
       stars move apart.
sine   regression on sin(f x), 1,000 points, eleven widths: the weight moves to narrower kernels.
sites  splice sites of C. elegans (``c_elegans_acc_2200.csv.gz``), else random DNA with a planted
       motif: weights over the lengths of k-mers and over positions, and areas under the ROC and
       the precision-recall curve of the weighted degree kernel on held-out sites.

The gallery has these examples with all their pictures; areas and times on up to 64,000 sites are
those of ``examples/splice_sites.py``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks.data import MissingDataError, load_set, signs
from benchmarks.part import read_options
from benchmarks.problems import simulate
from benchmarks.show import Table, new_figure, save
from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.kernels import RBF, WeightedDegree

STAR_WIDTHS = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
SINE_WIDTHS = np.geomspace(0.1, 10.0, 11)
DEGREE, WINDOW = 20, 5


@dataclass(frozen=True)
class Moves:
    """Weights of kernels while a problem changes: a row for each `value` of what changes."""

    values: np.ndarray
    widths: np.ndarray
    weights: np.ndarray

    @property
    def mean_width(self) -> np.ndarray:
        """Of each row, on a logarithmic scale."""
        return np.exp(self.weights @ np.log(self.widths))


def stars(separations: np.ndarray, n: int = 2000) -> Moves:
    """Two stars, one in the other: outlines with ten rays and noise, the SHOGUN example's C."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], n // 2)
    angle = rng.uniform(0, 2 * np.pi, size=n)
    noise = rng.normal(scale=0.3, size=n)
    # The paper's width is the denominator in exp(-|x - x'|^2 / width).
    kernels = [RBF(gamma=1 / width) for width in STAR_WIDTHS]
    weights = []
    for separation in separations:
        radius = 4 + separation * y + np.sin(10 * angle) + noise
        X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        weights.append(MKLClassifier(kernels, C=0.5, solver="silp").fit(X, y).weights_)
    return Moves(separations, STAR_WIDTHS, np.array(weights))


def sines(frequencies: np.ndarray, n: int = 1000) -> Moves:
    x = np.linspace(1, 20 * np.pi, n)[:, None]
    kernels = [RBF(width=width) for width in SINE_WIDTHS]
    model = MKLRegressor(kernels, C=10, epsilon=0.01, target_scale=None, solver="silp")
    weights = [model.fit(x, np.sin(f * x[:, 0])).weights_ for f in frequencies]
    return Moves(frequencies, SINE_WIDTHS, np.array(weights))


def sites(data_dir: Path | str | None, n: int = 2200) -> dict[str, Any]:
    """Weights over lengths and positions, and areas under the curves on a third of the sites."""
    try:
        data = load_set("c_elegans", data_dir)
        X, y, title, origin = np.array(data.X), signs(data), "C. elegans acceptor sites", 40
    except MissingDataError:
        X, y = simulate(n, length=82)
        X, title, origin = X.astype(str), "generated sites", 35
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=1 / 3, stratify=y, random_state=0
    )
    found: dict[str, Any] = {"title": title, "n": len(train), "origin": origin}
    kernel = WeightedDegree(DEGREE)
    families = {"fixed": kernel, "lengths": kernel.by_length()}
    families["positions"] = kernel.by_position(WINDOW)
    for name, family in families.items():
        model = MKLClassifier(family, solver="silp", class_weight="balanced").fit(train, y_train)
        decision = model.decision_function(test)
        found[name] = {
            "roc": roc_auc_score(y_test, decision),
            "prc": average_precision_score(y_test, decision),
            "weights": model.weights_ if name != "fixed" else [],
        }
    return found


def draw(star: Moves, sine: Moves, found: dict[str, Any], path: Path) -> None:
    fig, ((a, b), (c, d)) = new_figure(9.2, 6.0, 2, 2)
    tints = ["#440154", "#3B528B", "#21918C", "#5EC962", "#D7C21C"]
    looks = zip(star.widths, star.weights.T, tints, "osD^v", strict=True)
    for width, line, colour, marker in looks:
        a.plot(star.values, line, marker=marker, ms=4, color=colour, label=f"{width:g}")
    a.set(title="Stars: weight of each width", xlabel="separation", ylabel="kernel weight")
    a.legend(title="width", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    b.loglog(sine.values, sine.mean_width, "o-", color="#0072B2", label="mean width learnt")
    b.loglog(sine.values, 1 / sine.values, "--", color="#D55E00", label="1 / frequency")
    b.set(title="Sine: the width follows the frequency", xlabel="frequency", ylabel="width")
    b.legend(frameon=False)
    lengths = found["lengths"]["weights"]
    c.bar(np.arange(1, len(lengths) + 1), lengths, color="#0072B2")
    c.set(title=f"{found['title']}: lengths", xlabel="length of the k-mers", ylabel="kernel weight")
    c.set_xticks([1, 5, 10, 15, 20])
    starts = WINDOW * np.arange(len(found["positions"]["weights"])) - found["origin"]
    d.bar(starts + 2, found["positions"]["weights"], width=4.5, color="#0072B2")
    d.set(title="and positions", xlabel="start of the k-mers, from the A of the AG")
    save(fig, path)


def main() -> None:
    args = read_options(
        __doc__,
        quick={"count": 4, "stars": 600, "sine": 300},
        count=(12, "separations and frequencies"),
        stars=(2000, "points of the stars"),
        sine=(1000, "points of the sine"),
        figure=None,
    )
    star = stars(np.linspace(0.1, 5.7, args.count), args.stars)
    sine = sines(np.geomspace(0.1, 5.0, args.count), args.sine)
    for name, what, moves in (("stars", "separation", star), ("sine", "frequency", sine)):
        shown = Table(name, [what, "mean width"])
        for row in zip(moves.values, moves.mean_width, strict=True):
            shown.row(*row)
    found = sites(args.data_dir)
    title = f"sites: {found['title']}, {found['n']} training sites"
    shown = Table(title, ["weights over", "ROC", "PRC", "weights"])
    for name in ("fixed", "lengths", "positions"):
        areas = f"{found[name]['roc']:.4f}", f"{found[name]['prc']:.4f}"
        shown.row(name, *areas, " ".join(f"{w:.3f}" for w in found[name]["weights"]))
    # Counted from the A of the AG, or of the motif.
    first = WINDOW * int(np.argmax(found["positions"]["weights"])) - found["origin"]
    print(f"heaviest window starts at {first:+d}")
    if args.figure:
        draw(star, sine, found, args.figure)


if __name__ == "__main__":
    main()
