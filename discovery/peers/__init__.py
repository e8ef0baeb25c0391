"""How a gossip node finds its first peers: addresses given, peers known from earlier, mDNS, and a scan of the LAN."""
