"""The simulation can fail: it finds defects made on purpose. `./yard sim 1 --seeds 20 --mutant NAME` tries others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.scenarios import SCENARIOS
from tests.sim.simulation import SimulationFailed

# Most are found by the first or second; more seeds only cost time when a change of the scenario makes one blind.
SEEDS = range(1, 17)


@pytest.mark.parametrize(
    ("name", "first", "sentence"),
    [
        ("addresses-do-not-rest", 1, "was granted to task|went to task"),
        ("a-new-manager-does-not-restore-grants", 1, "was also granted|on the LAN twice|was granted to task|and runs"),
        ("nobody-looks-at-room", 6, "and runs"),
        ("leases-are-given-up-too-early", 11, "stored as ORPHANED while|on the LAN twice"),
        ("published-ports-stay", 1, "has ended, and its ports lead to"),
        ("a-slot-has-another-mac-address-each-time", 1, "had MAC .* and has"),
        ("hooks-add-nothing", 1, r"got \(\)"),
        ("a-plugin-gets-nothing-back", 3, "the plugin's books say|the plugin still keeps"),
        ("everything-waits-for-a-plugin", 23, "no new service runs within"),
    ],
)
def test_a_defect_on_purpose_is_found(name: str, first: int, sentence: str) -> None:
    """By some seed, and for what it is."""
    found = next(failures(name, [first, *SEEDS]), None)
    assert found is not None, f"no seed finds it: {name}"
    assert re.search(sentence, str(found)), found


@pytest.mark.parametrize(
    ("name", "story", "sentence"),
    [
        ("a-new-manager-forgets-what-was-put-aside", "strangers-are-remembered", "found to be a stranger's, went to"),
        ("answers-of-the-lan-are-ignored", "strangers-are-remembered", "although .* had answered that it has it"),
        ("pinned-addresses-are-not-kept", "pins-are-kept", "is pinned to a slot of service .* and went to"),
        ("the-record-of-an-end-goes-at-once", "ends-are-remembered", "s after .* had given it up"),
        ("a-restarted-manager-keeps-what-nobody-uses", "leases-of-nobody-go-back", "the plugin's books say"),
    ],
)
def test_a_story_finds_what_seeds_seldom_do(name: str, story: str, sentence: str) -> None:
    """A directed one, which holds without the defect."""
    SCENARIOS[story].run(1)
    with MUTANTS[name](), pytest.raises(SimulationFailed, match=sentence):
        SCENARIOS[story].run(1)


def failures(name: str, seeds: Iterable[int]) -> Iterator[SimulationFailed]:
    """What seeds find, one after the other."""
    for seed in seeds:
        try:
            with MUTANTS[name]():
                SCENARIOS["cluster"].run(seed)
        except SimulationFailed as failure:
            yield failure
