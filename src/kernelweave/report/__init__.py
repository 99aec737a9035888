"""What a fitted model has to tell: text and figures."""

from __future__ import annotations

from kernelweave.inspect.comparison import compare
from kernelweave.inspect.comparison_table import Comparison, ComparisonRow, SolverFit
from kernelweave.inspect.kmers import (
    KmerScores,
    TopKmers,
    kmer_scores,
    letter_scores,
    sequence_scores,
    top_kmers,
)
from kernelweave.inspect.part_weights import PartWeights, length_position_weights
from kernelweave.inspect.stability import stability
from kernelweave.inspect.stability_result import Stability
from kernelweave.inspect.summary import summary_text
from kernelweave.inspect.uncertainty import Doubts, doubtful
from kernelweave.plot.c_path import plot_path
from kernelweave.plot.part_weights import (
    plot_length_position_weights,
    plot_length_weights,
    plot_position_weights,
)
from kernelweave.plot.probabilities import plot_doubts, plot_probabilities
from kernelweave.plot.sequences import plot_kmer_scores, plot_sequence_logo
from kernelweave.report.write import write_html

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Doubts",
    "KmerScores",
    "PartWeights",
    "SolverFit",
    "Stability",
    "TopKmers",
    "compare",
    "doubtful",
    "kmer_scores",
    "length_position_weights",
    "letter_scores",
    "plot_doubts",
    "plot_kmer_scores",
    "plot_length_position_weights",
    "plot_length_weights",
    "plot_path",
    "plot_position_weights",
    "plot_probabilities",
    "plot_sequence_logo",
    "sequence_scores",
    "stability",
    "summary_text",
    "top_kmers",
    "write_html",
]
