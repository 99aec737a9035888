"""Losses, each with its derivatives and its convex conjugate.

Written for a loss weight C and signed dual variables; ``a = y * alpha`` for classification.

===================  ===============================  =========================  ===============
name                 loss(y, z)                       loss*(-alpha)              domain
===================  ===============================  =========================  ===============
hinge                C max(0, 1 - y z)                -a                         0 <= a <= C
squared_hinge        C max(0, 1 - y z)^2              -a + a^2 / (4 C)           a >= 0
logistic             C log(1 + exp(-y z))             C H(a / C)                 0 <= a <= C
smooth_hinge         (C/s) log(1 + exp(s (1 - y z)))  -a + (C/s) H(a / C)        0 <= a <= C
squared              C (y - z)^2                      alpha^2 / (4 C) - alpha y  all
epsilon_insensitive  C max(0, abs(y - z) - e)         e abs(alpha) - alpha y     abs(alpha) <= C
one_class            C max(0, -z)                     0                          0 <= alpha <= C
===================  ===============================  =========================  ===============

with s = sigma, e = epsilon and H(t) = t log t + (1 - t) log(1 - t).
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
