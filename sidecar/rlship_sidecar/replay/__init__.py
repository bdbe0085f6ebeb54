"""Makes all rows again from the files at full speed, in a store of their own."""
