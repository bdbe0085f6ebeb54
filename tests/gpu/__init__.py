"""What only a GPU can show: `python -m tests.gpu`, on a machine with torch and CUDA. Not part of `make test`."""
