"""The `filters` parameter."""

import pytest

from beeyard.manager.api.call import BadRequest
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters

NAMES: FilterSet[str] = FilterSet(
    {
        "name": lambda text, value: text.startswith(value),
        "label": lambda text, value: value in text,
        "length": lambda text, value: len(text) == int(value),
    }
)


@pytest.mark.parametrize(
    "text", ['{"name":{"web":true,"db":true}}', '{"name":["web","db"]}', '{"name":["web","db"],"label":{}}']
)
def test_both_forms_mean_the_same(text: str) -> None:
    assert parse_filters(text) == {"name": ("web", "db")}


def test_a_value_set_to_false_is_not_asked_for() -> None:
    assert parse_filters('{"name":{"web":true,"db":false}}') == {"name": ("web",)}
    assert parse_filters("") == {}


@pytest.mark.parametrize("text", ["x", "[]", '"name"', '{"name":"web"}', '{"name":[1]}', '{"name":{"web":1}}', "null"])
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="invalid filter"):
        parse_filters(text)


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="invalid filter 'nosuch'"):
        NAMES.apply([], {"nosuch": ("x",)})


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ({}, ["web", "db", "w"]),
        ({"name": ("web", "d")}, ["web", "db"]),
        ({"name": ("w",), "length": ("1",)}, ["w"]),
        ({"label": ("w", "b")}, ["web"]),
    ],
)
def test_values_are_alternatives_and_keys_and_labels_add_up(
    filters: dict[str, tuple[str, ...]], left: list[str]
) -> None:
    assert NAMES.apply(["web", "db", "w"], filters) == left


@pytest.mark.parametrize(("wanted", "found"), [("a", True), ("a=1", True), ("a=2", False), ("b", False), ("a=", False)])
def test_a_label_is_asked_for_with_or_without_its_value(wanted: str, found: bool) -> None:
    assert has_label({"a": "1"}, wanted) is found
