"""What of an estimator goes into a model file, and how it comes back to life."""

from __future__ import annotations

from typing import Any

__all__ = ["Filed"]

# Those who watched a fit and what it started from are not part of what was learnt.
_OF_THE_FIT = {"callbacks": (), "warm_start_from": None}
# Made anew from the rest.
_REMADE = ("kernel_names_", "_decide", "_predictive", "_last", "scorer_")


class Filed:
    """For estimators: a small state for model files. Pickles hold everything."""

    def _file_state(self) -> dict[str, Any]:
        given: dict[str, Any] = self.__getstate__()  # type: ignore[assignment]
        state = {name: value for name, value in given.items() if name not in _REMADE}
        return state | {name: value for name, value in _OF_THE_FIT.items() if name in state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        # Only files come without the names. `load` checks them; skops itself can read them too.
        if "weights_" in state and "kernel_names_" not in state:
            self._come_back()

    def _after_load(self) -> None:
        for name in _REMADE:
            self.__dict__.pop(name, None)
        if hasattr(self, "weights_"):
            self._check_fitted()
            self._come_back()

    def _check_fitted(self) -> None:
        """Raise unless what was learnt, and came from a file, fits together."""

    def _come_back(self) -> None:
        """Make what a file does not hold."""
