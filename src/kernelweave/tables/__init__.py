"""From a table of any columns to numbers and kernels."""

from __future__ import annotations

from kernelweave.tables.encoder import TableEncoder
from kernelweave.tables.kernel_file import KernelFile, read_kernel_file
from kernelweave.tables.kernels import parse_views, table_kernels

__all__ = ["KernelFile", "TableEncoder", "parse_views", "read_kernel_file", "table_kernels"]
