"""What small fits spend on Python: how deep the calls of a fit go."""

import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer

import kernelweave
from kernelweave import MKLClassifier

ROOT = str(Path(kernelweave.__file__).parent)
MOST_FRAMES = 20


@pytest.mark.parametrize("kernels", ["default", "simplemkl"])
def test_calls_are_not_deep(kernels):
    X, y = load_breast_cancer(return_X_y=True)
    model = MKLClassifier(kernels).fit(X, y)  # What is imported and compiled once is not counted.
    deepest: list[str] = []

    def look(frame, event, arg):
        nonlocal deepest
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        stack = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(ROOT):
                stack.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            frame = frame.f_back
        if len(stack) > len(deepest):
            deepest = stack

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(before)
    assert len(deepest) <= MOST_FRAMES, " < ".join(deepest)
