"""The sidecar's reports on itself: to systemd, to Prometheus, to probes, and as rows of the run that it ships."""
