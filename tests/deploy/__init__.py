"""Units, manifests and the image."""
