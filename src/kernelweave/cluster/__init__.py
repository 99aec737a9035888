"""Kernels on the workers of a `dask.distributed` cluster."""

from __future__ import annotations

from typing import Any

from kernelweave.cluster.by_kernels import KernelShards
from kernelweave.cluster.by_points import PointShards
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.validation import positive_number, unknown_name

__all__ = ["DaskBank"]


class DaskBank:
    """Kernels spread over the workers of a `dask.distributed` cluster.

    Every solver runs on it as it does on one machine, and finds the same answer: a question to the
    bank is one superstep, in which all workers compute at once. A worker that dies is replaced:
    its shard is made again from what this process holds, and the fit goes on.

    Parameters
    ----------
    client : dask.distributed.Client
        A running client. With ``Client(..., direct_to_workers=True)`` messages do not go through
        the scheduler, and a superstep takes less time.
    shard : {"points", "kernels"}, default="points"
        What is cut. By points every worker holds some of the samples and computes all kernels
        against them; a round of MWU moves O(m + n_features) numbers a worker. By kernels every
        worker holds all samples and some of the kernels; a sum over kernels then moves n numbers a
        worker. It is for few samples, very many kernels, and precomputed matrices.
    cache_mb : float, default=1000
        Megabytes of kernel rows (by kernels also of matrices) that each worker keeps.
    patience : float, default=10
        Seconds to wait for a free worker in place of one that died, before its shard moves to a
        worker that has one already.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.bank import DaskBank
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> with Client(processes=False, n_workers=2, dashboard_address=None) as client:
    ...     model = MKLClassifier(bank=DaskBank(client)).fit(X, X[:, 0] > 0)
    >>> model.converged_
    True
    """

    # `build` takes kernels of several kinds at once, so that they share supersteps.
    builds_any_set = True

    def __init__(
        self, client: Any, shard: str = "points", *, cache_mb: float = 1000, patience: float = 10
    ) -> None:
        self.client = client
        self.shard = shard
        self.cache_mb = cache_mb
        self.patience = patience

    def __repr__(self) -> str:
        return f"DaskBank(shard={self.shard!r})"

    def __copy__(self) -> DaskBank:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DaskBank:
        # scikit-learn clones estimators with their parameters; there is one connection.
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A model on disk, or on its way to a worker that predicts, has no connection.
        return {**self.__dict__, "client": None}

    def build(self, kernels: Any) -> KernelOperator:
        """Cut a set of kernels into shards, send them to the workers and return the bank."""
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "DaskBank needs dask.distributed: pip install 'kernelweave[dask]'"
            ) from error
        if self.client is None:
            raise InvalidInputError(
                "this DaskBank has no client: it was pickled, and a connection cannot be. Give "
                "the estimator a new one: model.set_params(bank=DaskBank(client))."
            )
        positive_number("cache_mb", self.cache_mb)
        positive_number("patience", self.patience, allow_zero=True)
        if self.shard not in ("points", "kernels"):
            raise unknown_name("shard", self.shard, ("points", "kernels"))
        build = PointShards if self.shard == "points" else KernelShards.build
        return build(self.client, kernels, self.cache_mb, self.patience)
