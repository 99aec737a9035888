"""Say for every data set where it was found, or why not."""

from benchmarks.data import SPECS, describe
from benchmarks.part import read_options
from benchmarks.show import Table

if __name__ == "__main__":
    folder = read_options(__doc__).data_dir
    found = Table("", ["set", "rows", "columns", "classes", "found"])
    for name in SPECS:
        found.row(*describe(name, folder))
