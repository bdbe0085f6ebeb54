"""Files made of an experiment on request: traces for Perfetto, tables of samples."""
