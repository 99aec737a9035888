"""Files that went wrong: what accidents and forgers make of the bytes of a good one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# How many times more is tried than in every run of the tests.
TIMES = 20 if os.environ.get("KERNELWEAVE_HARD") == "full" else 1

# What files have in the wrong place, and what forgers write into them.
_PIECES = [
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80",
    b"\xed\xa0\x80",
    "é".encode("latin-1"),
    "\u2028\x85\x1c".encode(),
    b"1e400",
    b"-1e999",
    b"nan",
    b"inf",
    b"99999999999999999999",
    b"2147483646",
    b"9" * 5000,
    b"x" * 70_000,
    b"," * 300,
    b"\n" * 300,
    b"\r",
    b"\r\n",
    b"\t",
    b'"',
    b'""',
    b"'",
    b"#",
    b":",
    b"=",
    b"|",
    b">",
    b"@",
    b"[" * 2000,
    b"{",
    b"}",
    b"(1,) * 9",
    b"None",
    b"True",
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"\x1f\x8b\x08",
    b"\x93NUMPY",
    b"|O",
    b"|S0",
    b"<U0",
    b"|V0",
]
_DEEDS = ("flip", "set", "cut", "drop", "insert", "overwrite", "repeat", "move", "swap", "digit")


@dataclass(frozen=True)
class Deed:
    """One thing done to the bytes of a file."""

    what: str
    at: int
    to: int
    piece: bytes

    def __call__(self, data: bytes) -> bytes:
        if not data:
            return self.piece
        at = self.at % len(data)
        end = at + self.to % 64
        some = data[at:end]
        byte = data[at]
        far = self.to % len(data)
        digits = [i for i, b in enumerate(data) if 48 <= b < 58] if self.what == "digit" else []
        where = digits[self.at % len(digits)] if digits else at
        return {
            "flip": lambda: data[:at] + bytes([byte ^ (1 << self.to % 8)]) + data[at + 1 :],
            "set": lambda: data[:at] + bytes([self.to % 256]) + data[at + 1 :],
            "cut": lambda: data[:at],
            "drop": lambda: data[:at] + data[end:],
            "insert": lambda: data[:at] + self.piece + data[at:],
            "overwrite": lambda: data[:at] + self.piece + data[at + len(self.piece) :],
            "repeat": lambda: data[:end] + some * (1 + self.to % 50) + data[end:],
            "move": lambda: data[:far] + some + data[far:],
            "swap": lambda: data[far:] + data[:far],
            "digit": lambda: data[:where] + b"%d" % self.to + data[where + 1 :],
        }[self.what]()


_NUMBERS = st.integers(0, 2**40)
_SOME = st.sampled_from(_PIECES) | st.binary(max_size=8)
DEEDS = st.lists(
    st.builds(Deed, st.sampled_from(_DEEDS), _NUMBERS, _NUMBERS, _SOME), min_size=1, max_size=4
)


def damaged(data: bytes, deeds: list[Deed]) -> bytes:
    """Return a file after all that was done to it."""
    for deed in deeds:
        data = deed(data)
    return data


def hard(examples: int) -> settings:
    """Return settings for so many examples, the same ones in every run."""
    return settings(
        max_examples=examples * TIMES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
