"""What README and pages show exists: links, commands with their options, make targets, modules."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer

from espalier.cli import main as espalier_cli
from espalier.cli.compress_command import compress
from espalier.compress import CompressOptions
from espalier_sim import cli as sim_cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CLIS = {"sim": sim_cli, "espalier": espalier_cli}


def commands(cli):
    """All commands of a command line by name, those of other packages included."""
    found = dict(typer.main.get_command(cli.app).commands)
    for point in entry_points(group=cli.COMMAND_GROUP):
        further = typer.Typer()
        further.command(point.name)(point.load())
        found[point.name] = typer.main.get_command(further)
    return found


def shown(page):
    """Indented lines that call a command: (program, arguments)."""
    for line in page.read_text(encoding="utf-8").splitlines():
        words = shlex.split(line, comments=True) if re.match(r"    \S", line) else []
        if words and (program := Path(words[0]).name) in (*CLIS, "make"):
            yield program, words[1:]


def test_the_readme_shows_commands():
    assert {program for program, _ in shown(PAGES[0])} == {"make", *CLIS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for program, words in shown(page):
        if program == "make":
            assert {word for word in words if "=" not in word} <= targets
            continue
        name, *arguments = words
        # Parses and converts, and fails as the command line would; runs nothing.
        commands(CLIS[program])[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    missing = {link for link in local if not (page.parent / link).exists()}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"`(espalier(?:_hw|_sim)?(?:\.[a-z_]+)+)", text)):
        assert importlib.util.find_spec(name), f"{page.name} mentions {name}"


def test_options_of_the_command_line_have_the_defaults_of_the_library():
    shown, library = inspect.signature(compress).parameters, inspect.signature(CompressOptions).parameters
    shared = set(shown) & set(library)
    assert {"bits", "mac_fraction", "max_operators", "first_layer_density", "seed"} <= shared
    assert {name: shown[name].default for name in shared} == {name: library[name].default for name in shared}
