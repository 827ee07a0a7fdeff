"""Config's fields as command line options, with the help text that stands beside each field."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import inspect
import re
import shutil
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, get_args, get_type_hints

from concurl.config import Config
from concurl.errors import UserError
from concurl.progress import speak

# What other tools call these.
SYNONYMS = {
    "--lr": "--learning-rate",
    "--size": "--image-size",
    "--gpu": "--device",
    "--force": "--overwrite",
    "--members": "--n-transforms",
    "--max": "--up-to",
    "--out-dir": "--output",  # which looks like --data-dir
    "--outdir": "--output",
    "--output-dir": "--output",
    "--continue": "--resume",
    "--replace": "--overwrite",
    "--num-workers": "--workers",
    "--jobs": "--workers",
    "--iterations": "--epochs",
    "--cpu": "--device",
    "-n": "-k",
}

# What means the same for several verbs. --source has another dest: "source" is what the images of a verb that opens new ones are.
SHARED: dict[str, dict[str, Any]] = {
    "run": {"type": Path, "help": "folder of a run"},
    "--labels": {
        "type": Path,
        "metavar": "FILE",
        "help": "csv with the columns path and label; or the word folders, if there is a folder for each kind of image",
    },
    "--source": {"dest": "moved", "metavar": "PLACE", "help": "where the run's images are now, if they moved"},
    "--device": {"default": "auto", "metavar": "TEXT", "help": "auto, cpu, cuda or cuda:N (default: auto)"},
    "--quiet": {"action": "store_true", "help": "say nothing but warnings and the result"},
}


class Parser(argparse.ArgumentParser):
    """argparse that answers wrong use in one line, with the nearest right word, and exits with 2."""

    def __init__(self, *, example: str = "", **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_help, **settings)
        self.example = f"{self.prog} {example}".rstrip()  # the usual call

    def add_shared(self, *names: str) -> None:
        for name in names:
            self.add_argument(name, **SHARED[name])

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """What was asked for. From here on people are told what goes on, unless --quiet is among it."""
        for before, word in zip([self.prog, *argv], argv, strict=False):
            if not word or re.fullmatch("--[^=]+=", word):  # taken as a path it would be the current folder
                self.error(f"nothing follows {word or before}; is a shell variable not set?")
        known, rest = self.parse_known_args(argv)
        if str(getattr(known, "output", "")) == "-":  # elsewhere the terminal; here it would be a file of that name
            self.error("-o -: the result does not go to the terminal; name a file or a folder")
        if rest:
            word = rest[0].split("=")[0]
            if not word.startswith("-") and any(action.dest == "source" for action in self._actions):
                many = "quote a pattern, or list the paths in a .txt"
                many = f"write -o {word} if it is the output" if word.endswith(".csv") else many
                self.error(f"{word} is a second source, and one is taken: {many}")
            if word in self._option_string_actions:  # behind a lone --, argparse takes no options
                self.error(f"{word} comes behind --, where only paths are taken; put -- behind the options")
            near = self._nearest(word)
            hint = f"; did you mean {near}?" if near else f"; {self.prog} --help lists what there is"
            self.error(f"unknown {'option' if word.startswith('-') else 'argument'} {word}{hint}")
        speak(getattr(known, "quiet", False))
        return known

    def _nearest(self, word: str) -> str:
        """The option that was probably meant, or "". The dashes, which all have, say nothing about that."""
        if SYNONYMS.get(word) in self._option_string_actions:
            return SYNONYMS[word]
        if word == "--version":
            return "concurl --version"
        options = {option.strip("-"): option for option in self._option_string_actions}
        near = difflib.get_close_matches(word.strip("-").lower(), options, n=1, cutoff=0.65)
        return options[near[0]] if near else ""

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^the following arguments are required: (.*)", rf"\1 missing, as in: {self.example}", message)
        message = re.sub(r"^argument (\S+): expected one argument", r"\1: a value is missing", message)
        message = re.sub(r"^argument ([^\s/]+)\S*: ignored explicit argument", r"\1 takes no value; leave out", message)
        message = re.sub(r"^argument (\S+): invalid (.+) value: (.*)", r"\1 \3: a \2 is needed", message)
        self.exit(2, f"concurl: {message.replace('a int is', 'a whole number is')}\n")

    def missing(self, what: str) -> UserError:
        """Something that argparse takes for optional is not there."""
        return UserError(f"{what}, as in: {self.example}")


def _help(prog: str) -> argparse.HelpFormatter:
    """As wide as the terminal, but no wider than is easy to read."""
    width = min(110, shutil.get_terminal_size().columns - 2)
    return argparse.HelpFormatter(prog, max_help_position=30, width=width)


def add_config_options(parser: argparse.ArgumentParser, defaults: Config, *only: str) -> None:
    """One option per field, or for those named alone; the group headings are the comments that divide Config."""
    hints = get_type_hints(Config)
    for heading, fields in config_help().items():
        group = parser.add_argument_group(heading)
        for name, text in fields.items():
            if only and name not in only:
                continue
            kind, default = hints[name], getattr(defaults, name)
            settings: dict[str, Any] = {"default": argparse.SUPPRESS, "dest": name}
            settings["help"] = _with_default(text, default).replace("%", "%%")
            flags = [f"--{name.replace('_', '-')}"] + (["-k"] if name == "n_clusters" else [])
            if kind is bool:
                group.add_argument(*flags, action=argparse.BooleanOptionalAction, **settings)
            else:
                group.add_argument(*flags, **settings, **_value(kind))


def given_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """The Config fields that were named on the command line."""
    names = {field.name for field in dataclasses.fields(Config)}
    return {name: value for name, value in vars(arguments).items() if name in names}


def config_help() -> dict[str, dict[str, str]]:
    """heading -> field -> help, read from the source of Config: written once, beside the field."""
    source = inspect.getsource(Config)
    headings = {
        number: match.group(1)
        for number, line in enumerate(source.splitlines(), start=1)
        if (match := re.match(r"\s+# -+ (.*?) -+$", line))
    }
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, dict[str, str]] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            heading = next((headings[n] for n in sorted(headings, reverse=True) if n < field.lineno), "the clusters")
            found.setdefault(heading, {})[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _with_default(text: str, default: Any) -> str:
    """The help text and the default; for None, what the text says that None means."""
    if default is None and (meant := re.fullmatch(r"(.*) None: (.*)\.", text)):
        return f"{meant[1]} (default: {meant[2]})"
    return f"{text} (default: {default})"


def _value(kind: Any) -> dict[str, Any]:
    """How argparse shows and reads it; "none" is None where that is allowed. Ranges and choices are Config's own business."""
    optional = NoneType in get_args(kind)
    (part,) = (part for part in get_args(kind) if part is not NoneType) if optional else (kind,)
    choices = get_args(part)  # of a Literal; one of them may be "none" itself, as in --preset none
    convert = str if choices else part
    metavar, name = {int: ("N", "whole number"), float: ("X", "number"), str: ("TEXT", "text")}[convert]

    def read(text: str) -> Any:
        return None if optional and "none" not in choices and text.lower() == "none" else convert(text)

    read.__name__ = name  # argparse says it in its messages
    return {"type": read, "metavar": "{" + ",".join(choices) + "}" if choices else metavar}
