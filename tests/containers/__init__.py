"""`make containers`: the image and the singleton's pod, really run by podman. Not a part of `make test`."""
