"""rlship: log from any process of an RL job; a sidecar makes one run of it."""
