"""Sampling of a machine: processors, memory, disks, network, GPUs, and what single processes use of them.

Used by `rlship sysmon` and by `rlship.init(..., system_metrics=True)`. `import rlship` does not import it, and psutil
and pynvml are imported only once something is sampled.
"""
