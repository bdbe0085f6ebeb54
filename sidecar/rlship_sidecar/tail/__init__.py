"""From a folder to complete lines: which experiments and files there are, and reading on where the last look ended."""
