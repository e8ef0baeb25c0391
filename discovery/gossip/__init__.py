"""Membership by gossip, wire-compatible with HashiCorp Serf 0.9.4 (memberlist 0.2.2): rules without I/O, and a driver."""
