"""A small reinforcement-learning job of real processes, which shows rlship at work on a job that learns."""
