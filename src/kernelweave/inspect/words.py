"""Numbers as a reader wants them: few digits, with their unit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class KeyNumber(NamedTuple):
    """A number in words: what it is, its value, what it means, whether it is "good" or "bad"."""

    head: str
    text: str
    small: str = ""
    state: str = "plain"
    interval: str = ""


def percent(share: float, digits: int = 1) -> str:
    """Return a share of one in percent; a small one keeps two digits that say something.

    >>> percent(0.9736), percent(0.00034837), percent(0.0), percent(1.0)
    ('97.4 %', '0.035 %', '0 %', '100 %')
    """
    if not math.isfinite(share):
        return "not known"
    value = 100.0 * share
    if value == 0.0 or abs(value - 100.0) < 1e-9:
        return f"{value:.0f} %"
    if 0.0 < abs(value) < 0.1:
        return f"{number(value, 2)} %"
    return f"{value:.{digits}f} %"


def number(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits, without needless zeros.

    >>> number(0.123456), number(41234.5), number(-2.0), number(1.2e-9), number(0.0)
    ('0.123', '41,234', '-2', '1.2e-9', '0')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "not known"
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(n: int, one: str, many: str | None = None) -> str:
    """Return a number of things.

    >>> plural(1, "kernel"), plural(1200, "kernel"), plural(2, "class", "classes")
    ('1 kernel', '1,200 kernels', '2 classes')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def seconds(value: float) -> str:
    """Return a time in the unit that suits it.

    >>> seconds(0.0123), seconds(4.256), seconds(200), seconds(7300)
    ('12 ms', '4.26 s', '3 min 20 s', '2 h 1 min')
    """
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 100:
        return f"{number(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def shorten(text: Any, limit: int = 44) -> str:
    """Return text without its middle if it is longer than the limit.

    >>> shorten("rbf(width=2) on mean radius", 11)
    'rbf(w…adius'
    """
    text = str(text)
    if len(text) <= limit:
        return text
    keep = (limit - 1) // 2
    return f"{text[: limit - 1 - keep]}…{text[-keep:]}"


def listed(items: list[str], most: int = 4) -> str:
    """Return some things in words.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdef"), 2)
    ('a', 'a, b and c', 'a, b and 4 more')
    """
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
