"""docs/configuration.md says what the settings are."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from beeyard.agent.command import JOIN
from beeyard.agent.config import AgentConfig
from beeyard.manager.command import MANAGE
from beeyard.manager.config import ManagerConfig
from beeyard.runtime.settings import resolve
from beeyard.runtime.settings_declared import leaves, toml_value
from beeyard.runtime.settings_help import help_of, value_form

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


def documented(heading: str) -> dict[str, tuple[str, bool, str]]:
    """Settings of one section: its default, whether a reload changes it, and what is said of it."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(.*?)` \| (.+) \|$", section, re.MULTILINE)
    return {
        name: (default, text.startswith("*reload*"), text.removeprefix("*reload*; ")) for name, default, text in rows
    }


@pytest.mark.parametrize(("heading", "config"), [("Manager", ManagerConfig), ("Agent", AgentConfig)])
def test_each_setting_is_on_the_page_with_its_default(heading: str, config: type[msgspec.Struct]) -> None:
    shown = {name: (default, reload) for name, (default, reload, _) in documented(heading).items()}
    assert shown == {s.name: (toml_value(s.default), s.reloadable) for s in leaves(config)}


@pytest.mark.parametrize(("heading", "config"), [("Manager", ManagerConfig), ("Agent", AgentConfig)])
def test_each_setting_says_what_it_is_and_the_page_begins_with_that(heading: str, config: type[msgspec.Struct]) -> None:
    """One sentence for the help of the flag and the page, in the declaration."""
    page = documented(heading)
    for setting in leaves(config):
        assert 10 <= len(setting.about) <= 120, setting.name
        assert not setting.about.endswith("."), setting.name
        assert page[setting.name][2].startswith(setting.about), f"{setting.name} begins: {setting.about}"


@pytest.mark.parametrize("command", [MANAGE, JOIN])
def test_help_has_each_setting_under_a_heading_with_unit_and_default(command, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # no sentence is broken at a hyphen
    shown = " ".join(command.parser("[X ...]").format_help().split())
    assert shown.startswith(f"usage: {command.name} [OPTIONS] [X ...] ")
    assert next(leaves(command.config)).group
    for setting in leaves(command.config):
        assert f"{setting.flag} {value_form(setting)} {' '.join(help_of(setting).split())}" in shown
        assert not setting.group or f" {setting.group}: " in shown


@pytest.mark.parametrize(
    ("config", "name", "form", "end"),
    [
        (AgentConfig, "drain_timeout_s", "SECONDS", "(default 300 s)"),
        (AgentConfig, "log_mib_kept", "MIB", "(default 1024 MiB)"),
        (AgentConfig, "drain_on_stop", "true|false", "(default false)"),
        (AgentConfig, "managers", "X,X,...", "to find them"),
        (AgentConfig, "hooks.directory", "DIRECTORY", "(default /etc/beeyard/hooks.d)"),
        (ManagerConfig, "strategy", "spread|pack|shape|fgd", "label beeyard.strategy (default spread)"),
        (ManagerConfig, "host_port_first", "PORT", "(default 30000)"),
        (ManagerConfig, "api_listen", "HOST:PORT", "empty: not served"),
    ],
)
def test_help_of_one_setting(config: type[msgspec.Struct], name: str, form: str, end: str) -> None:
    setting = next(s for s in leaves(config) if s.name == name)
    assert value_form(setting) == form
    assert help_of(setting).endswith(end)


def test_the_example_can_be_used() -> None:
    text = PAGE.read_text().split("```toml\n")[1].split("```")[0]
    settings = resolve(AgentConfig, "BEEYARD_AGENT_", file=("agent.toml", text))
    assert settings.config.managers == ("10.0.0.7:2377",)


@pytest.mark.parametrize("command", [MANAGE, JOIN])
def test_no_two_settings_share_a_flag_or_a_variable(command) -> None:
    settings = list(leaves(command.config))
    assert len({s.flag for s in settings}) == len({s.variable(command.prefix) for s in settings}) == len(settings)
    shown = command.parser().format_help()
    assert all(s.flag in shown for s in settings)
