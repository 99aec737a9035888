"""Run as a process: open small files that unpack to much; a line of JSON for each."""

from __future__ import annotations

import json
import resource
import sys
import warnings

import polars as pl

from kernelweave import MKLClassifier, load, read_sequences, read_table
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.kernels import Linear
from kernelweave.model_files import read_header
from kernelweave.reading import read_matrix

LEFT = 700 * 2**20


def limit():
    """Leave so much beyond what the process has now."""
    with open("/proc/self/status") as lines:
        has = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (has + LEFT, resource.RLIM_INFINITY))


def warm_start(path):
    MKLClassifier([Linear()], warm_start_from=path).fit([[0.0], [1.0], [2.0]], [0, 1, 1])


READERS = {
    "read_header": read_header,
    "load": load,
    "read_table": read_table,
    "read_matrix": read_matrix,
    "read_sequences": read_sequences,
    "warm_start_from": warm_start,
}


def main():
    warnings.simplefilter("ignore")
    # Threads come first: their addresses are no data.
    pl.LazyFrame({"a": [1.0, 2.0]}).select(pl.col("a").sum()).collect()
    limit()
    for argument in sys.argv[1:]:
        reader, _, path = argument.partition("=")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            READERS[reader](path)
            said = "read"
        except (InvalidInputError, MemoryBudgetError) as error:
            said = str(error)
        except BaseException as error:
            said = f"UNEXPECTED {type(error).__name__}: {error}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(json.dumps([reader, path, said, 1024 * grown]), flush=True)


if __name__ == "__main__":
    main()
