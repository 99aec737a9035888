"""MWUMKL's experiments (Moeller et al. 2014, section 5) beside the paper's numbers.

    python benchmarks/mwu.py --data-dir DIR                              # everything
    python benchmarks/mwu.py --parts large million                       # some of it
    python benchmarks/mwu.py --parts figure4 --figure mwu_figure4.png    # with a figure
    python benchmarks/mwu.py --parts million --kernels 100000            # smaller
    python benchmarks/mwu.py --quick                                     # a look at every part

large       Table 2: Cod-RNA and Adult with 3 kernels, 80 per cent of the rows for training: time
            beside the paper's, accuracy beside `NystromMKLClassifier` on the same kernels.
tolerances  the same at several tolerances: which one is enough for the accuracy.
million     Table 2: sonar with a million Gaussian kernels, time and memory.
mushroom    Figure 5: 12 kernels on each of 112 binary features, time against n and m.
figure4     Figure 4: accuracy against the proportion of the training rows, 12 kernels.
small       Figure 2: median misclassification on eight small sets, 12 kernels on each feature.
step        one round against reading and writing the m x n state, on every kind of bank.
omega       what the target does: max_k q_k over the certified optimum.

Methods: "mwu" has omega="auto" and ends at the gap --tol, "mwu hinge" the same with the 1-norm soft
margin, "mwu paper" makes the T rounds of algorithm 4 with the paper's eps; "nystrom" is
`NystromMKLClassifier` with 150 landmarks. All but "mwu hinge" have the squared hinge loss. Where C
is chosen, every method tries the same grid on the same 80 and 20 per cent of --rows training rows.
Fits are timed one by one, each in a process of its own after a small one that compiles (the
shortest of three if it takes less than 5 seconds); memory is the peak above that before the fit.
"""

from __future__ import annotations

import argparse
import warnings

from datasets import add_data_dir
from mwu_accuracy import FIGURE4, FIGURE4_METHODS, run_figure4, run_small
from mwu_data import LARGE, SMALL
from mwu_fit import METHODS
from mwu_large import LARGE_METHODS, run_large, run_million, run_tolerances
from mwu_mushroom import METHODS as MUSHROOM_METHODS
from mwu_mushroom import run_mushroom
from mwu_step import run_omega, run_step
from sklearn.exceptions import ConvergenceWarning

PARTS = {
    "large": run_large,
    "tolerances": run_tolerances,
    "million": run_million,
    "mushroom": run_mushroom,
    "figure4": run_figure4,
    "small": run_small,
    "step": run_step,
    "omega": run_omega,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    several = {"nargs": "+"}
    parser.add_argument("--parts", **several, choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--tol", type=float, default=1e-2, help="duality gap of MWU")
    parser.add_argument("--max-time", type=float, default=1800.0, help="seconds for a fit of MWU")
    parser.add_argument("--C", type=float, **several, default=[0.1, 1.0, 10.0], help="grid")
    parser.add_argument("--rows", type=int, default=5000, help="training rows that choose C")
    parser.add_argument("--bank", default="lazy", help="of MWU in large, tolerances and figure4")
    parser.add_argument("--large", **several, choices=list(LARGE), default=list(LARGE))
    methods = list(METHODS)
    parser.add_argument(
        "--methods", **several, choices=methods, default=LARGE_METHODS, help="of large"
    )
    parser.add_argument("--kernels", type=int, default=1_000_000, help="of million")
    parser.add_argument(
        "--million-methods", **several, choices=methods[:3], default=["mwu paper", "mwu hinge"]
    )
    parser.add_argument(
        "--mushroom-methods", **several, choices=MUSHROOM_METHODS, default=MUSHROOM_METHODS
    )
    parser.add_argument("--banks", **several, default=["auto"], help="of mushroom: auto, lazy")
    parser.add_argument("--plain-time", type=float, default=300.0, help="seconds of a plain fit")
    parser.add_argument("--plain-gb", type=float, default=8.0, help="see mushroom")
    parser.add_argument("--figure4", **several, choices=FIGURE4, default=["adult", "cod_rna"])
    parser.add_argument("--figure4-methods", **several, choices=methods, default=FIGURE4_METHODS)
    parser.add_argument(
        "--proportions", type=float, **several, default=[0.02, 0.05, 0.1, 0.25, 0.5, 1.0]
    )
    parser.add_argument("--figure", metavar="FILE", help="draw figure4")
    parser.add_argument("--small", **several, choices=SMALL, default=list(SMALL))
    parser.add_argument("--splits", type=int, default=10, help="of small; 30 in the paper")
    parser.add_argument("--small-C", type=float, **several, default=[0.1, 1.0, 10.0, 100.0])
    parser.add_argument("--small-time", type=float, default=20.0, help="seconds for a fit of small")
    parser.add_argument("--quick", action="store_true", help="tiny parts of everything")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    add_options(parser)
    args = parser.parse_args()
    args.data_dir = str(args.data_dir) if args.data_dir else None
    if args.quick:
        args.max_time = min(args.max_time, 10.0)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
