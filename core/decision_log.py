"""The decision log: every change that a placement index was told of and every decision it made, as bytes.

A log is a line that names the format and its version, then frames: the length of a message in four bytes, least significant
first, and the message in msgpack. The first message says how the index was made. A log is whole in itself, so that it can be
run again (`core.replay`) on any machine and gives the same: nothing in it or in the kernel depends on a clock, on the order
of hashes or on the processor. A frame that a crash cut off ends a log early and takes nothing from what stands before it.

Demands that come again are written once, with a number; later messages name the number.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from beeyard.core.demand import Demand, PoolColumn
from beeyard.core.errors import InvalidSpec
from beeyard.core.model import HostPort, Node
from beeyard.core.parent_links import LinkUse
from beeyard.core.volume import Volume, VolumeUse

MAGIC = b"beeyard decisions 1\n"
_LENGTH_BYTES = 4


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message."""


class Begin(Entry, frozen=True, tag="begin"):
    """How the index was made."""

    seed: str
    strategy: str


class KindNames(Entry, frozen=True, tag="kinds"):
    """Generic kinds that have their numbers, in order of these."""

    names: tuple[str, ...]


class NewDemand(Entry, frozen=True, tag="demand"):
    """A demand gets its number."""

    number: int
    demand: Demand


class SetNode(Entry, frozen=True, tag="node"):
    node: Node


class RemoveNode(Entry, frozen=True, tag="node-"):
    node_id: str


class SetNetwork(Entry, frozen=True, tag="network"):
    network_id: str
    driver: str
    pools: tuple[PoolColumn, ...]
    name: str


class RemoveNetwork(Entry, frozen=True, tag="network-"):
    network_id: str


class SetPoolFree(Entry, frozen=True, tag="free"):
    pool_id: str
    free: int


class SetVolume(Entry, frozen=True, tag="volume"):
    volume: Volume


class RemoveVolume(Entry, frozen=True, tag="volume-"):
    volume_id: str


class Reserve(Entry, frozen=True, tag="reserve"):
    """A task has volumes."""

    task_id: str
    node_id: str
    uses: tuple[VolumeUse, ...]


class Release(Entry, frozen=True, tag="reserve-"):
    """A task gave its volumes back."""

    task_id: str


class TakePorts(Entry, frozen=True, tag="ports"):
    node_id: str
    ports: tuple[HostPort, ...]


class GivePorts(Entry, frozen=True, tag="ports-"):
    node_id: str
    ports: tuple[HostPort, ...]


class Hold(Entry, frozen=True, tag="hold"):
    """A task has its room. `plans` and `pools` are those of a task that was placed and not settled yet."""

    task_id: str
    demand: int
    node_id: str
    links: tuple[LinkUse, ...]
    volumes: tuple[VolumeUse, ...]
    plans: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()


class Drop(Entry, frozen=True, tag="hold-"):
    task_id: str


class Settle(Entry, frozen=True, tag="settle"):
    task_id: str


class Failure(Entry, frozen=True, tag="failure"):
    service_id: str
    spec_version: int
    node_id: str
    at_s: float


class Usual(Entry, frozen=True, tag="usual"):
    """What the strategy `fgd` has learned: tasks asked for, by what each needs of each kind."""

    counts: tuple[tuple[tuple[tuple[int, int], ...], int], ...]
    n_tasks: int


# Where a task went: node, pools, volumes.
Choice = tuple[str, tuple[str, ...], tuple[VolumeUse, ...]]


class Place(Entry, frozen=True, tag="place"):
    """A group, and where its first tasks went; there was no room for the others."""

    demand: int
    task_ids: tuple[str, ...]
    masked: tuple[str, ...]
    now_s: float
    choices: tuple[Choice, ...]


class PlaceMany(Entry, frozen=True, tag="places"):
    """Groups that were placed together, and where the first tasks of each went."""

    groups: tuple[tuple[int, tuple[str, ...]], ...]
    now_s: float
    rounds: int
    choices: tuple[tuple[Choice, ...], ...]


AnyEntry = (
    Begin
    | KindNames
    | NewDemand
    | SetNode
    | RemoveNode
    | SetNetwork
    | RemoveNetwork
    | SetPoolFree
    | SetVolume
    | RemoveVolume
    | Reserve
    | Release
    | TakePorts
    | GivePorts
    | Hold
    | Drop
    | Settle
    | Failure
    | Usual
    | Place
    | PlaceMany
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEntry] = msgspec.msgpack.Decoder(AnyEntry)


def frame(entry: AnyEntry) -> bytes:
    """A message as it stands in a log."""
    data = _encoder.encode(entry)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


def entries(data: bytes) -> Iterator[AnyEntry]:
    """The messages of a log; one that is cut off at its end is left out.

    Raises:
        InvalidSpec: it is no log of this version, or a message is damaged.
    """
    if not data.startswith(MAGIC):
        raise InvalidSpec("decision log", f"begins with {data[: len(MAGIC)]!r}, not with {MAGIC!r}")
    view = memoryview(data)
    for number, (begin, end) in enumerate(_whole(data), 1):
        try:
            yield _decoder.decode(view[begin:end])
        except msgspec.MsgspecError as error:
            raise InvalidSpec("decision log", f"message {number} at byte {begin} is damaged: {error}") from error


def n_bytes_cut(data: bytes) -> int:
    """How many bytes at the end of a log are a part of a message: few after a crash, many where a length is damaged."""
    end = len(MAGIC)
    for _, end in _whole(data):  # noqa: B007 - the last one is meant
        pass
    return len(data) - end


def _whole(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each message that is there whole begins and ends."""
    at = len(MAGIC)
    while (begin := at + _LENGTH_BYTES) <= len(data):
        at = begin + int.from_bytes(data[begin - _LENGTH_BYTES : begin], "little")
        if at > len(data):
            return
        yield begin, at


__all__ = ["MAGIC", "AnyEntry", "Choice", "entries", "frame", "n_bytes_cut"]
