"""The solvers side by side on a few problems, to a certified relative gap of 1e-3.

    python -m benchmarks.guard.solver_table
    python -m benchmarks.guard.solver_table --solvers auto silp --max-seconds 20

Every problem is fitted by every solver that takes it, `fit` from raw samples or given matrices to
the model, kernels included. Processor seconds of one thread, so that other work on the machine
counts for little; the smaller of two fits where the first took less than a second. A cell has the
seconds and the number of kernels of weight above 1e-4, or the gap that is left after --max-seconds.
"""

import time
from typing import Any

from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from benchmarks.part import read_options
from benchmarks.show import Table
from benchmarks.timing import Budget, best_of, one_thread
from kernelweave import MKLClassifier, sample_ids
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, RBFBatch, from_matrices
from kernelweave.regularizers import LpBall

TOL = 1e-3
SOLVERS = ("auto", "active-set", "silp", "silp-chunking", "spicy", "spg", "mwu", "uniform")
FAMILY, LOGISTIC, DENSE, MATRICES, BATCH = (
    "403 kernels, n = 569",
    "the same, logistic",
    "the same, p = 1.33",
    "10 matrices, n = 1,797",
    "2,000 kernels, n = 300",
)


def problems() -> dict[str, tuple[MKLClassifier, Any, Any]]:
    X, y = load_breast_cancer(return_X_y=True)
    digits, digit = load_digits(return_X_y=True)
    widths = (4.0, 6.0, 8.0, 11.0, 16.0, 22.0, 32.0, 45.0, 64.0, 90.0)
    matrices = from_matrices([RBF(width=w)(digits) for w in widths])
    batch = RBFBatch.random(2_000, 30, sizes=(1, 5), transformer=StandardScaler(), random_state=0)
    dense = MKLClassifier("simplemkl", tol=TOL, regularizer=LpBall(1.33))
    return {
        FAMILY: (MKLClassifier("simplemkl", tol=TOL), X, y),
        LOGISTIC: (MKLClassifier("simplemkl", tol=TOL, loss="logistic"), X, y),
        DENSE: (dense, X, y),
        MATRICES: (MKLClassifier(matrices, tol=TOL), sample_ids(len(digit)), digit % 2),
        BATCH: (MKLClassifier(batch, tol=TOL), X[:300], y[:300]),
    }


def entry(model: MKLClassifier, X: Any, y: Any, solver: str, limit: float) -> str:
    """Fit and describe: seconds and kernels, or the gap that is left."""

    def fit() -> None:
        model.set_params(solver=solver, callbacks=(Budget(limit),), n_jobs=1).fit(X, y)

    try:
        best, _ = best_of(fit, 2, time.process_time, short=1.0)
    except InvalidInputError:
        return ""
    if model.gap_ > TOL:
        return f"> {limit:g} s, gap {model.gap_:.0e}"
    return f"{best:.2f} s, {int((model.weights_ > 1e-4).sum()):,}"


def main() -> None:
    args = read_options(__doc__, data=False, solvers=list(SOLVERS), max_seconds=5.0)
    known = problems()
    with one_thread():
        for model, X, y in known.values():  # compiled code is loaded before the clock starts
            for solver in args.solvers:
                entry(model, X[::10], y[::10], solver, 0.2)
        found = Table("", ["`solver`", *known])
        for solver in args.solvers:
            cells = [entry(*problem, solver, args.max_seconds) for problem in known.values()]
            found.row(f'`"{solver}"`', *cells)


if __name__ == "__main__":
    main()
