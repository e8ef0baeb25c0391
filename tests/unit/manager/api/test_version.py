"""API versions in paths."""

import pytest

from beeyard.manager.api.version import refusal_of, split_version


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/v1.50/nodes", ("1.50", "/nodes")),
        ("/v1/nodes", ("1", "/nodes")),
        ("/nodes", ("", "/nodes")),
        ("/version", ("", "/version")),
        ("/volumes/v1.50", ("", "/volumes/v1.50")),
        ("/v1.50", ("", "/v1.50")),
        ("/v1.x/nodes", ("", "/v1.x/nodes")),
    ],
)
def test_the_version_in_front_of_a_path_is_optional(path: str, parts: tuple[str, str]) -> None:
    assert split_version(path) == parts


@pytest.mark.parametrize("version", ["1.24", "1.41", "1.50"])
def test_versions_in_the_range_are_spoken(version: str) -> None:
    assert refusal_of(version) == ""


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.99", "client version 1.99 is too new. Maximum supported API version is 1.50"),
        ("2.0", "client version 2.0 is too new"),
        ("1.12", "client version 1.12 is too old. Minimum supported API version is 1.24, please upgrade"),
        ("1.9", "client version 1.9 is too old"),
        ("1", "client version 1 is too old"),
        ("1.50.1", "too new"),
        ("9" * 500, "too new"),
    ],
)
def test_others_are_refused_in_dockers_words(version: str, words: str) -> None:
    assert words in refusal_of(version)
