"""Rows made again from the files at full speed, into a store of their own."""
