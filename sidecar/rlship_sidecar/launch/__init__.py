"""`rlship run` and `rlship hook`: starting a job whose calls of wandb reach rlship."""
