"""SpicyMKL's experiments (Suzuki and Tomioka, section 5), all solvers on the same problems.

    python -m benchmarks.papers.spicy --data-dir DIR                       # everything
    python -m benchmarks.papers.spicy --parts kernels --figure spicy.png   # some, with a figure
    python -m benchmarks.papers.spicy --parts uci --repeats 10             # splits as in the paper
    python -m benchmarks.papers.spicy --quick                              # smaller

uci       Figure 1: five UCI sets, 27 (d + 1) kernels, c = 0.005, 0.05, 0.5, relative gap 1e-2,
          80/20 splits: seconds, test accuracy, kernels selected (mean and standard deviation).
progress  Figure 2: ionosphere, 918 kernels, hinge loss, gap 1e-6: the duality gap and the kernels
          in use while a fit goes on.
kernels   Figure 3: ringnorm and splice, n = 200, 50 to 6,000 Gaussian kernels on random subsets of
          the features with widths 5 chi2 + 0.1, gaps 1e-2 and 1e-6.
large     the same at n = 1,000 with 1,500 kernels (--large; 4 bytes a value, so 6 GB).
raw       whole fits from raw data.
samples   Figure 4: 20 such kernels, growing n.
factored  and low-rank kernels of single features at large n.

Every solver is given the same problem: the unweighted loss plus c sum_k |f_k|, hinge or logistic,
so the work is equal. (The paper's rivals take the simplex form; its eq. 13 converts c so that the
solution is the same, which is not needed here.) As in the paper c is counted for kernels of unit
trace (`unit_trace_c`), and kernel matrices are there before the clock starts. The paper does not
say which c its Figures 3 and 4 have: --c. The set "drawn" is ringnorm drawn anew.

Times are the smallest of interleaved rounds, by the wall clock or, with --processor, processor
seconds of one thread. A fit that has not converged after --max-time seconds, or after 40 times the
fastest solver's time on the same problem (at least 3 s), is shown as "> SECONDS". A pass are the
products of all kernel matrices with a vector.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.data import available, load
from benchmarks.papers.spicy_problems import (
    LOOSE,
    LOSSES,
    SOLVERS,
    TIGHT,
    all_solvers,
    block_l1_problem,
    draw,
    race,
    random_bank,
    random_kernels,
    ringnorm,
    rounded_bank,
    unit_trace_c,
)
from benchmarks.papers.tables import Entry, Limited, fit
from benchmarks.part import run_parts
from benchmarks.show import Table, new_figure, plain_numbers, save, spread
from benchmarks.timing import best_of, growth, one_thread, seconds_of
from benchmarks.timing import race as take_turns
from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, FactoredBank, build_bank
from kernelweave.combine import WeightedSum
from kernelweave.estimators.decisions import Decisions
from kernelweave.kernels import RBF
from kernelweave.operators import bind_kernels
from kernelweave.regularizers import L1, block_l1_to_l1_weight

UCI = ["liver", "pima", "ionosphere", "wpbc", "sonar"]
UCI_C = (0.005, 0.05, 0.5)
SAMPLED = 20
# {(part, data set, gap, loss, solver): [(m or n, entry), ...]} and, of Figure 2,
# {solver: [(processor seconds, gap, kernels in use), ...]}: for the figure.
curves: dict[tuple[str, str, float, str, str], list[tuple[int, Entry]]] = {}
traces: dict[str, list[tuple[float, float, int]]] = {}


def clock_of(args: Any) -> Any:
    return time.process_time if args.processor else time.perf_counter


def measured(args: Any, part: str, name: str, tol: float, size: int, bank: Any, y: Any) -> Any:
    """Race all solvers on all losses; keep what they took for the figure."""
    rounds = args.rounds if bank.n <= 2000 else 1
    contestants = all_solvers(bank, y, args.losses, args.c, args.max_time)
    best = race(contestants, tol, rounds, clock_of(args))
    for contestant, entry in best.items():
        curves.setdefault((part, name, tol, *contestant), []).append((size, entry))
    return best


def samples_of(name: str, data_dir: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    return ringnorm(n) if name == "drawn" else draw(*load(name, data_dir), n)


def sampled(args: Any, n: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    read = partial(samples_of, n=n)
    for name, (X, y) in available(args.sets, args.data_dir, read):
        if len(X) == n:
            yield name, X, y


# Figure 1


def uci(args: Any) -> None:
    heads = ["data", "n", "m", "c", "solver", "seconds", "test accuracy", "kernels", "build, s"]
    title = f"## uci: relative gap {LOOSE:g}, {args.repeats} splits, {args.bank} bank"
    found = Table(title, heads)
    for name, (X, y) in available(args.uci, args.data_dir):
        rows: dict[Any, list[tuple[float, float, int, bool]]] = {}
        built = []
        for i in range(args.repeats):
            split = train_test_split(X, y, test_size=0.2, random_state=i)
            kernels = bind_kernels("spicymkl", split[0], normalize="trace")
            build = partial(build_bank, args.bank, kernels, tol=LOOSE, random_state=0)
            seconds, bank = seconds_of(build)
            built.append(seconds)
            for key, *row in uci_split(args, kernels, bank, split):
                rows.setdefault(key, []).append(tuple(row))
        for (c, solver, loss), own in rows.items():
            seconds, accuracy, used, converged = zip(*own, strict=True)
            missed = "" if all(converged) else f" ({converged.count(False)} not converged)"
            cells = [spread(seconds, 3) + missed, spread(accuracy, 1), spread(used, 1)]
            head = name, bank.n, bank.m, c, f"{solver} ({loss})"
            found.row(*head, *cells, float(np.mean(built)))


def uci_split(args: Any, kernels: Any, bank: Any, split: Any) -> Iterator[tuple[Any, ...]]:
    """Race all solvers for every c: (c, solver, loss), seconds, accuracy, kernels, converged."""
    _, test, y_train, y_test = split
    chosen = [("spicy", "hinge"), ("spicy", "logistic")]
    chosen += [(name, "hinge") for name in SOLVERS if name != "spicy"]
    for c in UCI_C:
        problems = {loss: block_l1_problem(bank, y_train, loss, c) for loss in LOSSES}
        contestants = {
            (c, solver, loss): Limited(problems[loss], SOLVERS[solver], args.max_time)
            for solver, loss in chosen
        }
        for key, entry in race(contestants, LOOSE, args.rounds, clock_of(args)).items():
            result, rows = entry.result, np.arange(bank.n)
            decide = Decisions(kernels, WeightedSum(), result.d[None], rows, result.alpha)
            value = decide(test)[:, 0] + result.intercept[0]
            accuracy = 100 * float(np.mean(np.where(value > 0, 1.0, -1.0) == y_test))
            yield key, entry.seconds, accuracy, entry.in_use, entry.converged


# Figure 2


def progress(args: Any) -> None:
    found = Table("## progress: gap 1e-6", ["data", "solver", "seconds", "gap", "kernels in use"])
    for name, (X, y) in available(["ionosphere"], args.data_dir):
        X, y = draw(X, y, 280)
        bank = DenseBank("float64").build(bind_kernels("spicymkl", X, normalize="trace"))
        problem = block_l1_problem(bank, y, "hinge", 0.05)
        for solver in SOLVERS:
            trace = traces[solver] = []
            began = time.process_time()

            def note(record: Any, trace: Any = trace, began: float = began) -> bool:
                trace.append((time.process_time() - began, record.gap, record.active_kernels))
                return False

            limited = Limited(problem, SOLVERS[solver], args.max_time)
            fit(limited, TIGHT, time.process_time, (note,))
            found.row(name, solver, *trace[-1])


# Figures 3 and 4


def kernels(args: Any) -> None:
    n = 200
    for name, X, y in sampled(args, n):
        v = np.random.default_rng(0).normal(size=n)
        for tol in args.gaps:
            passes = []
            for m in args.m:
                bank = random_bank(X, m, tol)
                passes.append(best_of(lambda b=bank, v=v: b.quad(v))[0])
                measured(args, "kernels", name, tol, m, bank, y)
            for loss in args.losses:
                show_kernels(name, n, tol, loss, args.c, passes)


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
        work = spicy.last.inner_iterations, spicy.noted[0] / m, spicy.in_use
        found.row(m, one, spicy.text(), *two, *work, *(entry.text() for entry in others))


def raced(args: Any, title: str, part: str, tol: float, cases: Any) -> None:
    """Race on every case (name, size, bank, y); one row for each loss."""
    title = f"## {title}, relative gap {tol:g}, c = {args.c:g}; seconds"
    heads = ["data", "n", "loss", *SOLVERS, "Newton steps", "passes", "kernels in use"]
    found = Table(title, heads)
    for name, size, bank, y in cases:
        best = measured(args, part, name, tol, size, bank, y)
        for loss in args.losses:
            spicy = best[loss, "spicy"]
            cells = [best[loss, solver].text() for solver in SOLVERS]
            work = spicy.last.inner_iterations, spicy.noted[0] / bank.m, spicy.in_use
            found.row(name, bank.n, loss, *cells, *work)


def large(args: Any) -> None:
    """More samples, where the kernels in float64 may be more than the memory."""
    n, m = args.large
    cases = (
        (name, m, rounded_bank(bind_kernels(random_kernels(m, X.shape[1]), X)), y)
        for name, X, y in sampled(args, n)
    )
    raced(args, f"large: m = {m}", "large", TIGHT, cases)


def samples(args: Any) -> None:
    cases = (
        (name, n, random_bank(X, SAMPLED, LOOSE), y)
        for n in args.n
        for name, X, y in sampled(args, n)
    )
    raced(args, f"samples: {SAMPLED} kernels", "samples", LOOSE, cases)


def factored(args: Any) -> None:
    def cases() -> Iterator[Any]:
        for n in args.factored:
            X, y = ringnorm(n)
            widths = 5.0 * np.random.default_rng(0).chisquare(1, SAMPLED) + 0.1
            single = [RBF(width=w).on(j % X.shape[1]) for j, w in enumerate(widths)]
            bank = FactoredBank().build(bind_kernels(single, X))
            yield f"drawn, factors of {bank.ranks.mean():.0f}", n, bank, y

    raced(args, f"factored: {SAMPLED} kernels", "factored", LOOSE, cases())


def from_raw_data(args: Any) -> None:
    """`MKLClassifier.fit`, kernels and all."""
    n, m = 200, args.raw
    regularizer = L1(block_l1_to_l1_weight(unit_trace_c(args.c, n)))
    title = f"MKLClassifier.fit from raw data, m = {m}, n = {n}, logistic, gap {LOOSE:g}"
    found = Table(f"## raw: {title}", ["data", "bank", "seconds", "gap", "kernels in use"])
    shared = {"loss": "logistic", "regularizer": regularizer, "solver": "spicy", "tol": LOOSE}
    for name, X, y in sampled(args, n):
        batch = random_kernels(m, X.shape[1])
        fits = {
            bank: lambda b=bank, k=batch, X=X, y=y: MKLClassifier(k, bank=b, **shared).fit(X, y)
            for bank in ("auto", "dense")
        }
        for bank, (seconds, model) in take_turns(fits, args.rounds + 1).items():
            found.row(name, bank, seconds, model.gap_, np.count_nonzero(model.weights_))


LOOKS = {
    "spicy": {"color": "#D55E00", "marker": "o", "lw": 2.2},
    "spg": {"color": "#999999", "marker": "v"},
    "silp": {"color": "#009E73", "marker": "^"},
    "active-set": {"color": "#0072B2", "marker": "s"},
}


def draw_figure(path: str) -> None:
    """Figure 2, and a panel for each set and gap of Figures 3 and 4; circles were stopped."""
    panels = list(dict.fromkeys(key[:3] for key in curves if key[0] in ("kernels", "samples")))
    count = 2 * bool(traces) + len(panels)
    if not count:
        print("no figure: it shows the parts progress, kernels and samples")
        return
    fig, axes = new_figure(3.6 * min(count, 3), 3.8 * -(-count // 3), -(-count // 3), min(count, 3))
    flat = axes.ravel()
    for ax in flat[count:]:
        ax.set_axis_off()
    for solver, trace in traces.items():
        seconds, gaps, used = zip(*trace, strict=True)
        style = {"lw": 1.3, "ms": 3.5, **LOOKS[solver]}
        flat[0].loglog(seconds, gaps, **style)
        flat[1].loglog(seconds, np.maximum(used, 1), **style)
        flat[0].set(title="ionosphere, 918 kernels, hinge", ylabel="relative duality gap")
        flat[1].set(title="the same fits", ylabel="kernels in use", xlabel="processor seconds")
    for ax, panel in zip(flat[2 * bool(traces) :], panels, strict=False):
        part, name, tol = panel
        for (*where, loss, solver), points in curves.items():
            if tuple(where) != panel:
                continue
            style = {"lw": 1.3, "ms": 3.5, **LOOKS[solver]}
            style["ls"] = "-" if loss == "logistic" else "--"
            sizes, seconds = [size for size, _ in points], [entry.seconds for _, entry in points]
            ax.plot(sizes, seconds, label=f"{solver}, {loss}", **style)
            stopped = [(size, entry.seconds) for size, entry in points if not entry.converged]
            ax.plot(*np.reshape(stopped, (-1, 2)).T, "o", ms=9, mfc="none", color=style["color"])
        size = "kernels, n = 200" if part == "kernels" else f"samples, {SAMPLED} kernels"
        ax.set(title=f"{name}, gap {tol:g}", xlabel=size, ylabel="seconds")
        plain_numbers(ax)
    save(fig, path, flat[count - 1])


def warm_up() -> None:
    X, y = ringnorm(200)
    for plan in (DenseBank("float32"), DenseBank("float64"), FactoredBank()):
        bank = plan.build(bind_kernels([RBF(width=5.0), RBF(width=1.0).on(0)], X))
        race(all_solvers(bank, y, list(LOSSES), 0.05, 5.0), LOOSE, 1, time.perf_counter)


PARTS = {
    "uci": uci,
    "progress": progress,
    "kernels": kernels,
    "large": large,
    "raw": from_raw_data,
    "samples": samples,
    "factored": factored,
}
QUICK = {"uci": ["sonar"], "repeats": 1, "rounds": 1, "max_time": 5.0, "raw": 500}
QUICK |= {"m": [50, 200, 1000], "n": [200, 500], "large": [500, 200], "factored": [5000]}


def in_one_thread(part: Any) -> Any:
    def run(args: Any) -> None:
        with one_thread() if args.processor else nullcontext():
            part(args)

    return run


def main() -> None:
    args = run_parts(
        __doc__,
        {name: in_one_thread(part) for name, part in PARTS.items()},
        warm_up=warm_up,
        quick=QUICK,
        repeats=(3, "80/20 splits of uci; 10 in the paper"),
        rounds=(2, "runs of each fit, interleaved"),
        max_time=(60.0, "seconds for a fit"),
        processor=(False, "count processor seconds of one thread"),
        c=(0.05, "of all parts but uci"),
        bank=("dense", "of uci", ("dense", "auto")),
        uci=(UCI, "sets of uci", UCI),
        sets=(["ringnorm", "splice"], "of the other parts", ["ringnorm", "splice", "drawn"]),
        losses=LOSSES,
        gaps=([LOOSE, TIGHT], "of kernels"),
        m=([50, 100, 200, 500, 1000, 2000, 3000, 6000], "of kernels"),
        n=([200, 500, 1000, 2000, 4000], "of samples"),
        large=([1000, 1500], "n and m"),
        factored=[20_000],
        raw=(3000, "kernels of raw"),
        figure=(None, "file: also draw the times"),
    )
    if args.figure:
        draw_figure(args.figure)


if __name__ == "__main__":
    main()
