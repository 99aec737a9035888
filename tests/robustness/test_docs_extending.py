"""The bank that the page on extending builds keeps the contract of all banks."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from doc_pages import ROOT, run_page

BANKS = ROOT / "tests" / "contracts" / "test_banks.py"
SOME = np.array([4, 0, 2])


@pytest.fixture(scope="module")
def contract():
    spec = importlib.util.spec_from_file_location("contract_of_banks", BANKS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def disk_bank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extending")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        page = run_page(ROOT / "docs" / "extending.md")
    return lambda name: page["DiskBank"](folder / name)


def test_the_bank_of_the_page_answers_like_the_dense_one(contract, disk_bank):
    v = np.random.default_rng(1).normal(size=(2, contract.N))
    for normalize in ("trace", ("center", "trace")):
        kernels = contract.kernel_set(normalize)
        truth = kernels.block(np.arange(kernels.n))
        case = disk_bank(f"{normalize[0]}.npy").build(kernels), truth, 1e-12 * np.abs(truth).max()
        contract.test_names_and_sizes((*case, kernels.names))
        for chosen in (None, SOME):
            contract.test_rows(case, chosen)
            contract.test_products_and_quadratic_forms(case, v, chosen)
            contract.test_products_at_some_samples(case, v, chosen)
        contract.test_tiles(case)
        contract.test_quadratic_forms_and_one_product_in_one_pass(case, v)
        contract.test_sums_of_products_and_of_squares(case)
        contract.test_the_bound_on_centred_eigenvalues(case)
        contract.test_a_part_of_the_samples(case, v)
        contract.test_a_part_of_the_kernels(case, v, [2, 3, 4])
        contract.test_combinations(case)
        contract.test_diagonals(case)
    contract.test_sums_over_more_values_than_are_held_at_a_time(disk_bank("large.npy"))
