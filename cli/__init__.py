"""The command `beeyard`: which daemon or tool runs, and the tools that talk to a manager."""
