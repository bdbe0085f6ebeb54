"""The contract on disk against the code: formats/SPEC.md, its schemas, and its vectors in both directions."""
