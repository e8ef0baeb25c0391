"""What a user means by an id or a name."""

import pytest

from beeyard.core.errors import Ambiguous, NotFound
from beeyard.manager.api.lookup import find, node_name
from tests.support.builders import a_node

NODES = {
    node.id: node
    for node in (
        a_node("abc1", hostname="one"),
        a_node("abc2", hostname="two"),
        a_node("bcd3", hostname="twin"),
        a_node("bcd4", hostname="twin"),
        a_node("two", hostname="misleading"),
        a_node("xyz5", hostname="abc"),
    )
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("abc1", "abc1"), ("one", "abc1"), ("two", "two"), ("x", "xyz5"), ("abc", "xyz5"), ("misleading", "two")],
)
def test_id_beats_name_beats_the_start_of_an_id(wanted: str, found: str) -> None:
    assert find("node", NODES, node_name, wanted).id == found


@pytest.mark.parametrize(("wanted", "n_matches"), [("twin", 2), ("ab", 2), ("b", 2)])
def test_several_matches_are_refused_with_their_number(wanted: str, n_matches: int) -> None:
    with pytest.raises(Ambiguous, match=f"node {wanted} is ambiguous \\({n_matches} matches found\\)"):
        find("node", NODES, node_name, wanted)


@pytest.mark.parametrize("wanted", ["nosuch", "", "ONE", "on"])
def test_nothing_is_found_by_part_of_a_name(wanted: str) -> None:
    with pytest.raises(NotFound, match=f"node {wanted} not found"):
        find("node", NODES, node_name, wanted)
