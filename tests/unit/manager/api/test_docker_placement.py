"""What a service says of where its tasks may go: values that cannot work are refused by field, flag and value."""

from __future__ import annotations

from typing import Any

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.core.preference import Preference, parse_preference
from beeyard.manager.api.docker_service import read_service_spec, show_service_spec
from tests.support.docker_bodies import a_service_body as a_body


def with_template(**fields: Any) -> dict[str, Any]:
    body = a_body()
    return {**body, "TaskTemplate": {**body["TaskTemplate"], **fields}}


def spread(*descriptors: str) -> dict[str, Any]:
    return {"Placement": {"Preferences": [{"Spread": {"SpreadDescriptor": text}} for text in descriptors]}}


def generic(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"Resources": {"Reservations": {"GenericResources": list(entries)}}}


def some(kind: Any, value: Any) -> dict[str, Any]:
    return {"DiscreteResourceSpec": {"Kind": kind, "Value": value}}


G = r"TaskTemplate\.Resources\.Reservations\.GenericResources"
P = r"TaskTemplate\.Placement\.Preferences"

INVALID: list[tuple[dict[str, Any], str]] = [
    (generic(some("", 1)), rf"{G}\[0\]\.DiscreteResourceSpec\.Kind \(--generic-resource\): '': a kind begins"),
    (generic(some("g pu", 1)), "'g pu': a kind begins with a letter and has at most 63"),
    (generic(some("gpu", 0)), r"Value \(--generic-resource\): 0 is not between 1 and 4503599627370496"),
    (generic(some("gpu", None)), r"Value \(--generic-resource\): say how many gpu"),
    (generic(some("gpu", 2**53)), "9007199254740992 is not between 1 and 4503599627370496"),
    (generic(some("gpu", "1")), r"Value: it must be an integer, not '1'"),
    (generic(some("gpu", 1), some("gpu", 2)), r"\[1\].*Kind \(--generic-resource\): gpu is asked for twice"),
    (
        generic({"NamedResourceSpec": {"Kind": "gpu", "Value": "uuid-1"}}),
        r"NamedResourceSpec \(--generic-resource\): a service asks for a number of a kind",
    ),
    (generic({**some("gpu", 1), "x": 1}), "there is no such field"),
    (generic(*(some(f"k{n}", 1) for n in range(15))), r"\(--generic-resource\): 15 kinds are more than 14"),
    (
        spread("node.hostname"),
        rf"{P}\[0\]\.Spread\.SpreadDescriptor \(--placement-pref\): 'node.hostname': tasks are spread",
    ),
    (spread("node.labels."), "tasks are spread over node.labels.NAME, engine.labels.NAME or node.tags.KEY"),
    (spread(""), "tasks are spread over node.labels.NAME"),
    (spread("node.labels.zone:"), "'' is neither VALUE=WEIGHT, 1 to 1000, nor unlabelled=last"),
    (spread("node.labels.zone:a"), "'a' is neither VALUE=WEIGHT"),
    (spread("node.labels.zone:a=0"), "'a=0' is neither VALUE=WEIGHT"),
    (spread("node.labels.zone:a=1001"), "'a=1001' is neither VALUE=WEIGHT"),
    (spread("node.labels.zone:a=1,a=2"), "gives 'a' two weights"),
    (spread("node.labels.zone", "NODE.labels.zone:a=1"), r"\[1\].*node.labels.zone is given twice"),
    (spread(*(f"node.labels.l{n}" for n in range(9))), r"\(--placement-pref\): 9 levels are more than 8"),
    ({"Placement": {"Preferences": [{"Pack": {}, "Binpack": {"x": 1}}]}}, "tasks are spread over"),
    ({"LogDriver": {"Name": "a b"}}, r"LogDriver\.Name \(--log-driver\): 'a b' is not the name of a log driver"),
]


@pytest.mark.parametrize(("fields", "words"), INVALID, ids=[words for _, words in INVALID])
def test_what_cannot_work_is_refused_by_the_field_and_the_flag(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        read_service_spec(with_template(**fields))


@pytest.mark.parametrize(
    ("text", "preference", "shown"),
    [
        ("node.labels.zone", Preference(descriptor="node.labels.zone"), "node.labels.zone"),
        (" Engine.LABELS.Zone.a ", Preference(descriptor="engine.labels.Zone.a"), "engine.labels.Zone.a"),
        (
            "node.labels.zone: b=2 , a=1000,=3",
            Preference(descriptor="node.labels.zone", weights=(("b", 2), ("a", 1000), ("", 3))),
            "node.labels.zone:b=2,a=1000,=3",
        ),
        (
            "node.labels.zone:Unlabelled=Last,a=b=2",
            Preference(descriptor="node.labels.zone", weights=(("a=b", 2),), unlabelled_last=True),
            "node.labels.zone:a=b=2,unlabelled=last",
        ),
    ],
)
def test_a_preference_is_read_and_shown(text: str, preference: Preference, shown: str) -> None:
    assert parse_preference(text) == preference
    assert str(preference) == shown
    assert parse_preference(shown) == preference
    spec = read_service_spec(with_template(**spread(text)))
    (placed,) = show_service_spec(spec, defaults=True)["TaskTemplate"]["Placement"]["Preferences"]
    assert placed == {"Spread": {"SpreadDescriptor": shown}}


def test_what_a_task_asks_for_is_shown_as_docker_shows_it() -> None:
    fields = {**generic(some("gpu", 2), some("apple", 1)), "LogDriver": {"Name": "none", "Options": None}}
    template = show_service_spec(read_service_spec(with_template(**fields)), defaults=False)["TaskTemplate"]
    assert template["Resources"]["Reservations"] == {"GenericResources": [some("apple", 1), some("gpu", 2)]}
    assert template["LogDriver"] == {"Name": "none"}
