"""The contract on disk: records in and out."""
