"""Sampling of a machine: processors, memory, disks, network, GPUs, and their use by single processes.

`rlship sysmon` and `rlship.init(..., system_metrics=True)` use it. `import rlship` does not import it, and psutil and
pynvml are imported only once something is sampled.
"""
