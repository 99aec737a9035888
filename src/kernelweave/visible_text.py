"""Text of users (labels, names of columns, kernels and files) on its way to a screen."""

from __future__ import annotations

import re

# Control characters, which may move the cursor or run a terminal's commands; marks that change the
# direction of text, and so what it seems to say; line ends that are none; halves of characters.
_HIDDEN = (
    "\x00-\x1f\x7f-\x9f"
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ud800-\udfff"
)
_IN_LINE = re.compile(f"[{_HIDDEN}]")
_IN_LINES = re.compile(f"(?!\n)[{_HIDDEN}]")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Write control characters as Python does, so that a terminal shows them and obeys none.

    Parameters
    ----------
    text : str
    lines : bool, default=False
        Whether ends of lines stay what they are.

    Examples
    --------
    >>> print(visible("\x1b[31mred"))
    \x1b[31mred
    """
    hidden = _IN_LINES if lines else _IN_LINE
    return hidden.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
