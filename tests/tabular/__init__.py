"""Tables of rows and records: exports and queries."""
