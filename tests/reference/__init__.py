"""A slow, literal reading of docs/semantics.md, and random experiments to hold the pipeline against it."""
