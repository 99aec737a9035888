"""Kernels on sequences: letters and alphabets, k-mers, and the stores of weights over them."""
