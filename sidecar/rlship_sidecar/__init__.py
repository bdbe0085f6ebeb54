"""The sidecar: discover -> tail -> decode -> align -> reduce -> store -> ship -> sinks."""
