r"""
Splice sites of the worm: string kernels at scale
=================================================

Where an intron ends and an exon begins stands AG. Most AGs of a genome are no such *acceptor site*:
in *C. elegans* some 3 of 100 near genes are. What stands around the AG tells them apart. This
script learns it with the weighted degree kernel, by one support vector machine and by multiple
kernel learning, which says where the signal is and how long its k-mers are. After Sonnenburg et al.
(2006), *Large Scale Multiple Kernel Learning*.

.. code-block:: console

    python examples/splice_sites.py                  # simulated sites, two minutes
    python examples/splice_sites.py --data-dir DIR --sizes 1000 3000 10000 30000 60000 --spectrum

The second needs ``c_elegans_acc_first100k.fasta.bz2`` in ``DIR``: 100,000 AGs of chromosomes 1 and
2 with the 398 letters around each, 3.3 % of them acceptor sites (``easysvm`` in the data of the
SHOGUN toolbox), and dnaio (``pip install 'kernelweave[bio]'``). There are three parts:

* A table of the areas under the ROC and the precision-recall curve (PRC) on held-out sites, for
  growing numbers n of training sites: the weighted degree kernel, the same with shifts, MKL over
  its k-mer lengths and over positions, and a Markov chain whose letters depend on the position.
* Seconds of one weighted degree SVM against n, with the kernel matrix computed first, with rows of
  it on demand, and with none of it ("linadd": look-ups of k-mers).
* Three figures: time, areas, learnt weights.

Areas under the ROC / the PRC by the second command, with C (or the order of the chain) chosen on
validation sites:

======  =============  =============  =============  ==============  =============  =============
n       weighted       with shifts    MKL over       MKL over        Markov         spectrum,
        degree         up to 2        lengths        positions       chain          1- to 6-mers
======  =============  =============  =============  ==============  =============  =============
1,000   0.979 / 0.667  0.984 / 0.720  0.980 / 0.686  0.978 / 0.619   0.980 / 0.662  0.649 / 0.051
3,000   0.985 / 0.731  0.989 / 0.791  0.985 / 0.742  0.984 / 0.712   0.984 / 0.725  0.685 / 0.065
10,000  0.992 / 0.844  0.994 / 0.872  0.991 / 0.838  0.992 / 0.839   0.990 / 0.794  0.732 / 0.078
30,000  0.995 / 0.888  0.996 / 0.905  0.994 / 0.881  0.995 / 0.893   0.993 / 0.845  0.773 / 0.094
60,000  0.996 / 0.908  0.996 / 0.920  0.995 / 0.904  0.996 / 0.913   0.994 / 0.863  0.795 / 0.099
======  =============  =============  =============  ==============  =============  =============

While sites are few the chain keeps up with all but the shifts; later a quarter to a third of what
it misses is found. Words without their places (spectrum) say little. MKL gives most weight to the
positions just before the AG, and some to those 40 to 50 letters before: there the short introns of
the worm begin. It pays where the window is not known: with all 398 letters (``--window 0``) 10,000
sites give 0.991 / 0.831 with weights for positions, 0.989 / 0.802 without.
"""

# %%
# Reading
# -------

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from sklearn.metrics import average_precision_score, roc_auc_score

from kernelweave import MKLClassifier, read_sequences
from kernelweave.kernels import Kernel, Spectrum, WeightedDegree
from kernelweave.kernels.families import Family
from kernelweave.report import plot_length_weights, plot_position_weights, plot_sequence_logo

FILE = "c_elegans_acc_first100k.fasta.bz2"
WHOLE, AG_AT = 398, 197  # Letters of a sequence of the file, and letters before its AG.
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#999999", "#CC79A7")


@dataclass(frozen=True)
class Sites:
    """AGs with the letters around them."""

    sequences: np.ndarray  # As bytes, all of one length.
    labels: np.ndarray  # 1: an acceptor site, -1: none.
    groups: np.ndarray  # Sites whose windows overlap are of the same group.
    before: int  # Letters before the AG.


def read_worm(folder: Path, window: int) -> Sites:
    """Read the file and cut the sequences to `window` letters on both sides of the A (0: all)."""
    records = read_sequences(folder / FILE)
    before, length = shape(window)
    cut = slice(AG_AT - before, AG_AT - before + length)
    # The file goes along the genome, strand by strand. A gap as wide as a sequence ends a group.
    position = records.field("position").astype(int)
    strand = np.char.add(records.field("chr_num"), records.field("strand"))
    apart = (np.abs(np.diff(position)) >= WHOLE) | (strand[1:] != strand[:-1])
    return Sites(
        np.array([sequence[cut] for sequence in records.sequences], dtype=f"S{length}"),
        records.field("label").astype(int),
        np.concatenate([[0], np.cumsum(apart)]),
        before,
    )


def shape(window: int) -> tuple[int, int]:
    """Letters before the AG, and letters of a sequence."""
    return (window, 2 * window + 1) if window else (AG_AT, WHOLE)


def split(sites: Sites, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training (65 %), validation (10 %) and test sites (25 %), shuffled.

    Neighbouring AGs share most of their letters. Groups go into one part as a whole, so nobody is
    tested on what he has seen. Copies elsewhere in the genome stay in the last of their parts.
    """
    order = rng.permutation(sites.groups.max() + 1)
    share = np.cumsum(np.bincount(sites.groups)[order]) / len(sites.labels)
    part_of = np.empty(len(order), dtype=int)
    part_of[order] = np.searchsorted([0.65, 0.75], share)
    parts = [rng.permutation(np.flatnonzero(part_of[sites.groups] == k)) for k in range(3)]
    for k in range(2):
        later = sites.sequences[np.concatenate(parts[k + 1 :])]
        parts[k] = parts[k][~np.isin(sites.sequences[parts[k]], later)]
    return parts[0], parts[1], parts[2]


# %%
# Or simulating
# -------------
# Letters of a Markov chain, with an AG in the middle of each sequence. 3 % of them have what the
# worm has at its acceptor sites: few Gs in the intron, words of Ts before the AG, an exon after it.

LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
# Chances of A, C, G, T after each of them, rounded from AGs that are no acceptor sites.
AFTER = np.array([[40, 15, 19, 26], [34, 19, 20, 27], [37, 19, 20, 24], [19, 21, 22, 38]]) / 100
IN_EXON = (0.30, 0.25, 0.20, 0.25)
BEFORE_AG = ("ATTTTC", "TTTTTC", "AATTTC", "TTTTCC", "ATTTTT", "CATTAC")
AFTER_AG = ("ATT", "AAA", "ATC", "GAA", "GTT", "ATG")


def simulate(n: int, window: int, rng: np.random.Generator) -> Sites:
    """Sites of the same kind as the worm's."""
    ag, length = shape(window)
    labels = np.where(rng.random(n) < 0.033, 1, -1)
    codes = rng.integers(0, 4, (n, length))
    for at in range(1, length):
        chances = AFTER.cumsum(axis=1)[codes[:, at - 1], :3]
        codes[:, at] = (rng.random((n, 1)) > chances).sum(axis=1)
    real = codes[labels == 1]
    intron = real[:, max(0, ag - 40) : ag]
    intron[(intron == 2) & (rng.random(intron.shape) < 0.5)] = 3
    real[:, ag + 2 :] = rng.choice(4, size=real[:, ag + 2 :].shape, p=IN_EXON)
    plant(real, BEFORE_AG, ag - 6, rng)
    plant(real, AFTER_AG, ag + 2, rng)
    codes[labels == 1] = real
    codes[:, ag : ag + 2] = 0, 2
    return Sites(LETTERS[codes].view(f"S{length}").ravel(), labels, np.arange(n), ag)


def plant(codes: np.ndarray, words: tuple[str, ...], at: int, rng: np.random.Generator) -> None:
    """Write one of the words at a position, but for one letter in six."""
    known = np.searchsorted(LETTERS, np.array([list(word.encode()) for word in words]))
    chosen = known[rng.integers(0, len(words), len(codes))]
    target = codes[:, at : at + known.shape[1]]
    np.copyto(target, chosen, where=rng.random(target.shape) > 1 / 6)


# %%
# The baseline
# ------------


class MarkovChain:
    """Log odds of two Markov chains, one for each class, that differ from position to position.

    A letter depends on the `order` letters before it. `pseudocount` is added to all counts.
    """

    def __init__(self, order: int, pseudocount: float) -> None:
        self.order = order
        self.pseudocount = pseudocount

    def fit(self, sequences: np.ndarray, labels: np.ndarray) -> MarkovChain:
        cells = self._cells(sequences)
        self.table = self._log_chances(cells[labels == 1]) - self._log_chances(cells[labels != 1])
        return self

    def decision_function(self, sequences: np.ndarray) -> np.ndarray:
        return self.table[self._cells(sequences)].sum(axis=1)

    def _cells(self, sequences: np.ndarray) -> np.ndarray:
        """The number of each letter with those before it and its position."""
        letters = sequences.view(np.uint8).reshape(len(sequences), -1)
        codes = np.searchsorted(LETTERS, letters)
        out = codes.copy()
        for back in range(1, self.order + 1):
            out[:, back:] += 4**back * codes[:, :-back]
        return out + 4 ** (self.order + 1) * np.arange(codes.shape[1])

    def _log_chances(self, cells: np.ndarray) -> np.ndarray:
        size = cells.shape[1] * 4 ** (self.order + 1)
        counts = np.bincount(cells.ravel(), minlength=size).reshape(-1, 4) + self.pseudocount
        return np.log(counts / counts.sum(axis=1, keepdims=True)).ravel()


# %%
# Areas under the curves
# ----------------------
# Why ``class_weight="balanced"``, by which an acceptor site weighs as much as 30 other AGs? For
# large C it makes no difference: 20-mers separate the training sites, whatever errors cost. For
# small C, which may be better on few sites, acceptor sites would be the first to be given up.


Model = MKLClassifier | MarkovChain


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    n: int
    method: str
    roc: float
    prc: float
    model: Model


def svm(kernels: Kernel | Family, C: float, **options: object) -> MKLClassifier:
    return MKLClassifier(kernels, C=C, class_weight="balanced", **options)


def candidates(args: argparse.Namespace) -> dict[str, dict[str, Model]]:
    """Models to choose from on the validation sites, by method and setting."""
    wd = WeightedDegree(args.degree)
    kernels: dict[str, Kernel | Family] = {
        "weighted degree": wd,
        "with shifts up to 2": WeightedDegree(args.degree, shift=2),
        "MKL over lengths": wd.by_length(),
        "MKL over positions": wd.by_position(args.step),
    }
    if args.spectrum:
        kernels["spectrum 1-6"] = Spectrum((1, 6))
    options = {"tol": 1e-2, "n_jobs": args.n_jobs}
    out: dict[str, dict[str, Model]] = {
        name: {f"C = {C:g}": svm(kernel, C, **options) for C in (0.1, 1.0, 10.0)}
        for name, kernel in kernels.items()
    }
    out["Markov chain"] = {
        f"order {order}, + {count:g}": MarkovChain(order, count)
        for order in range(4)
        for count in (0.1, 1.0, 10.0)
    }
    return out


def compare(args: argparse.Namespace, sites: Sites, parts: tuple[np.ndarray, ...]) -> list[Result]:
    """Print and return the table."""
    train, validation, test = parts
    X, y = sites.sequences, sites.labels
    for models in candidates(args).values():  # Compiles, so that no fit of the table has to.
        next(iter(models.values())).fit(X[train[:300]], y[train[:300]])
    print(f"{'n':>7}  {'method':<20} {'ROC AUC':>8} {'PRC AUC':>8}  {'chosen':<15} {'seconds':>7}")
    results = []
    for n in args.sizes:
        for method, models in candidates(args).items():
            best = -1.0
            for setting, model in models.items():
                seconds = fit_seconds(model, X[train[:n]], y[train[:n]])
                area = average_precision_score(
                    y[validation], model.decision_function(X[validation])
                )
                if area > best:
                    best, chosen, text = area, model, f"{setting:<15} {seconds:7.1f}"
            values = chosen.decision_function(X[test])
            roc, prc = roc_auc_score(y[test], values), average_precision_score(y[test], values)
            results.append(Result(n, method, roc, prc, chosen))
            print(f"{n:>7,}  {method:<20} {roc:8.4f} {prc:8.4f}  {text}", flush=True)
    return results


def fit_seconds(model: Model, X: np.ndarray, y: np.ndarray) -> float:
    began = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - began


# %%
# Time against n
# --------------

WAYS = {
    "matrix first, 2 threads": {"bank": "dense", "n_jobs": 2},
    "cached rows, 2 threads": {"bank": "lazy", "n_jobs": 2},
    "linadd, 1 thread": {"bank": "positional", "n_jobs": 1},
    "linadd, 2 threads": {"bank": "positional", "n_jobs": 2},
}
Points = list[tuple[int, float]]  # Sites and seconds.


def scan(args: argparse.Namespace, sites: Sites, train: np.ndarray) -> dict[str, Points]:
    """Seconds of a weighted degree SVM in each way, up to where a fit would take too long."""
    X, y = sites.sequences[train], sites.labels[train]
    print(f"\nseconds of one fit\n{'n':>7}" + "".join(f"{way:>25}" for way in WAYS))
    for options in WAYS.values():  # Compiles.
        svm(WeightedDegree(args.degree), 1.0, **options).fit(X[:300], y[:300])
    found: dict[str, Points] = {way: [] for way in WAYS}
    for n in args.time_sizes:
        cells = ""
        for way, options in WAYS.items():
            if expected(found[way], n) <= args.max_seconds:
                model = svm(WeightedDegree(args.degree), 1.0, **options)
                found[way].append((n, fit_seconds(model, X[:n], y[:n])))
                cells += f"{found[way][-1][1]:25.2f}"
            else:
                cells += f"{'-':>25}"
        print(f"{n:>7,}{cells}", flush=True)
    return found


def expected(points: Points, n: int) -> float:
    """Seconds for n sites, if they go on growing as they did."""
    if not points:
        return 0.0
    last_n, seconds = points[-1]
    return seconds * (n / last_n) ** max(1.0, slope(points[-2:]))


def slope(points: Points) -> float:
    """The exponent e of seconds = n^e, by least squares."""
    if len(points) < 2:
        return 1.0
    return float(np.polyfit(*np.log(points).T, 1)[0])


# %%
# Figures
# -------


def size_axis(ax: Axes, sizes: list[int]) -> None:
    ax.set_xlabel("training sites n")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def draw_times(found: dict[str, Points]) -> Figure:
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    ax = figure.subplots()
    for (way, points), colour in zip(found.items(), COLOURS, strict=False):
        # The last sizes: below there are overheads that do not grow.
        label = f"{way}: $n^{{{slope(points[-4:]):.1f}}}$"
        ax.loglog(*zip(*points, strict=True), "o-", color=colour, label=label)
    ax.set(ylabel="seconds", title="One weighted degree SVM")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.legend(frameon=False)
    size_axis(ax, [n for n, _ in max(found.values(), key=len)])
    return figure


def draw_areas(results: list[Result]) -> Figure:
    figure = Figure(figsize=(9, 4), layout="constrained")
    # Far below the others, spectrum kernels would press them together.
    methods = list(dict.fromkeys(r.method for r in results if "spectrum" not in r.method))
    for ax, name in zip(figure.subplots(1, 2), ("roc", "prc"), strict=True):
        for method, colour in zip(methods, COLOURS, strict=False):
            own = [result for result in results if result.method == method]
            n, values = [r.n for r in own], [getattr(r, name) for r in own]
            ax.semilogx(n, values, "o-", color=colour, label=method)
        ax.set_title(f"area under the {name.upper()}")
        size_axis(ax, n)
    figure.axes[1].legend(frameon=False, loc="lower right")
    return figure


def draw_weights(results: list[Result], sites: Sites) -> Figure:
    models = {result.method: result.model for result in results}  # Those of the largest n.
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    logo, lengths, positions = figure.subplots(3, 1)
    near = (max(0, sites.before - 25), sites.before + 15)
    plot_sequence_logo(models["weighted degree"], logo, positions=near, origin=sites.before)
    plot_length_weights(models["MKL over lengths"], lengths)
    plot_position_weights(models["MKL over positions"], positions, origin=sites.before)
    logo.set_title("weighted degree: letters for and against an acceptor site", fontsize=11)
    lengths.set_title("MKL over lengths", fontsize=11)
    positions.set_title("MKL over positions", fontsize=11)
    positions.set_xlabel("start of the k-mers, from the A of the AG")
    return figure


# %%
# All of it
# ---------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Splice sites of the worm.")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("KERNELWEAVE_DATA"),
        help=f"folder with {FILE}; without it sites are simulated",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--degree", type=int, default=20, help="longest k-mers")
    parser.add_argument("--window", type=int, default=70, help="letters on each side; 0: all 398")
    parser.add_argument("--step", type=int, default=5, help="positions of one kernel")
    parser.add_argument("--spectrum", action="store_true", help="k-mers wherever they stand, too")
    parser.add_argument("--simulate", type=int, metavar="N", help="simulate N sites in any case")
    default = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000]
    parser.add_argument("--time-sizes", type=int, nargs="*", default=default)
    parser.add_argument(
        "--max-seconds", type=float, default=20, help="longest fit of the time scan"
    )
    parser.add_argument("--n-jobs", type=int, default=None, help="threads for the table; all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the figures")
    return parser.parse_args()


def main() -> None:
    args = parse()
    rng = np.random.default_rng(args.seed)
    if args.data_dir and not args.simulate:
        sites = read_worm(args.data_dir, args.window)
        print(f"C. elegans acceptor sites, {FILE}")
    else:
        wanted = max([*args.sizes, *args.time_sizes, 20_000])
        sites = simulate(args.simulate or math.ceil(wanted / 0.65) + 10, args.window, rng)
        print("SIMULATED acceptor-like sites, no data of the worm (--data-dir has those)")
    parts = split(sites, rng)
    args.sizes = sorted({min(n, len(parts[0])) for n in args.sizes})
    args.time_sizes = [n for n in args.time_sizes if n <= len(parts[0])]
    for name, rows in zip(("training", "validation", "test"), parts, strict=True):
        print(f"{len(rows):>7,} {name} sites, {np.mean(sites.labels[rows] == 1):.2%} positive")
    results = compare(args, sites, parts)
    figures = {"areas": draw_areas(results), "weights": draw_weights(results, sites)}
    if args.time_sizes:
        figures["times"] = draw_times(scan(args, sites, parts[0]))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = args.out / f"splice_sites_{name}.png"
        figure.savefig(path, dpi=150)
        print(f"saved {path}")


if __name__ == "__main__":
    main()
