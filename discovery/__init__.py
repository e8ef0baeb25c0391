"""Who is there: gossip in the Serf protocol, ways to find first peers, and lists that managers publish."""
