"""One experiment at work: its files' lines decoded, aligned, reduced and committed."""
