"""Deliberate faults that the tests must notice: `python -m tests.mutants`, or `make mutants`."""
