"""Write docs/cli.md from the parser of the command ``ecrt``: ``python docs/make_cli_reference.py``."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import typer

from ecrt.cli import app
from ecrt.runs import FitConfig

FILE = Path(__file__).with_name("cli.md")
PROGRAM = "ecrt"
WORDS = {"int": "whole number", "integer": "whole number", "float": "number", "str": "text", "path": "path"}

HEAD = """\
# The command `ecrt`

<!-- Written by `python docs/make_cli_reference.py`. Do not edit: change the help texts in src/ecrt/cli instead. -->

Every command with its arguments and options, taken from the program itself. `ecrt COMMAND --help` says the same in a
terminal. The [quickstart](quickstart.md) shows the commands at work, and the [user guide](user-guide.md) explains the
settings that `--config` and `--set` take.
"""

SETTINGS = """\
## Settings of `ecrt fit`

Keys of the file that `--config` names, and of `--set KEY=VALUE`; a key inside another is written with a dot, such as
`model.epochs`. Options of the command that have the same name win over both. What is not set anywhere has its default.

| Key | Default | What it is |
| --- | --- | --- |
"""

TAIL = """\
## Exit status

| Status | Meaning |
| ---: | --- |
| 0 | All went well. |
| 1 | An error, told in one line; `ecrt --debug COMMAND ...` shows where it came from. |
| 2 | The command line itself could not be understood. |
| 130 | Stopped with Ctrl-C. After `ecrt fit`, a model may have been saved beside the old one: the last lines say so. |
| 143 | Stopped by the system (SIGTERM): as with Ctrl-C. |
"""


def reference() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    parts = [HEAD, _section(root, PROGRAM, commands=root.commands)]
    parts += [_section(command, f"{PROGRAM} {name}") for name, command in root.commands.items() if not command.hidden]
    return "\n".join([*parts, _settings(), TAIL])


def _settings() -> str:
    """Keys of the settings, with what the docstring of ``FitConfig`` says of them."""
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.getdoc(FitConfig).partition("----------\n")[2].splitlines():
        if line.startswith(" "):
            meanings |= {name: f"{meanings[name]} {line.strip()}" for name in names}
        elif " : " in line:
            head, _, meaning = line.partition(" : ")
            names = head.split(", ")
            meanings |= dict.fromkeys(names, meaning)
    lines = []
    for entry in fields(FitConfig):
        default = entry.default if entry.default is not MISSING else entry.default_factory()
        lines.append(f"| `{entry.name}` | {_in_yaml(default)} | {_cell(meanings[entry.name].replace('``', '`'))} |")
    return SETTINGS + "\n".join(lines) + "\n"


def _in_yaml(default: Any) -> str:
    if default is None:
        return "not set"
    if default in ((), {}):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _section(command: Any, name: str, commands: dict[str, Any] | None = None) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    usage = [name, *(_argument(p) for p in arguments), "[OPTIONS]"]
    lines = [f"## `{name}`", "", " ".join(command.help.split()), ""]
    if commands is None:
        lines += [f"    {' '.join(usage)}", ""]
    else:
        lines += [f"    {name} [OPTIONS] COMMAND ...", "", "| Command | What it does |", "| --- | --- |"]
        # Headings of this page: GitHub makes "#ecrt-fit" of "`ecrt fit`".
        lines += [f"| [`{key}`](#{PROGRAM}-{key}) | {_cell(one.help)} |" for key, one in commands.items()]
        lines += [""]
    if arguments:
        lines += ["| Argument | Value | What it is |", "| --- | --- | --- |"]
        lines += [f"| `{_argument(p)}` | {_value(p)} | {_cell(p.help)} |" for p in arguments]
        lines += [""]
    lines += ["| Option | Value | Default | What it does |", "| --- | --- | --- | --- |"]
    lines += [f"| {_names(p)} | {_value(p)} | {_default(p)} | {_cell(p.help)} |" for p in options]
    lines += ["| `--help` | none | off | Show the help and stop. |", ""]
    return "\n".join(lines)


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _argument(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    return word if argument.required else f"[{word}]"


def _value(parameter: Any) -> str:
    """What kind of value is expected, in words."""
    if getattr(parameter, "is_flag", False):
        return "none"
    if parameter.param_type_name == "option" and parameter.metavar:
        text = f"`{parameter.metavar}`"
    else:
        text = WORDS[_kind(parameter)]
    # Typer keeps the bounds on the parameter since it has a parser of its own, and on the type before that.
    least = getattr(parameter, "min", None) if not hasattr(parameter, "type") else getattr(parameter.type, "min", None)
    text += "" if least is None else f", {least} or more"
    return text + (", may be repeated" if getattr(parameter, "multiple", False) else "")


def _kind(parameter: Any) -> str:
    if hasattr(parameter, "type"):
        return str(parameter.type.name).removesuffix(" range").replace("text", "str")
    annotation = parameter.type_descriptor.annotation
    kinds = getattr(annotation, "__args__", None) or (annotation,)
    return str(kinds[0].__name__).lower()


def _default(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return "on" if option.default else "off"
    return "not set" if option.default in (None, (), []) else f"`{option.default}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
    print(f"Wrote {FILE.name}.")
