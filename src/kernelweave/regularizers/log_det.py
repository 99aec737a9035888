"""A price on the log determinant of the combined kernel."""

from __future__ import annotations

import copy
from typing import Any, NoReturn, Self

import numpy as np
from scipy.linalg.lapack import dpotri

from kernelweave.arrays import Array
from kernelweave.combine.base import Combination
from kernelweave.errors import InvalidInputError
from kernelweave.linear_systems import LinAlgError, jittered_cholesky
from kernelweave.memory import format_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.regularizers.base import Regularizer
from kernelweave.validation import positive_number

_MOST_SAMPLES = 10_000


class LogDet(Regularizer):
    r"""Log determinant of the combined kernel: the price of a flexible one.

    .. math::

        r(d) = s \log \det \big( I + K(d) / \sigma \big),\ d \ge 0, \qquad
        \frac{\partial r}{\partial d_k}
        = s \operatorname{tr} \Big( (\sigma I + K(d))^{-1} \frac{\partial K}{\partial d_k} \Big) .

    With the squared loss of weight C, :math:`s = 1/2` and :math:`\sigma = 1 / (2 C)`, the objective
    is minus the log evidence of a Gaussian process with kernel K(d) and noise variance
    :math:`\sigma` (up to constants), so fitting maximises it.

    It needs the kernels: estimators call `bind`. It is concave in a sum of kernels, so there is no
    duality gap: a fit ends at a stationary point.

    Parameters
    ----------
    weight : float, default=0.5
        The price s > 0.
    ridge : float, default=1.0
        The :math:`\sigma > 0` that K(d) is measured against.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import WeightedSum
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> reg = LogDet(weight=1.0).bind(bank, WeightedSum())
    >>> float(np.exp(reg.value(np.array([1.0, 1.0]))).round(10))  # det [[3, 1], [1, 3]]
    8.0
    >>> reg.gradient(np.array([1.0, 1.0])).round(10).tolist()
    [0.75, 0.5]
    """

    name = "log_det"
    sparse = False
    orthant = True
    convex = False

    def __init__(self, weight: float = 0.5, ridge: float = 1.0) -> None:
        self.weight = weight
        self.ridge = ridge

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(2.0, 0.1)]

    def __getstate__(self) -> dict[str, Any]:
        # The factor is as large as the kernel matrix and quickly found again.
        state: dict[str, Any] = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_last"}

    def bind(self, bank: KernelOperator, combination: Combination) -> LogDet:
        """Return a copy that knows the kernels."""
        if bank.n > _MOST_SAMPLES:
            raise InvalidInputError(
                "the regularizer 'log_det' factors K(d) and inverts it: two matrices that need "
                f"{format_bytes(16.0 * bank.n**2)} for n = {bank.n} samples. Allowed are "
                f"{_MOST_SAMPLES} samples ({format_bytes(16.0 * _MOST_SAMPLES**2)})."
            )
        bound = copy.copy(self)
        bound._kernels = (bank, combination)
        bound._last = {}
        return bound

    def _bound(self) -> tuple[KernelOperator, Combination]:
        kernels: tuple[KernelOperator, Combination] | None = getattr(self, "_kernels", None)
        if kernels is None:
            raise InvalidInputError(
                "the regularizer 'log_det' needs the kernels: call bind(bank, combination) first, "
                "as estimators do."
            )
        return kernels

    def _factor(self, d: Array) -> dict[str, Array]:
        """Lower Cholesky factor of I + K(d) / ridge; the last one is kept, and what it led to."""
        bank, combination = self._bound()
        ridge = positive_number("ridge of LogDet", self.ridge)
        last: dict[str, Array] = getattr(self, "_last", {})
        if not np.array_equal(last.get("at", []), [*d, ridge]):
            self._last = last = {}  # let go of its memory first
            matrix = combination.matrix(bank, np.maximum(d, 0.0))
            matrix /= ridge
            matrix[np.diag_indices_from(matrix)] += 1.0
            try:
                # What rounding takes away, of float32 banks too, is added to the diagonal again.
                last.update(lower=jittered_cholesky(matrix), at=np.array([*d, ridge]))
            except LinAlgError:
                raise InvalidInputError(
                    "the log determinant of I + K(d) / ridge does not exist: K(d) is not positive "
                    "semi-definite, or not finite. Leave out or repair the kernel that is not "
                    "(kernelweave.kernels.nearest_psd), or use another regularizer."
                ) from None
        return last

    def value(self, d: Array) -> float:
        price = self._price()
        if float(np.min(d)) < -1e-9:
            return np.inf
        return 2.0 * price * float(np.sum(np.log(self._factor(d)["lower"].diagonal())))

    def gradient(self, d: Array) -> Array:
        price, factor = self._price(), self._factor(d)
        if "slopes" not in factor:
            bank, combination = self._bound()
            inverse = np.tril(dpotri(factor["lower"], lower=1)[0])
            inverse += np.tril(inverse, -1).T
            inverse /= self.ridge
            factor["slopes"] = combination.contract(bank, np.maximum(d, 0.0), inverse)
        return price * factor["slopes"]

    def _no_dual(self, _: Array) -> NoReturn:
        raise NotImplementedError(
            "LogDet has no omega, no weights_from_norms and no dual_penalty: it is not convex in "
            "the weights, so the problem has no dual and no duality gap."
        )

    omega = weights_from_norms = dual_penalty = _no_dual  # type: ignore[assignment]
