"""What makes a job's calls of `wandb` reach rlship, though the job changes no line.

`rlship run` puts the folder `site` first on PYTHONPATH. Python imports `sitecustomize` from there at each start, and
that loads `interception`: once the job has imported `wandb` or `ray`, it hands the module to the code of rlship that
looks after it. `ray` carries the same into the workers of a Ray cluster.
"""
