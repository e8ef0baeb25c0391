"""Memberlist 0.2.2 as rules without I/O: SWIM with Lifeguard.

`Memberlist` is the face. Inside, `beliefs` decides who is alive, `prober` asks, `mail` packs and gossips, `roster` keeps.
*Memberlist*, in comments, is the library in Serf's own agents; `docs/gossip.md` says where the rules here differ.
"""

from beeyard.discovery.gossip.swim.config import LAN, LOCAL, WAN, Config
from beeyard.discovery.gossip.swim.memberlist import VSN, Memberlist
from beeyard.discovery.gossip.swim.transmit_queue import TransmitQueue, transmit_limit

__all__ = ["LAN", "LOCAL", "VSN", "WAN", "Config", "Memberlist", "TransmitQueue", "transmit_limit"]
