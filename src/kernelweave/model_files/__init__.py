"""Fitted models in files: save, load, and read what a file says about itself."""

from kernelweave.model_files.header import Header
from kernelweave.model_files.loading import load, read_header
from kernelweave.model_files.saving import save

__all__ = ["Header", "load", "read_header", "save"]
