"""SpicyMKL's experiments (Suzuki and Tomioka, section 5), all solvers on the same problems.

    python -m benchmarks.papers.spicy --data-dir DIR                       # everything
    python -m benchmarks.papers.spicy --parts kernels --figure spicy.png   # some, with a figure
    python -m benchmarks.papers.spicy --parts uci --repeats 10             # splits as in the paper
    python -m benchmarks.papers.spicy --quick                              # smaller

uci      Figure 1: five UCI sets, 27 (d + 1) kernels, c = 0.005, 0.05, 0.5, relative gap 1e-2, 80/20
         splits: seconds, test accuracy, kernels selected (mean and standard deviation).
kernels  Figure 3: ringnorm and splice, n = 200, 50 to 6,000 Gaussian kernels on random subsets of
         the features with widths 5 chi2 + 0.1, gaps 1e-2 and 1e-6; then n = 1,000 with 1,500
         kernels (--large; 4 bytes a value, so 6 GB), and whole fits from raw data.
samples  Figure 4: 20 such kernels, growing n; and low-rank kernels of single features at large n.

Every solver is given the same problem: the unweighted loss plus c sum_k |f_k|, hinge or logistic,
so the work is equal. (The paper's rivals take the simplex form; its eq. 13 converts c so that the
solution is the same, which is not needed here.) As in the paper c is counted for kernels of unit
trace (`unit_trace_c`), and kernel matrices are there before the clock starts. The paper does not
say which c its Figures 3 and 4 have: --c.

Times are the smallest of interleaved rounds. A fit that has not converged after --max-time seconds,
or after 40 times the fastest solver's time on the same problem (at least 3 s), is shown as
"> SECONDS". A pass are the products of all kernel matrices with a vector.
"""

from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.data import load
from benchmarks.papers.contest import Entry, Limited
from benchmarks.papers.spicy_problems import (
    LOOSE,
    LOSSES,
    SOLVERS,
    TIGHT,
    all_solvers,
    block_l1_problem,
    draw,
    products,
    race,
    random_bank,
    random_kernels,
    ringnorm,
    rounded_bank,
    unit_trace_c,
)
from benchmarks.part import read_options
from benchmarks.show import Table, new_figure, plain_numbers, save, spread, verdict
from benchmarks.timing import best_of, growth, seconds_of
from benchmarks.timing import race as take_turns
from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, FactoredBank, build_bank
from kernelweave.combine import WeightedSum
from kernelweave.estimators.decisions import Decisions
from kernelweave.kernels import RBF
from kernelweave.operators import bind_kernels
from kernelweave.regularizers import L1, block_l1_to_l1_weight

UCI, IDA = ("liver", "pima", "ionosphere", "wpbc", "sonar"), ("ringnorm", "splice")
UCI_C = (0.005, 0.05, 0.5)
# {(part, data set, gap, loss, solver): [(m or n, entry), ...]}, for figure and targets.
curves: dict[tuple[str, str, float, str, str], list[tuple[int, Entry]]] = {}


def measured(args: Any, part: str, name: str, tol: float, size: int, bank: Any, y: Any) -> Any:
    """Race all solvers on all losses; keep what they took for figure and targets."""
    rounds = args.rounds if bank.n <= 2000 else 1
    best = race(all_solvers(bank, y, args.c, args.max_time), tol, rounds)
    for contestant, entry in best.items():
        curves.setdefault((part, name, tol, *contestant), []).append((size, entry))
    return best


# Figure 1


def uci(args: Any) -> None:
    heads = ["data", "n", "m", "c", "solver", "seconds", "test accuracy", "kernels", "build, s"]
    title = f"## uci: relative gap {LOOSE:g}, {args.repeats} splits, {args.bank} bank"
    found = Table(title, heads)
    chosen = [("spicy", "hinge"), ("spicy", "logistic")]
    chosen += [(name, "hinge") for name in SOLVERS if name != "spicy"]
    for name in UCI[-1:] if args.quick else UCI:
        X, y = load(name, args.data_dir)
        rows: dict[tuple[float, str, str], list[tuple[float, float, int, bool]]] = {}
        built = []
        for split in range(args.repeats):
            train, test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=split)
            kernels = bind_kernels("spicymkl", train, normalize="trace")
            plan = {"tol": LOOSE, "random_state": 0}
            seconds, bank = seconds_of(lambda k=kernels, p=plan: build_bank(args.bank, k, **p))
            built.append(seconds)
            for c in UCI_C:
                problems = {loss: block_l1_problem(bank, y_train, loss, c) for loss in LOSSES}
                contestants = {
                    (s, loss): Limited(problems[loss], SOLVERS[s], args.max_time)
                    for s, loss in chosen
                }
                for key, entry in race(contestants, LOOSE, args.rounds).items():
                    fit, all_rows = entry.result, np.arange(len(train))
                    decide = Decisions(kernels, WeightedSum(), fit.d[None], all_rows, fit.alpha)
                    value = decide(test)[:, 0] + fit.intercept[0]
                    accuracy = 100 * float(np.mean(np.where(value > 0, 1.0, -1.0) == y_test))
                    row = entry.seconds, accuracy, entry.in_use, entry.converged
                    rows.setdefault((c, *key), []).append(row)
        for (c, solver, loss), own in rows.items():
            seconds, accuracy, used, converged = zip(*own, strict=True)
            missed = "" if all(converged) else f" ({converged.count(False)} not converged)"
            cells = [spread(seconds, 3) + missed, spread(accuracy, 1), spread(used, 1)]
            head = name, len(train), bank.m, c, f"{solver} ({loss})"
            found.row(*head, *cells, float(np.mean(built)))


# Figure 3


def kernels(args: Any) -> None:
    n = 200
    for name in IDA:
        X, y = draw(*load(name, args.data_dir), n)
        v = np.random.default_rng(0).normal(size=n)
        for tol in (LOOSE, TIGHT):
            passes = []
            for m in args.m:
                bank = random_bank(X, m, tol)
                passes.append(best_of(lambda b=bank, v=v: b.quad(v))[0])
                measured(args, "kernels", name, tol, m, bank, y)
            for loss in LOSSES:
                show_kernels(name, n, tol, loss, args.c, passes)
    large(args)
    from_raw_data(args)
    targets()


def show_kernels(name: str, n: int, tol: float, loss: str, c: float, passes: list[float]) -> None:
    columns = [curves["kernels", name, tol, loss, solver] for solver in SOLVERS]
    sizes, seconds = zip(*((m, entry.seconds) for m, entry in columns[0]), strict=True)
    later = [total - one for total, one in zip(seconds, passes, strict=True)]
    heads = ["m", "one pass", "spicy", "grows as m^", "after the first pass as m^", "Newton steps"]
    title = f"## kernels: {name}, n = {n}, {loss} loss, relative gap {tol:g}, c = {c:g}; seconds"
    found = Table(title, [*heads, "passes", "kernels in use", *list(SOLVERS)[1:]])
    slopes = zip(growth(sizes, seconds), growth(sizes, later), strict=True)
    for m, one, two, entries in zip(sizes, passes, slopes, zip(*columns, strict=True), strict=True):
        spicy, *others = (entry for _, entry in entries)
        work = spicy.last.inner_iterations, spicy.noted / m, spicy.in_use
        found.row(m, one, spicy.text(), *two, *work, *(entry.text() for entry in others))


def large(args: Any) -> None:
    """More samples, where the kernels in float64 may be more than the memory."""
    n, m = args.large
    title = f"## kernels: n = {n}, m = {m}, relative gap {TIGHT:g}, c = {args.c:g}; seconds"
    heads = ["data", "loss", *SOLVERS, "Newton steps", "passes", "kernels in use"]
    found = Table(title, heads)
    for name in IDA:
        X, y = draw(*load(name, args.data_dir), n)
        bank = rounded_bank(bind_kernels(random_kernels(m, X.shape[1]), X))
        best = measured(args, "large", name, TIGHT, m, bank, y)
        for loss in LOSSES:
            spicy = best[loss, "spicy"]
            cells = [best[loss, solver].text() for solver in SOLVERS]
            work = spicy.last.inner_iterations, spicy.noted / m, spicy.in_use
            found.row(name, loss, *cells, *work)


def from_raw_data(args: Any) -> None:
    """`MKLClassifier.fit`, kernels and all."""
    n, m = 200, 500 if args.quick else 3000
    regularizer = L1(block_l1_to_l1_weight(unit_trace_c(args.c, n)))
    title = f"MKLClassifier.fit from raw data, m = {m}, n = {n}, logistic, gap {LOOSE:g}"
    found = Table(f"## kernels: {title}", ["data", "bank", "seconds", "gap", "kernels in use"])
    shared = {"loss": "logistic", "regularizer": regularizer, "solver": "spicy", "tol": LOOSE}
    for name in IDA:
        X, y = draw(*load(name, args.data_dir), n)
        batch = random_kernels(m, X.shape[1])
        fits = {
            bank: lambda b=bank, k=batch, X=X, y=y: MKLClassifier(k, bank=b, **shared).fit(X, y)
            for bank in ("auto", "dense")
        }
        for bank, (seconds, model) in take_turns(fits, args.rounds + 1).items():
            found.row(name, bank, seconds, model.gap_, np.count_nonzero(model.weights_))


def targets() -> None:
    print("\n## targets")
    for name in IDA:
        for m, entry in curves["kernels", name, LOOSE, "logistic", "spicy"]:
            limit = {3000: 1.0, 6000: 2.0}.get(m)
            if limit is not None:
                text = f"{entry.seconds:.2f} s, wanted under {limit:g} s"
                passed = entry.converged and entry.seconds < limit
                verdict(passed, f"{name}: {m} kernels, logistic, gap {LOOSE:g}: {text}")
        for tol in (LOOSE, TIGHT):
            for loss in LOSSES:
                rows = curves["kernels", name, tol, loss, "spicy"]
                tail = [(m, entry.seconds) for m, entry in rows if m >= 200]
                slope = np.polyfit(*np.log(tail).T, 1)[0]
                text = f"{name}: {loss}, gap {tol:g}: grows as m^{slope:.2f}, m >= 200"
                verdict(slope < 1.0, text)
        for part in ("kernels", "large"):
            for loss in LOSSES:
                by_solver = [curves[part, name, TIGHT, loss, solver] for solver in SOLVERS]
                for (m, spicy), *rest in zip(*by_solver, strict=True):
                    if m > 1000:
                        other = min(entry.seconds for _, entry in rest)
                        passed = spicy.converged and spicy.seconds < other
                        text = f"{spicy.text()} s, best of the others {other:.3f} s"
                        n = len(spicy.result.alpha[0])
                        verdict(passed, f"{name}: n = {n}, m = {m}, {loss}, gap {TIGHT:g}: {text}")


# Figure 4


def samples(args: Any) -> None:
    m = 20
    title = f"## samples: {m} kernels, relative gap {LOOSE:g}, c = {args.c:g}; seconds"
    found = Table(title, ["data", "n", "loss", *SOLVERS, "Newton steps", "kernels in use"])

    def rows(name: str, bank: Any, y: Any) -> None:
        best = measured(args, "samples", name, LOOSE, bank.n, bank, y)
        for loss in LOSSES:
            spicy = best[loss, "spicy"]
            cells = [best[loss, solver].text() for solver in SOLVERS]
            found.row(name, bank.n, loss, *cells, spicy.last.inner_iterations, spicy.in_use)

    for name in IDA:
        X, y = load(name, args.data_dir)
        for n in args.n:
            if n <= len(X):
                X_n, y_n = draw(X, y, n)
                rows(name, random_bank(X_n, m, LOOSE), y_n)
    for n in args.factored:
        X, y = ringnorm(n)
        widths = 5.0 * np.random.default_rng(0).chisquare(1, m) + 0.1
        single = [RBF(width=w).on(j % X.shape[1]) for j, w in enumerate(widths)]
        bank = FactoredBank().build(bind_kernels(single, X))
        rows(f"ringnorm drawn anew, factors of {bank.ranks.mean():.0f}", bank, y)


def draw_figure(path: str) -> None:
    """Seconds against m and n, log-log, in the manner of the paper's Figures 3 and 4."""
    titles = {
        ("kernels", LOOSE): ("number of kernels m", "n = 200, gap 1e-2"),
        ("kernels", TIGHT): ("number of kernels m", "n = 200, gap 1e-6"),
        ("samples", LOOSE): ("number of samples n", "20 kernels, gap 1e-2"),
    }
    kinds = [kind for kind in titles if any((key[0], key[2]) == kind for key in curves)]
    if not kinds:
        print("no figure: it shows the parts kernels and samples")
        return
    shape = len(IDA), len(kinds)
    fig, axes = new_figure(4.2 * shape[1], 3.6 * shape[0], *shape, sharex="col", sharey=True)
    late: Any = None
    for (row, column), ax in np.ndenumerate(axes):
        name, kind = IDA[row], kinds[column]
        for color, solver in enumerate(SOLVERS):
            for loss, style in zip(LOSSES, ("-", "--"), strict=True):
                points = curves.get((kind[0], name, kind[1], loss, solver), [])
                x, y = [size for size, _ in points], [entry.seconds for _, entry in points]
                look = {"color": f"C{color}", "lw": 2.2 if solver == "spicy" else 1.2}
                ax.plot(x, y, style, marker="o", ms=3.5, label=f"{solver}, {loss}", **look)
                stopped = [(size, e.seconds) for size, e in points if not e.converged]
                x, y = np.reshape(stopped, (-1, 2)).T
                late = ax.plot(x, y, "^", ms=9, mfc="none", color=f"C{color}")[0]
        label, title = titles[kind]
        ax.set(title=f"{name}, {title}", xlabel=label if row else "")
    plain_numbers(*axes.flat)
    axes[0, 0].set_ylabel("seconds")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    save(fig, path, ([*handles, late], [*labels, "stopped before that gap"]))


PARTS = {"uci": uci, "kernels": kernels, "samples": samples}


def main() -> None:
    args = read_options(
        __doc__,
        parts=PARTS,
        repeats=(3, "80/20 splits; 10 in the paper"),
        rounds=(2, "runs of each fit, interleaved"),
        max_time=(60.0, "seconds for a fit"),
        c=(0.05, "of kernels and samples"),
        bank=("dense", "of uci", ("dense", "auto")),
        m=([50, 100, 200, 500, 1000, 2000, 3000, 6000], "of kernels"),
        n=([200, 500, 1000, 2000, 4000], "of samples"),
        large=([1000, 1500], "n and m"),
        factored=[20_000],
        figure=(None, "file: also draw the times"),
        quick=False,
    )
    if args.quick:
        args.repeats, args.rounds, args.max_time = 1, 1, min(args.max_time, 5.0)
        args.m, args.n, args.large, args.factored = [50, 200, 1000], [200, 500], [500, 200], [5000]
    products.start()
    # Compilation is not part of any time.
    X, y = ringnorm(200)
    for plan in (DenseBank("float32"), DenseBank("float64"), FactoredBank()):
        bank = plan.build(bind_kernels([RBF(width=5.0), RBF(width=1.0).on(0)], X))
        race(all_solvers(bank, y, 0.05, 5.0), LOOSE, 1)
    for part in args.parts:
        PARTS[part](args)
    if args.figure:
        draw_figure(args.figure)


if __name__ == "__main__":
    main()
