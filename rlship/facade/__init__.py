"""Other loggers' calls as rlship's records: a job that calls W&B unchanged writes rlship's files.

`wandb.patch(module)` takes over the package that a process has imported. Only the standard library is used, and
nothing here is imported before a process imports that package under `rlship run` or the installed hook.
"""
