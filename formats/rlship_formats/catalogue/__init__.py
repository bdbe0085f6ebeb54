"""The catalogue: metrics that RL post-training jobs have in common, and what frameworks call them."""
