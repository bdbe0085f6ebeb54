"""Values and times of GPUs. Nothing here imports torch: a job that uses GPUs has imported it itself."""
