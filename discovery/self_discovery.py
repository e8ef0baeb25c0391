"""Self-discovery as one part of a daemon: a gossip node that finds its peers and remembers them.

What gossip says is never believed in what matters: members of another cluster are not taken in, members without a cluster
(plain Serf agents) are carried along and not shown, and a manager's address is only where to ask: its CA is checked there.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
import trio

from beeyard.core.errors import DiskError, HostError, InvalidSpec, NameConflict, PeerError
from beeyard.discovery.gossip.config import GossipConfig, reached_at
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.gossip.serf.event import Member, MemberEvent
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.packet import PacketCodec
from beeyard.discovery.keyring_file import read_keyring
from beeyard.discovery.peers import advertise
from beeyard.discovery.peers.finder import Finder, Searcher
from beeyard.discovery.peers.known_peers import KnownPeers
from beeyard.discovery.peers.mdns import Offer, Responder
from beeyard.discovery.peers.moved import is_gone
from beeyard.discovery.peers.own_addresses import OwnAddress, own_addresses
from beeyard.discovery.peers.probe import Prober
from beeyard.discovery.settings import DiscoverySettings, own_tags
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Host

# Tags of a member. The cluster's is the digest of its CA, as in a join token: what keeps clusters apart, and no secret.
CLUSTER_TAG = "cluster"
ROLE_TAG = "role"  # "agent" or "manager"
MANAGER_TAG = "manager"  # of a manager: HOST:PORT at which agents reach it
NODE_TAG = "node"  # of an agent: the id of its node once it has one
# Ports above the one that is wanted, of which the first free one is taken: more daemons than these share no host.
PORTS_TRIED = 16
# Changes are collected for so long before the known peers are written: a storm of joins is one write or two.
WRITE_AFTER_S = 1.0
# After a change of address: so many are asked at once for all that is known.
REJOINED_MAX = 3
# How long a member rests whose name another one has: by then that one may be gone.
REST_S = 60.0
# A farewell takes 2 to 3 s, some 5 s among 1,000 members. Longer than this nobody waits for it who wants to stop: whoever has
# not heard it sees a failure, which harms nothing.
LEAVE_TIMEOUT_S = 6.0

log = structlog.get_logger(__name__)


class SelfDiscovery:
    """See the module. `node` and what asks it are there once `run` has started.

    Args:
        node_name: the member's name, one in the cluster.
        state_dir: where the peers that are known are kept.
        cluster: digest of the cluster's CA; members of another cluster are neither merged nor shown.
        tags: more of this member's tags, given the host of its advertised address.
        port: where to gossip, by UDP and TCP. When another daemon of this host has it, the next free one is taken, and that
            daemon is joined.
        given: HOST:PORT of peers to begin with.
        advertise: the address to be known by, HOST or HOST:PORT; "": the one that leads to a peer.
        settings: None: the defaults.
    """

    def __init__(
        self,
        host: Host,
        *,
        node_name: str,
        state_dir: str,
        cluster: str,
        tags: Callable[[str], Mapping[str, str]],
        port: int,
        given: Sequence[Address] = (),
        advertise: str = "",
        settings: DiscoverySettings | None = None,
    ) -> None:
        self._host = host
        self._name = node_name
        self._cluster = cluster
        self._tags_for = tags
        self._tags: Mapping[str, str] = {}
        self._port = port
        self._given = list(given)
        self._advertise = advertise
        self._settings = settings or DiscoverySettings()
        self._known = KnownPeers(host.files, f"{state_dir}/known-peers", host.wall_now_s)
        self._own: list[OwnAddress] = []
        self._node: GossipNode | None = None
        self._rests = False
        self._life = trio.CancelScope()  # of the node
        self._changed = trio.Event()

    @property
    def node(self) -> GossipNode:
        """The running gossip node: events, queries, keys."""
        assert self._node is not None, "self-discovery has not started"
        return self._node

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Gossip and look for peers until cancelled; started, with the advertised address, once others can find this one.

        It waits for no peer. Being cancelled is no leave: `leave` first.

        Raises:
            InvalidSpec: several addresses could be advertised and none was named (lists them), or a setting cannot work.
            HostError: no port can be bound.
        """
        await self._known.load()
        keyring = await read_keyring(self._host, self._settings.keyring_file)
        prober = Prober(self._host, lambda: self._codec(keyring))
        searcher = Searcher(self._host, prober, self._settings, self._port)
        me = await self._address(searcher)
        self._tags = self._tags_for(me.host)
        async with trio.open_nursery() as nursery:
            node, port = await self._start(nursery, me)
            self._node = node
            nursery.start_soon(self._watch)
            if port != self._port:
                log.info("another daemon of this host gossips at the port", port=self._port, own=port)
                self._given.insert(0, Address(me.host, self._port))
            prober = Prober(self._host, lambda: self._codec(node.keyring))
            searcher = Searcher(self._host, prober, self._settings, self._port)
            if not self._advertise and any(own.address == me.host and own.interface for own in self._own):
                nursery.start_soon(self._follow_address, searcher)
            nursery.start_soon(Finder(self._host, self, prober, searcher, self._known, self._given).run)
            if self._settings.mdns:
                nursery.start_soon(Responder(self._host, self._offer, lambda: self._own).run)
            log.info("gossips", address=str(node.me.address), known=len(self._known.peers()))
            task_status.started(node.me.address)

    # --- what is known

    def members(self) -> Sequence[Member]:
        """All members of this cluster by name, this one included, whatever their status."""
        return [member for member in self.node.members() if member.tags.get(CLUSTER_TAG) == self._cluster]

    def managers(self) -> list[str]:
        """Every living manager that gossip tells of, as "tcp://HOST:PORT", in an order of this member's own.

        Nobody vouches for them: whoever connects checks the CA.
        """
        if self._node is None:
            return []
        found = {
            address: member.name
            for member in self.members()
            if member.status == "alive" and (address := _manager_address(member))
        }
        return sorted(found, key=lambda address: zlib.crc32(f"{self._name} {found[address]}".encode()))

    @property
    def rests(self) -> bool:
        """Whether gossip stands still for a while, so that what it knows is old."""
        return self._rests

    async def changed(self) -> None:
        """Wait until a member joins, leaves, fails or changes."""
        await self._changed.wait()

    async def set_tags(self, tags: Mapping[str, str]) -> None:
        """Have these tags instead of those given at the start; the cluster's stays."""
        self._tags = dict(tags)
        if self._node is not None:
            self._node.set_tags(self._all_tags())

    async def leave(self) -> None:
        """Tell the others that this member leaves on purpose; returns when they know, after `LEAVE_TIMEOUT_S` at most."""
        if self._node is None or not any(m.status == "alive" and m.name != self._name for m in self._node.members()):
            return
        with trio.move_on_after(LEAVE_TIMEOUT_S) as scope:
            await self._node.leave()
        if scope.cancelled_caught:
            log.warning("left the gossip without knowing that others have heard of it", waited_s=LEAVE_TIMEOUT_S)

    # --- for the finder

    @property
    def me(self) -> Address:
        """See `Company.me`."""
        return self.node.me.address

    def is_member(self, address: Address) -> bool:
        """See `Company.is_member`."""
        return any(m.address == address and m.status in ("alive", "leaving") for m in self.node.members())

    def has_company(self) -> bool:
        """See `Company.has_company`."""
        hosts = {own.address for own in self._own} | {self.me.host}
        return any(member.status == "alive" and member.address.host not in hosts for member in self.members())

    def is_first_in(self, own: Sequence[OwnAddress]) -> bool:
        """See `Company.is_first_in`."""
        self._own = list(own)
        networks = [address.network for address in own]
        near = [m.address for m in self.members() if m.status == "alive" and _is_in(m.address, networks)]
        return not near or _by_number(self.me) <= min(map(_by_number, near))

    async def join(self, addresses: Sequence[Address]) -> int:
        """See `Company.join`."""
        if self._rests:
            raise PeerError("gossip rests: another member has the name of this one")
        return await self.node.join(addresses)

    # --- inside

    def _offer(self) -> Offer:
        return Offer(service=self._settings.mdns, instance=self._name, address=self.me)

    def _all_tags(self) -> dict[str, str]:
        return {**own_tags(self._settings), **self._tags, CLUSTER_TAG: self._cluster}

    def _is_welcome(self, name: str, tags: Mapping[str, str]) -> bool:
        return tags.get(CLUSTER_TAG, "") in ("", self._cluster)

    def _codec(self, keyring: Keyring | None) -> PacketCodec:
        """For asking around, as the member itself packs and reads."""
        settings = self._settings
        return PacketCodec(
            keyring,
            verify_incoming=settings.verify_incoming,
            verify_outgoing=settings.verify_outgoing,
            compress=False,
        )

    async def _address(self, searcher: Searcher, lost: Address | None = None) -> Address:
        """Where this member is to be reached. `lost`: where it was until now.

        A member that has known peers moves to an address that leads to one, or not at all: while the network of its host is
        away, what is left is such as a bridge of its own.
        """
        self._own = await own_addresses(self._host)
        if self._advertise:
            return await advertise.named(self._host.net, self._advertise, self._port)
        peers = [at for at in (*self._given, *self._known.addresses()) if not lost or at.host != lost.host]
        ask_around, must_lead = partial(searcher.first, self._own), bool(lost and peers)
        host = await advertise.chosen(self._host.net, self._own, peers, ask_around, must_lead=must_lead)
        return Address(host, lost.port if lost else self._port)

    async def _follow_address(self, searcher: Searcher) -> None:
        """Be known by another address when the host has lost the one that was chosen."""
        while True:
            lost = self.me
            await is_gone(self._host, lost.host)
            try:
                found = await self._address(searcher, lost)
            except (InvalidSpec, HostError) as error:
                log.warning("the host has lost the address of this member", lost=str(lost), reason=str(error))
                continue
            log.warning("this member takes another address, as its host has lost it", lost=str(lost), new=str(found))
            await self._move(found)

    async def _move(self, to: Address) -> None:
        """Leave and come back elsewhere: others take a name from another address once it has left, and not before."""
        alive = [member.address for member in self.members() if member.status == "alive"]
        others = [address for address in alive if address.host != self.me.host]  # who is here has lost its own as well
        await self.leave()
        was, now = self._tags_for(self.me.host), self._tags_for(to.host)
        self._tags = {**self._tags, **{tag: now[tag] for tag in now if now[tag] != was.get(tag)}}
        self.node.move(to)
        self._life.cancel()
        while self.me != to or self._life.cancel_called:
            await self.changed()
        try:
            await self.join(others[:REJOINED_MAX])
        except PeerError as error:
            log.info("nobody can be joined from the new address yet", reason=str(error))

    async def _start(self, nursery: trio.Nursery, me: Address) -> tuple[GossipNode, int]:
        """A node at the first port that is free, the one that is wanted first; and that port."""
        first_error: HostError | None = None
        for port in range(self._port, min(self._port + PORTS_TRIED, 65536)):
            advertised = me if me.port != self._port else Address(me.host, port)
            config = GossipConfig(
                name=self._name,
                port=port,
                tags=self._all_tags(),
                profile=self._settings.profile,
                keyring_path=self._settings.keyring_file,
                verify_incoming=self._settings.verify_incoming,
                verify_outgoing=self._settings.verify_outgoing,
            )
            node = GossipNode(self._host, reached_at(config, advertised), is_welcome=self._is_welcome)
            try:
                await nursery.start(self._keep, node)
            except DiskError:
                raise
            except HostError as error:
                first_error = first_error or error
            else:
                return node, port
        assert first_error is not None
        raise first_error

    async def _keep(self, node: GossipNode, *, task_status: trio.TaskStatus[object]) -> None:
        """Run a node for ever. One that ends, as another member has its name or it met a defect, begins again after a while.

        Anybody on the LAN may speak to it, and the daemon around it has better to do than to end for that.
        """
        status: trio.TaskStatus[object] = task_status
        while True:
            try:
                with trio.CancelScope() as self._life:
                    await node.run(task_status=status)
                if self._life.cancelled_caught:  # it has moved, and goes on at once
                    status = _Again(self)
                    continue
            except NameConflict:
                log.error("another member has the name of this one; gossip rests", name=self._name, again_in_s=REST_S)
            except Exception:
                if self._node is None:
                    raise
                # The firebreak: what ends gossip does not end the daemon.
                log.exception("gossip failed and rests", again_in_s=REST_S)
            self._rests = True
            self._tell()
            await trio.sleep(REST_S)
            status = _Again(self)

    def begun_again(self) -> None:
        """The node has started once more, with the tags of its first start."""
        self._rests = False
        self.node.set_tags(self._all_tags())
        self._tell()

    async def _watch(self) -> None:
        """Tell of changes, and write the known peers when a few have come together."""
        while True:
            events = self.node.events()
            try:
                async for event in events:
                    if not isinstance(event, MemberEvent):
                        continue
                    self._tell()
                    with trio.move_on_after(WRITE_AFTER_S):
                        async for _ in events:
                            self._tell()
                    await self._known.note(member for member in self.node.members() if member.name != self._name)
            finally:
                events.close()
            await self.changed()  # the node rests: until it begins again

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class _Again:
    """Who is told that a node has started once more."""

    def __init__(self, discovery: SelfDiscovery) -> None:
        self._discovery = discovery

    def started(self, value: object = None) -> None:
        """See `trio.TaskStatus.started`."""
        self._discovery.begun_again()


def _manager_address(member: Member) -> str:
    """Where a member says that a manager is; "" for one that is none, or says what is no address."""
    try:
        found = parse_address(f"tcp://{member.tags.get(MANAGER_TAG, '')}")
    except InvalidSpec:
        return ""
    is_one = isinstance(found, TcpAddress) and found.port and member.tags.get(ROLE_TAG) == "manager"
    return str(found) if is_one else ""


def _by_number(address: Address) -> tuple[int, int]:
    """An order of addresses in which every member is of one mind."""
    return int(ipaddress.ip_address(address.host.partition("%")[0])), address.port


def _is_in(address: Address, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    host = ipaddress.ip_address(address.host.partition("%")[0])
    return any(host in network for network in networks)


__all__ = ["CLUSTER_TAG", "LEAVE_TIMEOUT_S", "MANAGER_TAG", "NODE_TAG", "ROLE_TAG", "SelfDiscovery"]
