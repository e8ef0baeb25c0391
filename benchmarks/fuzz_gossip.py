"""Searches the decoders of gossip for bytes that raise something else than `RemoteProtocolError`, or that take too long.

Run by hand, for ten minutes, after a change to `discovery/gossip/wire`:

    .venv/bin/pip install -e '.[fuzz]'
    .venv/bin/python -m benchmarks.fuzz_gossip /tmp/corpus -max_total_time=600 -max_len=65536

It starts from what real agents sent (`tests/data/serf_*vectors.json`) and from what was found before. What it finds
interesting it leaves in the folder; `--keep FOLDER` makes that the data of a unit test (`tests/data/gossip_fuzz.json`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["beeyard.discovery"]):
    from beeyard.discovery.gossip.message import User
    from beeyard.discovery.gossip.wire.codec import encode
    from beeyard.discovery.gossip.wire.packet import PacketCodec
    from tests.support.gossip_fuzz import CORPUS, TARGETS, corpus, decode_one

from tests.support.serf_vectors import MORE_VECTORS, VECTORS, keyring_of

KEPT_BYTES_MAX = 2048  # of one input that becomes a test
SLOW_S = 0.05
FRAME_HEADER_BYTES = 5
PACKET, SEALED_PACKET, STREAM, SEALED_STREAM, GARBAGE, MESSAGE, SERF = range(len(TARGETS))


class Slow(Exception):
    """An input took longer than an agent may be held up by one packet."""


def run_one(data: bytes) -> None:
    """One input; raises for whatever must not happen."""
    spent_s = SLOW_S + 1
    for _ in range(3):  # once is enough, unless the machine was busy with something else
        started = time.process_time()
        decode_one(data)
        spent_s = min(spent_s, time.process_time() - started)
        if spent_s <= SLOW_S:
            return
    raise Slow(f"{spent_s * 1000:.0f} ms for {len(data)} bytes")


def seeds() -> list[bytes]:
    """What real agents sent, opened where it was encrypted, for each decoder that it fits; and what was found before."""
    found = corpus() if CORPUS.exists() else []
    for vector in VECTORS + MORE_VECTORS:
        plain = data = bytes.fromhex(vector["hex"])
        over_tcp = vector["transport"] == "tcp"
        if (keyring := keyring_of(vector)) is not None:
            header = data[:FRAME_HEADER_BYTES] if over_tcp else b""
            plain = keyring.open(data[len(header) :], associated=header)
            found.append(bytes([GARBAGE]) + data)
        kinds = (STREAM, SEALED_STREAM) if over_tcp else (PACKET, SEALED_PACKET, MESSAGE)
        found += [bytes([kind]) + plain for kind in kinds]
        for message in [] if over_tcp else PacketCodec().unpack(plain):
            found.append(bytes([MESSAGE]) + encode(message))
            if isinstance(message, User):
                found.append(bytes([SERF]) + message.data)
    return found


def keep(folder: Path) -> None:
    """Write the inputs of a corpus as the data of a test: the first of each decoder and length."""
    chosen: dict[tuple[int, int], bytes] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        data = path.read_bytes()
        if data and len(data) <= KEPT_BYTES_MAX:
            chosen.setdefault((data[0] % len(TARGETS), len(data)), data)
    CORPUS.write_text(json.dumps([data.hex() for data in chosen.values()], indent=0) + "\n")
    print(f"{len(chosen)} inputs in {CORPUS}")


def main() -> None:
    """Fuzz, or keep what fuzzing found."""
    if sys.argv[1:2] == ["--keep"]:
        keep(Path(sys.argv[2]))
        return
    folder = Path(next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "corpus"))
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (folder / f"seed-{number:04}").write_bytes(seed)
    atheris.Setup(sys.argv, run_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
