"""Where a setting comes from, and what is said of one that cannot be."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest

from beeyard.runtime.settings import (
    SettingsError,
    changed,
    reloaded,
    resolve,
    shown_with_faults,
)
from beeyard.runtime.settings_declared import leaves, reloadable, secret

FILE = "/etc/beeyard/x.toml"


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    timeout_s: Annotated[float, reloadable()] = 5.0
    allow: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "n"
    token: Annotated[str, secret()] = ""
    size: Annotated[int, msgspec.Meta(ge=0)] = 3
    on: bool = False
    level: Annotated[Literal["debug", "info"], reloadable()] = "info"
    ports: tuple[int, ...] = ()
    hooks: Hooks = Hooks()


def load(text: str = "", environment: dict[str, str] | None = None, flags: dict[str, str] | None = None) -> Config:
    return resolve(Config, "B_", file=(FILE, text), environment=environment, flags=flags).config


def test_a_flag_counts_before_a_variable_before_the_file_before_the_default() -> None:
    text = 'name = "file"\nsize = 1\nlevel = "debug"'
    settings = resolve(
        Config, "B_", file=(FILE, text), environment={"B_SIZE": "2", "B_NAME": "variable"}, flags={"name": "flag"}
    )
    assert settings.config == Config(name="flag", size=2, level="debug")
    assert [settings.source(name) for name in ("name", "size", "level", "on")] == [
        "--name",
        "$B_SIZE",
        f"{FILE}: level",
        "default",
    ]


def test_tables_merge_setting_by_setting() -> None:
    assert load("[hooks]\ntimeout_s = 7", {"B_HOOKS_ALLOW": "/a, /b"}).hooks == Hooks(timeout_s=7.0, allow=("/a", "/b"))


def test_text_becomes_what_the_setting_is() -> None:
    config = load("", {"B_PORTS": "1,2", "B_ON": "true", "B_HOOKS_TIMEOUT_S": "2"}, {"size": "9", "name": "12"})
    assert config == Config(name="12", size=9, on=True, ports=(1, 2), hooks=Hooks(timeout_s=2.0))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nam = 1", "nam: this is not a setting; did you mean name?"),
        ("name = 1", "name: 1 is not right: it must be a text"),
        ("token = 12345", "token: (hidden) is not right: it must be a text"),
        ("size = -1", "size: -1 is not right: it must be a whole number (Expected `int` >= 0)"),
        ("size = true", "size: true is not right: it must be a whole number"),
        ('on = "yes"', 'on: "yes" is not right: it must be true or false'),
        ('level = "loud"', 'level: "loud" is not right: it must be one of debug, info'),
        ('ports = ["a"]', 'ports: ["a"] is not right: it must be a list of whole number'),
        ("hooks = 3", "hooks: 3 is not right: it must be a table, [hooks]"),
        ("[hooks]\ntimeout = 3", "hooks.timeout: this is not a setting; did you mean hooks.timeout_s?"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(text)
    assert str(raised.value) == f"{FILE}: {sentence}"


def test_a_file_that_is_no_toml_says_where() -> None:
    with pytest.raises(SettingsError, match=r"x\.toml: this is not TOML: .*line 2"):
        load("size = 1\nname\nsize = 2")


def test_a_variable_that_sets_nothing_is_an_error() -> None:
    """A typing mistake must not leave a default in force."""
    with pytest.raises(SettingsError) as raised:
        load("", {"B_NAM": "x", "PATH": "/bin"})
    assert str(raised.value) == "$B_NAM: this is not a setting; did you mean B_NAME?"


def test_secrets_are_hidden_and_sources_shown() -> None:
    shown = resolve(Config, "B_", file=(FILE, 'token = "abc"'), flags={"hooks.timeout_s": "1.5"}).shown()
    assert "abc" not in shown
    assert f'token = "(hidden)"  # {FILE}: token\n' in shown
    assert shown.endswith("[hooks]\ntimeout_s = 1.5  # --hooks-timeout-s\nallow = []  # default\n")


def test_a_reload_takes_what_may_change_and_names_the_rest() -> None:
    old = Config(name="a")
    new = Config(name="b", level="debug", hooks=Hooks(timeout_s=1.0, allow=("/x",)))
    assert changed(old, new) == (["level", "hooks.timeout_s"], ["name", "hooks.allow"])
    assert reloaded(old, new) == Config(name="a", level="debug", hooks=Hooks(timeout_s=1.0))


def test_each_setting_has_one_name_in_each_place() -> None:
    setting = next(s for s in leaves(Config) if s.name == "hooks.timeout_s")
    assert (setting.flag, setting.variable("B_")) == ("--hooks-timeout-s", "B_HOOKS_TIMEOUT_S")


class Strict(msgspec.Struct, frozen=True, kw_only=True):
    token: Annotated[str, secret()]
    size: int = 3
    hooks: Hooks = Hooks()


def test_what_is_right_is_shown_beside_all_that_is_wrong() -> None:
    text = 'size = "big"\nhoks = 1\n[hooks]\ntimeout_s = 7'
    shown, faults = shown_with_faults(Strict, "B_", file=(FILE, text), environment={"B_X": "1"}, flags={})
    assert shown == (
        "# token must be given\nsize = 3  # default\n\n"
        f"[hooks]\ntimeout_s = 7  # {FILE}: hooks.timeout_s\nallow = []  # default\n"
    )
    assert [str(fault) for fault in faults] == [
        f'{FILE}: size: "big" is not right: it must be a whole number',
        f"{FILE}: hoks: this is not a setting; did you mean hooks?",
        "$B_X: this is not a setting",
        "token: it must be given, a text",
    ]
    shown, faults = shown_with_faults(Strict, "B_", file=(FILE, "size ="), flags={"token": "s"})
    assert 'token = "(hidden)"  # --token\n' in shown
    assert [fault.source for fault in faults] == [FILE]
