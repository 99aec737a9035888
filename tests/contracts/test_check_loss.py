"""`check_loss` passes a loss of three methods and finds every mistake made in one."""

from __future__ import annotations

import numpy as np
import pytest
from own_losses import Huber

from kernelweave.errors import InvalidInputError
from kernelweave.losses import Hinge, Logistic, check_loss, per_weight


class Cauchy(Huber):
    """Not convex; value and gradient belong together."""

    def value(self, y, z, C):
        return C * np.log1p((z - y) ** 2)

    def gradient(self, y, z, C):
        return 2 * C * (z - y) / (1 + (z - y) ** 2)


class Absolute(Huber):
    """Convex, but with a kink."""

    def value(self, y, z, C):
        return C * np.abs(z - y)

    def gradient(self, y, z, C):
        return C * np.sign(z - y)

    def conjugate(self, y, alpha, C):
        return self._finite_in_domain(y, alpha, C, -alpha * y)


class Falling(Huber):
    """Convex, but without a least value: alpha = 0 is no slope of it."""

    def value(self, y, z, C):
        return super().value(y, z, C) - 2.0 * C * z

    def gradient(self, y, z, C):
        return super().gradient(y, z, C) - 2.0 * C


def wrong(method, formula, **attributes):
    """Huber with one method replaced, and what attributes else."""
    return type("Wrong", (Huber,), {method: formula, **attributes})()


WRONG = {
    "gradient of twice the size": (
        wrong("gradient", lambda self, y, z, C: 2.0 * Huber.gradient(self, y, z, C)),
        r"gradient is not the derivative of the value: at y = .* it is 10\.6, .* give 5\.",
    ),
    "gradient of the wrong sign": (
        wrong("gradient", lambda self, y, z, C: -Huber.gradient(self, y, z, C)),
        "gradient is not the derivative",
    ),
    "gradient off by a thousandth": (
        wrong("gradient", lambda self, y, z, C: 1.001 * Huber.gradient(self, y, z, C)),
        "gradient is not the derivative",
    ),
    "not convex": (Cauchy(), "not convex: its gradient falls as z grows"),
    "a jump": (Absolute(), r"gradient of .* jumps from -1 to \S+ at y = 0, z = 0, so"),
    "no box_qp": (
        type("Kinked", (Absolute,), {"smooth": False})(),
        "smooth = False but has no box_qp",
    ),
    "falls without end": (Falling(), "alpha = 0 must be in the domain"),
    "not a number": (
        wrong("value", lambda self, y, z, C: Huber.value(self, y, z, C) / (z != 0)),
        "must be finite: at y = .*, z = 0",
    ),
    "a sum over samples": (
        wrong("value", lambda self, y, z, C: np.sum(Huber.value(self, y, z, C))),
        r"the value of arrays of shape .* must have the same shape; got \(\)",
    ),
    "weight left out": (
        wrong("value", lambda self, y, z, C: Huber.value(self, y, z, 1.0)),
        "the value must be C times that of weight 1",
    ),
    "weight of the gradient left out": (
        wrong("gradient", lambda self, y, z, C: Huber.gradient(self, y, z, 1.0)),
        "the gradient must be C times that of weight 1",
    ),
    "division by a weight of zero": (
        wrong("conjugate", lambda self, y, alpha, C: alpha**2 / (2 * C) - alpha * y),
        r"Fenchel-Young; .*per_weight.*: at y = .*, alpha = -?0, C = 0 it is nan",
    ),
    "conjugate finite everywhere": (
        wrong("conjugate", lambda s, y, a, C: 0.5 * a * per_weight(a, C) - a * y),
        "infinite outside the domain .*_finite_in_domain",
    ),
    "conjugate infinite at the end": (
        wrong(
            "conjugate",
            lambda self, y, a, C: np.where(
                (np.abs(a) >= C) & (C > 0), np.inf, Huber.conjugate(self, y, a, C)
            ),
        ),
        r"Fenchel-Young; .*: at y = .* it is inf",
    ),
    "conjugate twice as curved": (
        wrong("conjugate", lambda s, y, a, C: Huber.conjugate(s, y, a, 0.5 * C)),
        "Fenchel-Young",
    ),
    "conjugate of plus alpha": (
        wrong("conjugate", lambda s, y, a, C: Huber.conjugate(s, y, -a, C)),
        "Fenchel-Young",
    ),
    "conjugate nan beyond the end": (
        wrong("conjugate", lambda s, y, a, C: Huber.conjugate(s, y, a, C) + 0 * np.sqrt(C - a)),
        "must be a number at the ends of the domain",
    ),
    "conjugate of the wrong shape": (
        wrong("conjugate", lambda s, y, a, C: 0.0 if np.all(C == 0) else np.zeros(3)),
        "conjugate of arrays of shape .* got",
    ),
    "domain too wide": (
        wrong("domain", lambda s, y, C: (-2.0 * C + 0 * y, C + 0 * y)),
        "lower end of the domain is not the limit of minus the gradient: at .* limit -5.3",
    ),
    "domain not bounded": (
        wrong("domain", lambda s, y, C: (-C + 0 * y, np.where(C > 0, np.inf, 0.0) + 0 * y)),
        "upper end of the domain .* it is inf, and the limit 0.37",
    ),
    "domain of weight zero": (
        wrong("domain", lambda s, y, C: (-np.maximum(C, 1.0), np.maximum(C, 1.0))),
        "end of the domain is not the limit of minus the gradient: at .* C = 0 it is .* limit -?0",
    ),
    "curvature everywhere": (
        wrong("curvature", lambda self, y, z, C: C + 0.0 * z),
        "curvature is not the derivative of the gradient",
    ),
    "derivative of the conjugate": (
        wrong("conjugate_gradient", lambda self, y, a, C: y - a / C),
        "conjugate_gradient is not the derivative of the conjugate",
    ),
    "prox of another loss": (
        wrong("prox", lambda self, y, v, C, step: (v + step * C * y) / (1.0 + step * C)),
        r"the prox, step = 0\.1, is not where .* is least: at y = .*, v = .* it is",
    ),
    "Lipschitz constant": (
        wrong("lipschitz", lambda self, C: 0.9 * np.asarray(C)),
        r"rises faster than its Lipschitz constant: .* by (0\.37 a unit, .* is 0\.333|"
        r"5\.3 a unit, .* is 4\.77|1 a unit, .* is 0\.9)",
    ),
}


@pytest.mark.parametrize("delta", [1e-3, 1.0, 1e5])
def test_a_right_loss_passes(delta: float) -> None:
    check_loss(Huber(delta))
    check_loss(Huber(delta), [1e4, -1e4])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_loss_is_found(name: str) -> None:
    loss, message = WRONG[name]
    with pytest.raises(InvalidInputError, match=message):
        check_loss(loss)


def test_negative_curvature_is_found() -> None:
    # In the flat part, and so small that it passes for the derivative of the gradient.
    formula = lambda self, y, z, C: np.where(np.abs(y - z) < 1.0, C, -1e-9 * C)  # noqa: E731
    with pytest.raises(InvalidInputError, match=r"must not be negative: .* it is -5.3e-09"):
        check_loss(wrong("curvature", formula))


def test_targets_to_check_with() -> None:
    check_loss(Hinge(), [1.0])
    with pytest.raises(InvalidInputError, match=r"must hold finite numbers .* got \[nan\]"):
        check_loss(Logistic(), [np.nan])
    with pytest.raises(InvalidInputError, match="must hold finite numbers"):
        check_loss(Logistic(), [])
