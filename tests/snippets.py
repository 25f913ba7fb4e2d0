"""The code blocks of the documentation, and how they are executed.

The blocks of a page share one folder and one namespace, and are executed in the order of the page:

- a block whose first line is a comment with a file name (`# jobs.py`) is written to that file; Python files are
  imported, and the tests in them are called;
- other Python blocks are executed; `<!-- set-up` … `-->` above a block contains code that the page does not show;
- a block below `<!-- not run: reason -->` is only compiled; the commands below `<!-- run -->` are performed by a test
  that runs the service;
- commands of `chargehand` are parsed by the command line, and JSON, TOML, YAML and INI by their parsers.
"""

import ast
import asyncio
import configparser
import importlib
import inspect
import json
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from typer.core import TyperGroup
from typer.main import get_command

from chargehand import Chargehand
from chargehand.cli.main import app as command_line

BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>set-up|not run|run)(?P<said>.*?)-->\n\n?)?"
    r"^[ ]*```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^[ ]*```",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"(?:#|//|<!--|;) (?P<name>[\w./-]*\.(?:py|toml|ini|conf|service|yaml|yml|env|js|html))\b")


@dataclass(frozen=True)
class Snippet:
    """One code block of a page."""

    line: int
    language: str
    code: str
    mark: str
    """`set-up`, `not run`, `run` or an empty text."""
    said: str
    """The text of the mark: hidden code, or a reason."""

    @property
    def file(self) -> str | None:
        """Returns the name of the file that the block shows."""
        found = FILE.match(self.code)
        return found["name"] if found else None


def of_page(page: Path) -> list[Snippet]:
    """Returns the code blocks of a page."""
    text = page.read_text()
    return [
        Snippet(
            line=text.count("\n", 0, found.start("code")),
            language=found["language"],
            code=textwrap.dedent(found["code"]),
            mark=found["mark"] or "",
            said=(found["said"] or "").strip(": \n") + "\n",
        )
        for found in BLOCK.finditer(text)
    ]


class Run:
    """Executes the blocks of a page in a folder, which is the current one and on the path of modules."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, Any] = {"__name__": "snippets"}

    def close(self) -> None:
        """Closes the applications that the blocks have created."""
        for each in self.names.values():
            if isinstance(each, Chargehand):
                each.close()

    def perform(self, snippet: Snippet) -> None:
        """Executes one block."""
        if snippet.mark == "set-up":
            self._execute(snippet.said, snippet.line)
        if snippet.language == "python":
            self._perform_python(snippet)
        else:
            parse(snippet)

    def _perform_python(self, snippet: Snippet) -> None:
        if snippet.mark == "not run":
            compile(snippet.code, f"{self.page.name}:{snippet.line}", "exec")
        elif snippet.file is None:
            self._execute(snippet.code, snippet.line)
        else:
            file = self.folder / snippet.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(snippet.code)
            forget(self.folder)
            if "__main__" in snippet.code or snippet.mark == "run":
                compile(snippet.code, snippet.file, "exec")
                return
            call_tests(importlib.import_module(snippet.file.removesuffix(".py").replace("/", ".")))

    def _execute(self, code: str, line: int) -> None:
        lines = "\n" * line + code  # the traceback has the line of the page
        ended = eval(compile(lines, str(self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), self.names)
        if inspect.isawaitable(ended):
            asyncio.run(_awaited(ended))


def call_tests(module: ModuleType) -> None:
    """Calls the tests of a module. They may be coroutine functions, and have no parameters."""
    for name, test in list(vars(module).items()):
        if name.startswith("test_") and inspect.isfunction(test):
            ended = test()
            if inspect.isawaitable(ended):
                asyncio.run(_awaited(ended))


async def _awaited(what: Any) -> None:
    await what


def forget(folder: Path) -> None:
    """Closes the applications of the modules of a folder, and removes the modules: the next import reads them again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            for each in list(vars(module).values()):
                if isinstance(each, Chargehand):
                    each.close()
            del sys.modules[name]
    importlib.invalidate_caches()


@contextmanager
def on_the_path(folder: Path) -> Generator[None]:
    """Puts the folder on the path of modules; forgets its modules at the end."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        forget(folder)
        sys.path.remove(str(folder))


def parse(snippet: Snippet) -> None:
    """Parses a block that is not Python. Raises an error if it is malformed."""
    match snippet.language:
        case "json":
            json.loads(snippet.code)
        case "toml":
            tomllib.loads(snippet.code)
        case "yaml":
            list(yaml.safe_load_all(snippet.code))
        case "ini":
            text = snippet.code if re.search(r"^\[", snippet.code, re.MULTILINE) else f"[part]\n{snippet.code}"
            configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
        case _:
            for line in commands(snippet.code):
                parse_command(line)


def commands(code: str) -> Iterator[list[str]]:
    """Yields the arguments of each call of `chargehand` in a block."""
    for line in code.replace("\\\n", " ").splitlines():
        line = re.sub(r"^\$ ", "", line.strip())
        if re.match(r"(?:[A-Z_]+=\S* )*chargehand ", line):
            words = shlex.split(line, comments=True)
            words = words[words.index("chargehand") + 1 :]
            ends = [number for number, word in enumerate(words) if word in ("|", "||", "&&", ">", ";", "&", "…")]
            yield words[: ends[0]] if ends else words


def parse_command(words: list[str]) -> None:
    """Parses a command of `chargehand` without executing it. Raises click.UsageError."""
    command: Any = get_command(command_line)
    context = None
    while True:
        context = command.make_context("chargehand", list(words), parent=context)
        if not isinstance(command, TyperGroup):
            return
        words = [*context._protected_args, *context.args]  # pyright: ignore[reportPrivateUsage]
        if not words:
            return
        _, command, words = command.resolve_command(context, words)
