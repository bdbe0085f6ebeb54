"""`make systemd`: every documented unit under a systemd that booted, in a container. Not a part of `make test`."""
