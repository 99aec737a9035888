"""Regularizers of the kernel weights.

===========  ============================  ================================  ======================
name         weights                       Omega(norms)                      r*(q / 2)
===========  ============================  ================================  ======================
simplex      d >= 0, sum d = 1             1/2 (sum norms)^2                 1/2 max q
lp_ball      d >= 0, norm_p(d) <= 1        1/2 norm_{2p/(p+1)}(norms)^2      1/2 norm_{p/(p-1)}(q)
l1           d >= 0, s sum d               sqrt(2 s) sum norms               0 if q <= 2 s
squared_lp   d >= 0, s/2 norm_p(d)^2       3/2 s t^2, t the norm of best d   norm(q / 2)^2 / (2 s)
elastic_net  d >= 0, sum a d + b/2 d^2     sum 2 a d + 3/2 b d^2 at best d   max(0, q/2 - a)^2/(2 b)
block_norm   d >= 0, s sum_g norm_p(d_g)   sqrt(2 s) sum_g norm(norms_g)     0 if norm(q_g / 2) <= s
entropy      d >= 0, sum d = 1,            by a search for a multiplier      s log mean exp(q/(2 s))
             s sum d log(m d)
log_det      d >= 0, s log det(I + K/sig)  none: not convex                  none
===========  ============================  ================================  ======================
"""

from kernelweave.regularizers.base import Regularizer, get_regularizer
from kernelweave.regularizers.block_norm import BlockNorm
from kernelweave.regularizers.conversions import (
    block_l1_to_l1_weight,
    block_l1_to_simplex_C,
    l1_weight_to_block_l1,
    simplex_C_to_block_l1,
)
from kernelweave.regularizers.elastic_net import ElasticNet
from kernelweave.regularizers.entropy import Entropy
from kernelweave.regularizers.fixed import Fixed
from kernelweave.regularizers.log_det import LogDet
from kernelweave.regularizers.norms import L1, LpBall, Simplex, SquaredLp

__all__ = [
    "L1",
    "BlockNorm",
    "ElasticNet",
    "Entropy",
    "Fixed",
    "LogDet",
    "LpBall",
    "Regularizer",
    "Simplex",
    "SquaredLp",
    "block_l1_to_l1_weight",
    "block_l1_to_simplex_C",
    "get_regularizer",
    "l1_weight_to_block_l1",
    "simplex_C_to_block_l1",
]
