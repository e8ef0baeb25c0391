"""What the parts of one memberlist share."""

from __future__ import annotations

import random

import msgspec

from beeyard.discovery.gossip.command import Command
from beeyard.discovery.gossip.delegate import Delegate
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.swim.config import Config
from beeyard.discovery.gossip.swim.roster import Member, Roster
from beeyard.discovery.gossip.swim.timers import Timers


class Counts(msgspec.Struct):
    """What happened since the start, for metrics."""

    probes: int = 0
    probes_failed: int = 0  # neither the member nor a helper nor TCP answered
    probes_by_stream: int = 0  # TCP alone answered
    suspicions: int = 0
    refutations: int = 0  # of what was said of this member
    late: int = 0  # times that this process ran late, and read first what had arrived
    stalls: int = 0  # times that it did not run for so long that it judged nobody
    mends: int = 0  # exchanges because others believed something else than this member
    refused: int = 0  # messages that were not acted on: malformed, of other versions, beyond bounds
    unwelcome: int = 0  # members of other clusters
    conflicts: int = 0


class Context:
    """One member's memberlist, as its parts see it."""

    def __init__(
        self, me: Member, delegate: Delegate, rng: random.Random, config: Config, packet_overhead_bytes: int
    ) -> None:
        self.me = me
        self.delegate = delegate
        self.rng = rng
        self.config = config
        self.packet_overhead_bytes = packet_overhead_bytes
        self.out: list[Command] = []
        self.timers = Timers()
        self.roster = Roster(rng)
        self.counts = Counts()
        self.has_left = False
        self.leave_told = False  # often enough
        self.health = 0  # own troubles, 0 to config.health_max - 1

    def trouble(self, delta: int) -> None:
        """Own health changed: every own failing makes it worse, every probe that went well better.

        Source: Lifeguard, section IV-A; memberlist 0.2.2 awareness.go.
        """
        self.health = min(max(0, self.health + delta), self.config.health_max - 1)

    def reply_address(self, wanted: Address, source: Address) -> Address:
        """Where an answer goes: to the address named in the message only if a member is there, else to the packet's own.

        Otherwise anybody could have us send packets to whomever he names.
        """
        return wanted if wanted.host and self.roster.is_address(wanted) else source


__all__ = ["Context", "Counts"]
