"""Regularizers of the kernel weights (``docs/equations.md`` has the table)."""

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
