"""A slow, literal reading of formats/SPEC.md and docs/semantics.md, and random experiments to try the pipeline with."""
