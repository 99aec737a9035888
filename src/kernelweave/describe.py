"""The first name of :mod:`kernelweave.inspect`."""

from __future__ import annotations

from kernelweave.inspect import *  # noqa: F403
from kernelweave.inspect import __all__ as __all__
