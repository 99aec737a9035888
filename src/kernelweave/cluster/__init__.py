"""Kernels on the workers of a `dask.distributed` cluster."""

from kernelweave.cluster.plan import DaskBank

__all__ = ["DaskBank"]
