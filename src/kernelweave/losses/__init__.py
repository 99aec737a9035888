"""Losses, each with its derivatives and its convex conjugate.

They are written for a loss weight C and signed dual variables, ``a = y * alpha`` for classification
(``docs/equations.md`` has the table).
"""

from kernelweave.losses.base import BoxQP, Loss, get_loss
from kernelweave.losses.check import check_loss
from kernelweave.losses.numeric import per_weight
from kernelweave.losses.piecewise_linear import EpsilonInsensitive, Hinge, OneClass
from kernelweave.losses.smooth import Logistic, SmoothHinge, Squared, SquaredHinge

__all__ = [
    "BoxQP",
    "EpsilonInsensitive",
    "Hinge",
    "Logistic",
    "Loss",
    "OneClass",
    "SmoothHinge",
    "Squared",
    "SquaredHinge",
    "check_loss",
    "get_loss",
    "per_weight",
]
