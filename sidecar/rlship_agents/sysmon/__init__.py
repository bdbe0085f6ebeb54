"""`rlship sysmon`: an agent on each node, which logs the use of the node and of the job's processes on it."""
