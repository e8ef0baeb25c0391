"""Serf's rules on top of memberlist's: clocks, intents, members, user events, queries, coordinates, keys. No I/O."""
