"""A million kernels on sonar, against the time of one pass over them.

    python -m benchmarks.papers.million_kernels --data-dir DIR          # 1,000,000 kernels
    python -m benchmarks.papers.million_kernels --kernels 20000         # a quick look

Gaussian kernels on random subsets of one to five of the 60 features, random widths, seeded; none of
them is ever stored. A pass is v'K_k v for every kernel once, v without zeros, on all cores; beside
it stands the bare vectorised exponential over as many numbers. Fits: weights on the simplex and
in the ball of p = 1.33, to a relative duality gap of 1e-2 that covers all kernels. (The SPG-GMKL
paper took 106 hours for p = 1.33, MWUMKL 3.65.)
"""

import numpy as np

from benchmarks.data import load_standardised
from benchmarks.limit.roofline import exp_rate
from benchmarks.part import read_options
from benchmarks.show import Table
from benchmarks.timing import best_of, memory_mb, seconds_of
from kernelweave import MKLClassifier
from kernelweave.bank import build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.compiled.threads import thread_count
from kernelweave.kernels import RBFBatch
from kernelweave.operators import bind_kernels
from kernelweave.regularizers import LpBall


def main() -> None:
    args = read_options(__doc__, kernels=1_000_000, C=10.0, tol=1e-2, seed=0)
    X, y = load_standardised("sonar", args.data_dir)
    n, p = X.shape
    batch = RBFBatch.random(args.kernels, p, sizes=(1, 5), random_state=args.seed)
    few = RBFBatch.random(3000, p, sizes=(1, 5), random_state=1)
    for regularizer in ("simplex", LpBall(1.33)):  # compiles
        MKLClassifier(few, regularizer=regularizer, tol=args.tol).fit(X, y)
    built, bank = seconds_of(lambda: build_bank("auto", bind_kernels(batch, X), tol=args.tol))
    held = f"{pickled_bytes(bank) / 1e6:.0f} MB, bank built in {built:.2f} s"
    print(f"{n} x {p}, {bank.m:,} kernels, {held}")
    v = np.random.default_rng(0).normal(size=n)
    one, _ = best_of(lambda: bank.quad(v), 2)
    entries = bank.m * n * (n - 1) / 2
    bare = entries / exp_rate("own", np.float32, thread_count())
    each = f"{one / entries * 1e9:.3f} ns for each kernel value"
    print(f"one pass: {one:.2f} s, {each}; the bare exponential alone would take {bare:.2f} s")
    for name, regularizer in (("simplex", "simplex"), ("p = 1.33", LpBall(1.33))):
        model = MKLClassifier(batch, C=args.C, regularizer=regularizer, tol=args.tol, n_jobs=None)
        seconds, _ = seconds_of(lambda m=model: m.fit(X, y))
        used = f"{np.count_nonzero(model.weights_):,} kernels in use"
        told = (
            f"{seconds:.1f} s = {seconds / one:.1f} passes, {used}, {len(model.support_)} support"
        )
        title = f"{name}: {told} vectors, peak {memory_mb('VmHWM') / 1e3:.2f} GB"
        found = Table(title, ["seconds", "objective", "gap", "kernels"])
        for record in model.history_:
            found.row(record.seconds, record.primal, record.gap, record.active_kernels)


if __name__ == "__main__":
    main()
