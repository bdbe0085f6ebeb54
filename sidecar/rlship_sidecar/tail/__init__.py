"""Discovery of experiments and files, and incremental reading of their complete lines."""
