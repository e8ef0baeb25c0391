"""Searches the decoders of gossip for bytes that raise something else than `RemoteProtocolError`, or that take too long.

Run by hand, for ten minutes, after a change to `discovery/gossip/wire`:

    .venv/bin/pip install -e '.[fuzz]'
    .venv/bin/python benchmarks/fuzz_gossip.py /tmp/corpus -max_total_time=600 -max_len=65536

It starts from what real agents sent (`tests/data/serf_vectors.json`). What it found interesting it leaves in the folder;
`--keep FOLDER` writes those inputs that reach different code into `tests/data/gossip_fuzz.json`, for the unit tests.
The first byte of an input says which decoder gets the rest, so that one corpus serves all.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["beeyard.discovery"]):
    from beeyard.core.errors import RemoteProtocolError
    from beeyard.discovery.gossip.message import Ack, Alive, Message, PushPull, Query, User
    from beeyard.discovery.gossip.wire.codec import decode, encode
    from beeyard.discovery.gossip.wire.keyring import Keyring
    from beeyard.discovery.gossip.wire.packet import PacketCodec
    from beeyard.discovery.gossip.wire.serf_codec import (
        decode_coordinate,
        decode_filter,
        decode_serf,
        decode_tags,
        encode_serf,
    )
    from beeyard.discovery.gossip.wire.stream import StreamReader

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "data" / "gossip_fuzz.json"
KEPT_BYTES_MAX = 2048  # of one input that becomes a test
SLOW_S = 0.05
KEY = b"k" * 32
HEADER_BYTES = 5


class Slow(Exception):
    """An input took longer than an agent may be held up by one packet."""


def look_into(message: Message) -> None:
    """Read what a message carries for the layer above, and write what was read."""
    again: list[Callable[[], object]] = [lambda: encode(message)]
    if isinstance(message, User):
        again.append(lambda: look_into_serf(message.data))
    elif isinstance(message, PushPull):
        again.append(lambda: look_into_serf(message.user_state))
        again.extend([lambda node=node: decode_tags(node.meta) for node in message.nodes[:20]])
    elif isinstance(message, Ack):
        again.append(lambda: decode_coordinate(message.payload))
    elif isinstance(message, Alive):
        again.append(lambda: decode_tags(message.meta))
    for step in again:
        try:
            step()
        except RemoteProtocolError:
            continue


def look_into_serf(data: bytes) -> None:
    """The same for a message of Serf."""
    message = decode_serf(data)
    encode_serf(message)
    if isinstance(message, Query):
        for blob in message.filters:
            decode_filter(blob)


def packet(data: bytes) -> None:
    """A plain datagram."""
    for message in PacketCodec().unpack(data):
        look_into(message)


def sealed_packet(data: bytes) -> None:
    """One that somebody with the key sealed."""
    keyring = _keyring()
    for message in PacketCodec(keyring).unpack(keyring.seal(data)):
        look_into(message)


def stream(data: bytes) -> None:
    """A plain stream, in two pieces."""
    reader = StreamReader()
    message = reader.feed(data[: len(data) // 2]) or reader.feed(data[len(data) // 2 :])
    if message is None:
        reader.end()
    else:
        look_into(message)


def sealed_stream(data: bytes) -> None:
    """One that somebody with the key sealed."""
    keyring = _keyring()
    header = b"\x0a" + (len(data) + 29).to_bytes(4, "big")
    message = StreamReader(keyring).feed(header + keyring.seal(data, associated=header))
    if message is not None:
        look_into(message)


def garbage_for_a_key(data: bytes) -> None:
    """Whatever comes to somebody who has a key."""
    for read in (PacketCodec(_keyring()).unpack, StreamReader(_keyring()).feed):
        try:
            read(data)
        except RemoteProtocolError:
            continue


def one_message(data: bytes) -> None:
    """Without layers."""
    look_into(decode(data))


def _keyring() -> Keyring:
    return Keyring([KEY], random_bytes=bytes)


TARGETS = (packet, sealed_packet, stream, sealed_stream, garbage_for_a_key, one_message, look_into_serf)


def run_one(data: bytes) -> None:
    """One input; raises for whatever must not happen."""
    if not data:
        return
    target = TARGETS[data[0] % len(TARGETS)]
    spent_s = SLOW_S + 1
    for _ in range(3):  # once is enough, unless the machine was busy with something else
        started = time.process_time()
        with contextlib.suppress(RemoteProtocolError):
            target(bytes(data[1:]))
        spent_s = min(spent_s, time.process_time() - started)
        if spent_s <= SLOW_S:
            return
    raise Slow(f"{spent_s * 1000:.0f} ms for {len(data)} bytes")


def seeds() -> list[bytes]:
    """What real agents sent, opened where it was encrypted, for each decoder that it fits."""
    found = []
    for vector in json.loads((ROOT / "tests" / "data" / "serf_vectors.json").read_text()):
        data, plain = bytes.fromhex(vector["hex"]), None
        over_tcp = vector["transport"] == "tcp"
        if "key_b64" in vector:
            keyring = Keyring([base64.b64decode(vector["key_b64"])], random_bytes=bytes)
            header = data[:HEADER_BYTES] if over_tcp else b""
            plain = keyring.open(data[len(header) :], associated=header)
            found.append(bytes([4]) + data)
        found += [
            bytes([kind]) + (plain if plain is not None else data) for kind in ((2, 3) if over_tcp else (0, 1, 5))
        ]
        for message in [] if over_tcp else PacketCodec().unpack(plain if plain is not None else data):
            found.append(bytes([5]) + encode(message))
            if isinstance(message, User):
                found.append(bytes([6]) + message.data)
    return found


def keep(folder: Path) -> None:
    """Write the smallest inputs of a corpus as the data of a test: the first of each length and kind, up to a number."""
    chosen: dict[tuple[int, int], bytes] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        data = path.read_bytes()
        if data and len(data) <= KEPT_BYTES_MAX:
            chosen.setdefault((data[0] % len(TARGETS), len(data)), data)
    KEPT.write_text(json.dumps([data.hex() for data in chosen.values()], indent=0) + "\n")
    print(f"{len(chosen)} inputs in {KEPT}")


def main() -> None:
    """Fuzz, or keep what fuzzing found."""
    if sys.argv[1:2] == ["--keep"]:
        keep(Path(sys.argv[2]))
        return
    corpus = Path(next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "corpus"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    atheris.Setup(sys.argv, run_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
