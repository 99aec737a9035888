"""BEMKL: Bayesian multiple kernel learning by mean-field variational inference (Gönen 2012).

The weights of the kernels are normal variables and may be negative. Every factor of the
approximate posterior has a closed form, and every update raises a lower bound on the evidence.
"""

from kernelweave.bayes.ensemble import Ensemble, Settings
from kernelweave.bayes.infer import BayesStart, about, infer, posterior_numbers
from kernelweave.bayes.posterior import BayesRecord, Posterior, selected_kernels
from kernelweave.bayes.priors import Hyperparameters, get_hyperparameters
from kernelweave.bayes.sums import sum_of_squares
from kernelweave.bayes.targets import (
    Labels,
    Outputs,
    class_probability,
    log_class_probability,
    truncated_moments,
)

__all__ = [
    "BayesRecord",
    "BayesStart",
    "Ensemble",
    "Hyperparameters",
    "Labels",
    "Outputs",
    "Posterior",
    "Settings",
    "about",
    "class_probability",
    "get_hyperparameters",
    "infer",
    "log_class_probability",
    "posterior_numbers",
    "selected_kernels",
    "sum_of_squares",
    "truncated_moments",
]
