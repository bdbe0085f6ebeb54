"""What a group of samples was at one hop: digests of its fields and a few sums, as one `ledger` record."""
