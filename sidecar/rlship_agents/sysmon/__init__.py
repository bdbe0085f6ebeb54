"""`rlship sysmon`: an agent on each node, which logs what the node and the job's processes on it use."""
