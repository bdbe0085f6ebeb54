"""Notifiers: what tells people, and the systems that page them, of episodes."""
