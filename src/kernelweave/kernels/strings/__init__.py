"""Kernels on sequences: letters and alphabets, k-mers, and tables of weights over them."""
