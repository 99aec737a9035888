"""Nystrom features of several kernels, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.arrays import Index
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import as_samples
from kernelweave.memory import require_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Array
from kernelweave.validation import require_array, require_kind

# Eigenvalues below this part of the largest are left out. What they would add to the kernel is less
# than that, and dividing by their roots would magnify rounding.
_CUTOFF = 1e-10
# Kernel values that a thread holds at a time, and the fewest rows it takes if kernels are many.
_BLOCK_ENTRIES = 2**21
_FEWEST_ROWS = 256
_LOWER = "Lower n_components, or use fewer kernels or samples."


class NystromMap:
    r"""Features of finite length whose inner products are about the mean of the kernels.

    With landmarks L, :math:`K_k(L, L) = U_k \operatorname{diag}(s_k) U_k^\top` and m kernels,

    .. math:: \varphi(x) = \tfrac{1}{\sqrt m} \big( K_1(x, L)\, U_1 s_1^{-1/2},\; \dots,\;
              K_m(x, L)\, U_m s_m^{-1/2} \big)

    (Williams and Seeger 2001). Between landmarks :math:`\varphi(x)^\top \varphi(x')` is the mean of
    the kernels exactly, but for directions whose eigenvalue is below 1e-10 of the kernel's largest,
    which are left out. All kernels have the same landmarks, so that those on the same columns share
    what they compute.

    Parameters
    ----------
    kernel_set : KernelOperator
        Kernels on the training samples.
    landmarks : array of int
        Which of the samples are landmarks.

    Attributes
    ----------
    ranks : ndarray of shape (m,)
        How many features each kernel has.
    owner : ndarray of shape (width,)
        Which kernel each feature belongs to.
    width : int
        Number of features.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, RBF
    >>> from kernelweave.operators import ComputedOperator
    >>> kernels = ComputedOperator.build([Linear(), RBF(width=1.0)], [[1.0], [2.0], [3.0]])
    >>> features = NystromMap(kernels, [0, 1, 2])
    >>> features.ranks
    array([1, 3])
    >>> phi = features.of_training()
    >>> np.allclose(phi @ phi.T, kernels.block().mean(axis=0))
    True
    """

    def __init__(self, kernel_set: KernelOperator, landmarks: Any) -> None:
        self._kernel_set = kernel_set
        self._landmarks = np.asarray(landmarks, dtype=np.int64)
        self._maps = self._learn()
        self._count()

    def _count(self) -> None:
        self.ranks = np.array([W.shape[1] for W in self._maps])
        self._offsets = np.concatenate([[0], np.cumsum(self.ranks)])
        self.owner = np.repeat(np.arange(len(self.ranks)), self.ranks)

    @property
    def landmarks(self) -> Index:
        """Which of the samples are landmarks."""
        return self._landmarks

    def check(self, kernel_set: KernelOperator) -> None:
        """Raise unless this, which came from a file, is a map of these kernels."""
        if self._kernel_set is not kernel_set:
            raise InvalidInputError("the Nystrom map must be one of the kernels of the model.")
        high = kernel_set.n - 1
        require_array("the landmarks", self._landmarks, (None,), whole=True, low=0, high=high)
        require_kind("the maps of the kernels", self._maps, list)
        if len(self._maps) != kernel_set.m:
            raise InvalidInputError(f"there must be {kernel_set.m} maps; got {len(self._maps)}.")
        for W in self._maps:
            require_array("the map of a kernel", W, (len(self._landmarks), None))
        self._count()

    @property
    def width(self) -> int:
        return int(self._offsets[-1])

    def _learn(self) -> list[Array]:
        """U s^(-1/2) / sqrt(m) of every kernel, (n_landmarks, rank)."""
        m, size = self._kernel_set.m, len(self._landmarks)
        maps: list[Array] = [np.empty((size, 0))] * m
        many = max(1, _BLOCK_ENTRIES // size**2)
        held = 0
        for first in range(0, m, many):
            part = np.arange(first, min(first + many, m))
            # They grow with each part, and how much is only known when it is there.
            needed = 8.0 * (held / max(1, first)) * m - 8.0 * held
            require_bytes(needed, f"Nystrom maps of {m} kernels, {size} landmarks each", _LOWER)
            gram = self._kernel_set.block(self._landmarks, self._landmarks, part)

            def work(start: int, stop: int, gram: Array = gram, part: Index = part) -> None:
                for i in range(start, stop):
                    maps[part[i]] = _inverse_root(gram[i]) / np.sqrt(m)

            map_blocks(work, len(part), 1, 10.0 * gram.size * size)
            held += sum(maps[k].size for k in part)
        return maps

    # Values

    def require_bytes(self, n: int, bytes_each: float) -> None:
        """Refuse what the features of n samples take if they do not fit in memory."""
        what = f"{self.width} Nystrom features of {n} samples ({len(self.ranks)} kernels)"
        require_bytes(bytes_each * n * self.width, what, _LOWER)

    def of_training(self) -> Array:
        """Features of the training samples, shape (n, width)."""
        return self._features(self._kernel_set, self._kernel_set.n)

    def of_new(self, X: Any) -> Array:
        """Features of new samples, shape (n_new, width)."""
        new = as_samples(X)
        return self._features(self._kernel_set.against(new), new.n)

    def _features(self, kernels: KernelOperator, n: int) -> Array:
        self.require_bytes(n, 8.0)
        out = np.empty((n, self.width))

        def take(rows: slice, k: int, phi: Array) -> None:
            out[rows, self.own(k)] = phi

        self._walk(kernels, n, take)
        return out

    def decide(self, X: Any, coef: Array) -> Array:
        """Features of new samples times `coef` (T, width), shape (n_new, T), in little memory."""
        new = as_samples(X)
        out = np.zeros((new.n, len(coef)))

        def take(rows: slice, k: int, phi: Array) -> None:
            out[rows] += phi @ coef[:, self.own(k)].T

        self._walk(self._kernel_set.against(new), new.n, take)
        return out

    def own(self, k: int) -> slice:
        """Which features are those of kernel k."""
        return slice(self._offsets[k], self._offsets[k + 1])

    def _walk(
        self, kernels: KernelOperator, n: int, take: Callable[[slice, int, Array], None]
    ) -> None:
        """Call ``take(rows, k, features)`` for all kernels and blocks of rows, on threads.

        `kernels` are those of n samples against the training samples. Kernels of one block of rows
        come one after the other, in one thread.
        """
        m, size = len(self._maps), len(self._landmarks)
        many = max(1, min(m, _BLOCK_ENTRIES // (_FEWEST_ROWS * size)))
        # Small enough for a few blocks for every thread.
        height = int(np.clip(_BLOCK_ENTRIES // (many * size), 1, max(_FEWEST_ROWS, n // 16)))
        # Transformers run here, before threads would each run them.
        kernels.block(np.arange(1), self._landmarks, np.arange(m))

        def work(start: int, stop: int) -> None:
            rows = np.arange(start, stop)
            for first in range(0, m, many):
                part = np.arange(first, min(first + many, m))
                blocks = kernels.block(rows, self._landmarks, part)
                for k, block in zip(part.tolist(), blocks, strict=True):
                    take(slice(start, stop), k, block @ self._maps[k])

        map_blocks(work, n, height, 10.0 * n * m * size)


def _inverse_root(gram: Array) -> Array:
    """U s^(-1/2) of the eigenvalues that count."""
    s, U = np.linalg.eigh(gram)
    kept = s > _CUTOFF * max(float(s[-1]), 0.0)
    return U[:, kept] / np.sqrt(s[kept])
