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
from beeyard.runtime.settings import leaves, resolve, toml_value

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


def documented(heading: str) -> dict[str, tuple[str, bool]]:
    """Settings of one section: its default, and whether a reload changes it."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(.*?)` \| (.+) \|$", section, re.MULTILINE)
    return {name: (default, text.startswith("*reload*")) for name, default, text in rows}


@pytest.mark.parametrize(("heading", "config"), [("Manager", ManagerConfig), ("Agent", AgentConfig)])
def test_each_setting_is_on_the_page_with_its_default(heading: str, config: type[msgspec.Struct]) -> None:
    assert documented(heading) == {s.name: (toml_value(s.default), s.reloadable) for s in leaves(config)}


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
