"""BEMKL: Bayesian multiple kernel learning by mean-field variational inference (Gönen 2012).

The weights of the kernels are normal variables and may be negative. Every factor of the
approximate posterior has a closed form, and every update raises a lower bound on the evidence.
"""

from kernelweave.solvers.bemkl.ensemble import Ensemble, Settings
from kernelweave.solvers.bemkl.infer import infer
from kernelweave.solvers.bemkl.posterior import (
    SELECTED,
    BayesRecord,
    Posterior,
    selected_kernels,
)
from kernelweave.solvers.bemkl.priors import Hyperparameters, get_hyperparameters
from kernelweave.solvers.bemkl.resume import BayesStart, about, posterior_numbers
from kernelweave.solvers.bemkl.squares import Squares
from kernelweave.solvers.bemkl.targets import Labels, Outputs
from kernelweave.solvers.bemkl.truncated import (
    class_probability,
    log_class_probability,
    truncated_moments,
)

__all__ = [
    "SELECTED",
    "BayesRecord",
    "BayesStart",
    "Ensemble",
    "Hyperparameters",
    "Labels",
    "Outputs",
    "Posterior",
    "Settings",
    "Squares",
    "about",
    "class_probability",
    "get_hyperparameters",
    "infer",
    "log_class_probability",
    "posterior_numbers",
    "selected_kernels",
    "truncated_moments",
]
