"""The ledger: digests and records of the writer, what the sidecar makes of them, whole jobs."""
