"""What a fitted model has to tell: text and figures."""

from __future__ import annotations

from kernelweave.describe.summary import summary_text
from kernelweave.report.bootstrap import stability
from kernelweave.report.comparison import compare
from kernelweave.report.comparison_table import Comparison, ComparisonRow
from kernelweave.report.doubts import Doubts, doubtful
from kernelweave.report.html.write import write_html
from kernelweave.report.kmer_table import KmerScores, kmer_scores
from kernelweave.report.largest_kmers import TopKmers, top_kmers
from kernelweave.report.part_weights import PartWeights, length_position_weights
from kernelweave.report.path_figure import plot_path
from kernelweave.report.plots_parts import (
    plot_length_position_weights,
    plot_length_weights,
    plot_position_weights,
)
from kernelweave.report.plots_sequences import plot_kmer_scores, plot_sequence_logo
from kernelweave.report.plots_uncertainty import plot_doubts, plot_probabilities
from kernelweave.report.position_shares import letter_scores, sequence_scores
from kernelweave.report.replicates import Stability

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Doubts",
    "KmerScores",
    "PartWeights",
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
