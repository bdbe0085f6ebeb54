"""What the sidecar tells of itself."""
