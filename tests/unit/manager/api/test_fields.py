"""Reading Docker's JSON strictly."""

from typing import Any

import pytest

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.manager.api.fields import Fields, is_empty


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}, {"a": None, "b": [{}, {"c": ""}]}])
def test_a_value_that_says_nothing_is_empty(value: Any) -> None:
    assert is_empty(value)


@pytest.mark.parametrize("value", [True, 1, -1, "0", [0, 1], {"a": {"b": False, "c": " "}}])
def test_a_value_that_says_something_is_not_empty(value: Any) -> None:
    assert not is_empty(value)


def test_null_stands_for_empty_and_keys_match_in_any_case() -> None:
    """As Go decodes."""
    fields = Fields({"NAME": "web", "labels": None, "Args": None, "nested": None})
    assert fields.text("Name") == "web"
    assert fields.labels("Labels") == {}
    assert fields.texts("Args") == ()
    assert fields.nested("Nested").text("x", "default") == "default"
    fields.finish()


@pytest.mark.parametrize(
    ("getter", "value"),
    [
        ("text", 1),
        ("text", "a\0b"),
        ("flag", "true"),
        ("flag", 1),
        ("integer", 2000000000.0),
        ("integer", True),
        ("integer", -1),
        ("integer", 2**63),
        ("integer", "1"),
        ("duration_s", 1.5),
        ("ratio", 1.1),
        ("ratio", "0.5"),
        ("texts", "a"),
        ("texts", ["a", 1]),
        ("texts", {"a": 1}),
        ("labels", ["a=b"]),
        ("labels", {"a": 1}),
        ("nested", []),
        ("nested_list", {}),
        ("nested_list", ["a"]),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(getter: str, value: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"Spec\.Field"):
        getattr(Fields({"Field": value}, "Spec"), getter)("Field")


def test_a_duration_keeps_its_nanoseconds_up_to_years() -> None:
    assert Fields({"D": 5_000_000_001}).duration_s("D") == 5.000000001
    assert Fields({"D": 0}).duration_s("D", 10.0) == 0.0
    assert Fields({}).duration_s("D", 10.0) == 10.0


def test_what_was_not_read_is_refused() -> None:
    """By the flag's name where there is one, else by its own path."""
    with pytest.raises(Unsupported, match="--init is not supported by beeyard"):
        Fields({"Init": True}).finish({"Init": "--init"})
    with pytest.raises(InvalidSpec, match=r"invalid Spec\.Nonsense: there is no such field"):
        Fields({"Nonsense": "x"}, "Spec").finish()
    Fields({"Init": False, "Other": {"a": []}}).finish({"Init": "--init"})
