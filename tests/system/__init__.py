"""System metrics: what is sampled, against a driver library made for the tests; the agent and the worker's thread."""
