"""The TensorBoard sink: event files that grow and are never written twice."""
