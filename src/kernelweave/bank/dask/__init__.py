"""Kernels on the workers of a `dask.distributed` cluster."""

from kernelweave.bank.dask.plan import DaskBank

__all__ = ["DaskBank"]
