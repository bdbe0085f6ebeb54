"""The server of `rlship view`, asked over loopback."""
