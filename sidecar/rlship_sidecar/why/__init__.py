"""Why: from an episode of an alert back to its causes, by a graph of signs and causes that people wrote."""
