"""Executor `process`: image `host`, a command of this host in namespaces and a cgroup of its own.

The agent imports `executor.ProcessExecutor`. `native/` is the program of zygote and shims, `helper` a process of its own that
must stay small: what it imports uses the standard library alone, and this file imports nothing.
"""
