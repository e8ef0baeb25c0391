"""The agent: runs the tasks assigned to this host and reports what became of them."""
