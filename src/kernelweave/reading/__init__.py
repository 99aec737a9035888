"""Files: tables, kernel matrices and sequences."""

from __future__ import annotations

from kernelweave.reading.matrix import read_matrix
from kernelweave.reading.sequences import SequenceRecords, read_sequences
from kernelweave.reading.table import Table, read_table

__all__ = ["SequenceRecords", "Table", "read_matrix", "read_sequences", "read_table"]
