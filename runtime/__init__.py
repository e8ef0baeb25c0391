"""Everything the outside world gives a daemon, twice: for real and simulated."""
