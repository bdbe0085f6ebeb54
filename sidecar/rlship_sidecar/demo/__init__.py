"""A small reinforcement-learning job of real processes, to see rlship at work on something that learns."""
