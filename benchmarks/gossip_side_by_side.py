"""Real Serf agents and our members, a process each, one kind after the other in one namespace: who is faster, who is wrong?

    sudo .venv/bin/python -m benchmarks.gossip_side_by_side --json side.json [--only joins kills ...] [--kinds real ours]

Needs the packages serf, nftables, iproute2 and util-linux. It runs itself again in a network namespace of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import trio

from benchmarks.gossip_yard import Yard, busy, packet_loss, partition

Figures = dict[str, float | int | str]
Question = Callable[[str], Awaitable[Figures]]

JOIN_TRIALS = 3
KILLS = 3
LEAVES = 8
EVENTS = 7
IDLE_S = 60.0


def spread(times: list[float]) -> Figures:
    """Median and greatest of some times."""
    times = sorted(times)
    return {"median_s": round(times[len(times) // 2], 2), "max_s": round(times[-1], 2)} if times else {"median_s": -1}


async def joins(kind: str) -> Figures:
    """60 processes wait; 59 join the first at once; how long until everybody knows everybody."""
    took = []
    for _ in range(JOIN_TRIALS):
        async with Yard(kind, 60) as yard:
            took.append(await yard.join_all())
    return spread(took)


async def kills(kind: str) -> Figures:
    """kill -9: how long until all others have it as failed, with 10, 30 and 60 members."""
    found: Figures = {}
    for n_members in (10, 30, 60):
        async with Yard(kind, n_members) as yard:
            await yard.join_all()
            await trio.sleep(5)
            took, apart = [], []
            for victim in list(yard.members)[1 : 1 + KILLS]:
                since = trio.current_time()
                yard.members.pop(victim).kill()
                seen = await yard.seen_by_all(since, "failed", victim, timeout_s=60)
                took.append(max(seen) - since)
                apart.append(max(seen) - min(seen))
                await trio.sleep(2)
            found |= {f"n{n_members}_{key}": value for key, value in spread(took).items()}
            found[f"n{n_members}_spread_max_s"] = round(max(apart), 2)
    return found


async def events(kind: str) -> Figures:
    """A user event at 60 members: how long until all have it."""
    async with Yard(kind, 60) as yard:
        await yard.join_all()
        await trio.sleep(10)
        took = []
        for number in range(EVENTS):
            since = trio.current_time()
            await yard.members[f"n{number * 8}"].event(f"e{number}")
            took.append(max(await yard.seen_by_all(since, "event", f"e{number}", timeout_s=30, all_too=True)) - since)
            await trio.sleep(1)
        return spread(took)


async def leaves(kind: str) -> Figures:
    """Graceful leaves at 60 members: how many observers believed in a failure first, and how long it took."""
    async with Yard(kind, 60) as yard:
        await yard.join_all()
        await trio.sleep(5)
        took: list[float] = []
        wrong = total = 0
        for victim in list(yard.members)[5 : 5 + LEAVES]:
            since = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(yard.members.pop(victim).leave)
                took.append(max(await yard.seen_by_all(since, "leave", victim, timeout_s=30)) - since)
            wrong += yard.count(since, "failed", victim)
            total += len(yard.members)
        return {"failed_first": wrong, "observations": total, **spread(took)}


async def freeze(kind: str) -> Figures:
    """20 members, one after the other stands still for 6 s: how many believe that somebody failed."""
    async with Yard(kind, 20) as yard:
        await yard.join_all()
        await trio.sleep(5)
        since = trio.current_time()
        for victim in list(yard.members)[3:8]:
            yard.members[victim].freeze()
            await trio.sleep(6)
            yard.members[victim].thaw()
            await trio.sleep(8)
        return {"false_failures": yard.count(since, "failed")}


async def _in_trouble(kind: str, n_members: int, trouble: AbstractContextManager[None]) -> Figures:
    """Members in trouble for 45 s: how many believe that somebody failed."""
    async with Yard(kind, n_members) as yard:
        await yard.join_all()
        await trio.sleep(5)
        since = trio.current_time()
        with trouble:
            await trio.sleep(45)
        await trio.sleep(5)
        return {"false_failures": yard.count(since, "failed")}


async def loss(kind: str) -> Figures:
    """20 members, 40 % of all UDP lost for 45 s."""
    return await _in_trouble(kind, 20, packet_loss(40))


async def cores(kind: str) -> Figures:
    """30 members while as many processes as there are cores, twice, want the whole of them for 45 s."""
    return await _in_trouble(kind, 30, busy(2 * (os.cpu_count() or 1)))


async def idle(kind: str) -> Figures:
    """60 members at rest: bytes a second and member on the wire, processor time, memory."""
    async with Yard(kind, 60) as yard:
        await yard.join_all()
        await trio.sleep(20)
        before = yard.traffic()
        cpu = yard.cpu_s()
        await trio.sleep(IDLE_S)
        n_bytes, n_packets = (after - then for after, then in zip(yard.traffic(), before, strict=True))
        share = IDLE_S * len(yard.members)
        return {
            "bytes_s": round(n_bytes / share, 1),
            "packets_s": round(n_packets / share, 2),
            "cpu_percent_of_a_core": round(100 * (yard.cpu_s() - cpu) / share, 2),
            "rss_mib": round(yard.rss_mib(), 1),
        }


async def heal(kind: str) -> Figures:
    """20 members in two halves for 60 s: how long after the end of it until all have all as alive again."""
    async with Yard(kind, 20) as yard:
        await yard.join_all()
        await trio.sleep(5)
        names = list(yard.members)
        since = trio.current_time()
        with partition(yard.addresses(names[:10]), yard.addresses(names[10:])):
            await trio.sleep(60)
            failed = yard.count(since, "failed")
        since = trio.current_time()
        took = await yard.until_all_alive(timeout_s=240)
        return {"failed_meanwhile": failed, "healed_s": round(took - since, 1)}


QUESTIONS: dict[str, Question] = {
    "joins": joins,
    "kills": kills,
    "events": events,
    "leaves": leaves,
    "freeze": freeze,
    "loss": loss,
    "cores": cores,
    "idle": idle,
    "heal": heal,
}


async def run(options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    """Ask each question of each kind, print what was found as it is found."""
    found: dict[str, dict[str, Figures]] = {}
    for name in options.only:
        for kind in options.kinds:
            figures = await QUESTIONS[name](kind)
            found.setdefault(name, {})[kind] = figures
            words = ", ".join(f"{key} {value}" for key, value in figures.items())
            print(f"{name:7} {kind:5} {words}", flush=True)
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(QUESTIONS), default=list(QUESTIONS))
    parser.add_argument("--kinds", nargs="+", choices=["real", "ours"], default=["real", "ours"])
    parser.add_argument("--json")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        command = [
            "unshare",
            "--net",
            sys.executable,
            "-m",
            "benchmarks.gossip_side_by_side",
            *sys.argv[1:],
            "--inside",
        ]
        sys.exit(subprocess.run(command, check=False).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    found = trio.run(run, options)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
