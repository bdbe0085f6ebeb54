"""Coverage-guided fuzzing of what reads files from outside: `python -m tests.fuzz`."""
