"""What the tuned constants of SPG and MWU change: work until the tolerance for several values.

    python -m benchmarks.papers.tuned_constants --data-dir DIR
    python -m benchmarks.papers.tuned_constants --constants spg._FIRST_TURN --sets wpbc

Single-kernel solves (SPG, products of one kernel for each feature under l1 and p = 1.33) or rounds
(MWU, sums of the SimpleMKL family under hinge and squared hinge), to a gap of 1e-3 at C = 10. A fit
that has not converged after --max-time seconds is marked by ">".
"""

from importlib import import_module
from unittest.mock import patch

from benchmarks.data import available, load_standardised
from benchmarks.part import read_options
from benchmarks.show import Table
from kernelweave import MKLClassifier
from kernelweave.regularizers import L1, SquaredLp

MODELS = {
    "spg": {
        label: MKLClassifier(combination="product", regularizer=regularizer, solver="spg")
        for label, regularizer in (("l1", L1(1.0)), ("p = 1.33", SquaredLp(1.33)))
    },
    "mwu": {
        loss: MKLClassifier("simplemkl", loss=loss, solver="mwu")
        for loss in ("hinge", "squared_hinge")
    },
}
# In kernelweave.solvers.
VALUES = {
    "spg._FIRST_TURN": (1, 4, 8, 16, 32, 64),
    "mwu.descent._FIRST_ROUNDS": (4, 16, 64),
    "mwu.descent._GROWTH": (0.02, 0.05, 0.1),
    "mwu.descent._PATIENCE": (1, 2, 3, 5),
    "mwu.descent._ASLEEP": (0.0, 1e-10, 1e-7),
    "mwu.descent._MILD": (0.2, 0.5),
}
SETS = {
    "spg": ["liver", "wpbc", "sonar", "ionosphere", "wdbc", "australian", "leukemia"],
    "mwu": ["liver", "wpbc", "sonar", "ionosphere", "pima"],
}


def place_of(constant: str) -> tuple[object, str]:
    """Return the module of a constant, and its name there; AttributeError if it is gone."""
    path, _, name = constant.rpartition(".")
    module = import_module(f"kernelweave.solvers.{path}")
    getattr(module, name)
    return module, name


def main() -> None:
    args = read_options(__doc__, constants=VALUES, sets=([""], "data sets"), max_time=60.0)
    for constant in args.constants:
        solver = constant.partition(".")[0]
        shown = Table("", [constant, *VALUES[constant]])
        names = args.sets if any(args.sets) else SETS[solver]
        for name, (X, y) in available(names, args.data_dir, load_standardised):
            for label, model in MODELS[solver].items():
                model.set_params(C=10.0, tol=1e-3, max_iter=10**5, max_time=args.max_time)
                cells = []
                for value in VALUES[constant]:
                    with patch.object(*place_of(constant), value):
                        last = model.fit(X, y).history_[-1]
                    work = last.inner_solves if solver == "spg" else last.inner_iterations
                    cells.append(f"{'' if model.converged_ else '> '}{work}")
                shown.row(f"{name}, {label}", *cells)


if __name__ == "__main__":
    main()
