"""Whether to believe us: a folder for each question, see ``python -m benchmarks --help``."""
