"""Which process may write for an experiment."""
