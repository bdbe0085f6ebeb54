"""The faults that `make mutants` plants still fit the code."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import MUTANTS, TREE, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.what for mutant in MUTANTS])
def test_the_text_to_replace_is_there_once(mutant: Mutant) -> None:
    """Otherwise `make mutants` ends with an error before it has tried the others."""
    assert (TREE / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
