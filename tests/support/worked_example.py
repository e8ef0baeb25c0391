"""The worked examples of `docs/networks.md`, run as they are written.

A fenced block of language `sh` is run as it stands, by `sh -e`, after the blocks of the section "The examples", which every
example begins with. A block of language `text` right after it is what it must print: white space counts as one blank, empty
lines do not count, "…" stands for anything within a line and, alone on a line, for any lines. A block with an output is a
question, which is asked until the answer is right: what it asks about takes a moment, and a reader looks again too.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from deploy.yard_cluster import YardCluster
from tests.support.docker import eventually

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "networks.md"
COMMON = "The examples"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Block:
    """Commands, and what they print if that is told."""

    commands: str
    output: str | None = None


def blocks_of(document: str, heading: str) -> list[Block]:
    """The blocks of the section with this heading, without those of the sections below it."""
    sections = re.split(r"^##+ +(.*)$", document, flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    blocks: list[Block] = []
    for language, body in _FENCE.findall(texts[heading]):
        if language == "sh":
            blocks.append(Block(body))
        elif language == "text":
            assert blocks[-1].output is None, f"two outputs of one block: {body}"
            blocks[-1] = dataclasses.replace(blocks[-1], output=body)
    return blocks


def shows(printed: str, expected: str) -> bool:
    """Whether a block printed what the document says."""
    pattern = ""
    for line in expected.splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(" ".join(part.split())) for part in re.split(r" *… *", line.strip())) + r"\n"
    lines = (" ".join(line.split()) for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Reader:
    """Somebody who follows an example on a cluster that may be called otherwise than that of `./yard up`."""

    def __init__(self, cluster: YardCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        document = DOCUMENT.read_text()
        # Hosts are called yard1, yard2, ... after their cluster, which is the one thing that may differ.
        self._document = re.sub(r"\byard(?=\d)", cluster.name, document)
        yard = directory / "yard"
        outside = cluster.lan.outside
        yard.write_text(
            f"#!/bin/sh\nhost=$2\nshift 2\n[ $host != lan ] || host={outside}\n"
            'exec nsenter --net=/run/netns/$host "$@"\n'
        )
        yard.chmod(0o755)
        self._environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "DOCKER_HOST": f"unix://{cluster.api_socket}",
            "HOME": "/nonexistent",
        }

    def follow(self, heading: str, *, within_s: float) -> None:
        """Run an example; each question is asked for so long."""
        common = "".join(block.commands for block in blocks_of(self._document, COMMON))
        blocks = blocks_of(self._document, heading)
        assert blocks, heading
        for block in blocks:
            if block.output is None:
                done = self._run(common + block.commands)
                assert done.returncode == 0, f"{block.commands}\n{done.stdout}\n{done.stderr}"
            else:
                eventually(partial(self._asked, common, block), within_s=within_s, every_s=0.5)

    def _asked(self, common: str, block: Block) -> bool:
        done = self._run(common + block.commands)
        assert block.output is not None
        right = done.returncode == 0 and shows(done.stdout, block.output)
        assert right, f"{block.commands}\n{done.stdout}\n{done.stderr}\nand not\n{block.output}"
        return True

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-e"],
            input=script,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


__all__ = ["COMMON", "DOCUMENT", "Block", "Reader", "blocks_of", "shows"]
