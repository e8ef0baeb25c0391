"""Executor `process`: image `host`, a command of this host in namespaces and a cgroup of its own.

The agent imports `executor.ProcessExecutor`. Everything else here runs in processes of its own, which must stay small:
`zygote`, `shim`, `init` and what they import use the standard library alone, and this file imports nothing.
"""
