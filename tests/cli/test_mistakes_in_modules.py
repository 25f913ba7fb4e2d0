"""Typical mistakes in a user's modules and files, as the command line and workers answer them: with the user's line."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from chargehand import Chargehand, ConfigurationError
from chargehand.cli import find
from chargehand.cli.main import app
from chargehand.handler import Handler, type_faults, type_name
from chargehand.web.serving import serve
from chargehand.worker import perform

HAND = "from chargehand import Chargehand\nhand = Chargehand()\n"
CREW = f"{HAND}tag = hand.crew('tag', 'handlers:Tag')\n"
HANDLER = "from chargehand import Handler\nclass Tag(Handler):"
Load = Callable[..., str]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads an application, whose module has this code, by a name; returns the answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def answer(code: str, name: str = "mistaken_jobs", **files: str) -> str:
        (tmp_path / "mistaken_jobs.py").write_text(code)
        for file, text in files.items():
            (tmp_path / {"env": ".env", "toml": "chargehand.toml"}[file]).write_text(text)
        monkeypatch.delitem(sys.modules, "mistaken_jobs", raising=False)
        with pytest.raises(ConfigurationError) as found:
            find.application(name).check_settings()
        return str(found.value).replace(str(tmp_path), "HERE")

    return answer


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (f"{HAND}tag = hand.crew('tag', int)", "crew 'tag': handler is the class int itself; must be its name"),
        (f"{HAND}tag = hand.crew('tag', 'handlers:Tag', workers='2')", "crew 'tag': workers is '2'; must be a whole"),
        (f"{CREW}import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{CREW}import json; json.loads('[')", "JSONDecodeError: Expecting value"),
        (f"{CREW}tag.enqueue(b'')", "the payload for crew 'tag' cannot be written as JSON"),
        (f"{CREW}raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_the_place_of_an_error_is_in_the_users_module(code: str, answer: str, load: Load) -> None:
    """Neither the line of Chargehand nor that of a library that raised it."""
    told = load(code)
    assert told.startswith(f"application 'mistaken_jobs' cannot be imported from HERE: {answer}")
    lines = code.count("\n") + 1
    assert f"(HERE/mistaken_jobs.py, line {lines})" in told
    assert told.endswith(("`if __name__ == '__main__':`", ")"))


def test_a_syntax_error_says_its_own_place(load: Load) -> None:
    assert load("hand = (").endswith("(mistaken_jobs.py, line 1)")


@pytest.mark.parametrize("name", ["mistaken_jobs.py", "./mistaken_jobs.py:hand", "jobs/main.py", "my-jobs", "7:hand"])
def test_a_file_is_not_a_module(name: str, load: Load) -> None:
    told = load(CREW, name)
    meant = {
        "mistaken_jobs.py": "mistaken_jobs",
        "./mistaken_jobs.py:hand": "mistaken_jobs:hand",
        "jobs/main.py": "jobs.main",
    }
    hint = f"; did you mean {meant[name]}?" if name in meant else ", such as jobs:hand"
    assert told == f"application {name!r} is not of the form module:object{hint}"


def test_a_module_that_does_not_exist_is_looked_for_in_the_folder(load: Load, tmp_path: Path) -> None:
    assert load(CREW, "mistaken_job:hand") == (
        "application 'mistaken_job:hand': there is no module 'mistaken_job' in HERE; did you mean mistaken_jobs?"
    )
    assert load(CREW, "nowhere.jobs") == "application 'nowhere.jobs': there is no module 'nowhere' in HERE"
    (tmp_path / "shopping").mkdir()
    (tmp_path / "shopping" / "jobs.py").touch()
    assert load(CREW, "shopping.job:hand").endswith("no module 'shopping.job' in HERE; did you mean shopping.jobs?")


def test_an_application_in_another_folder_is_answered_with_that_folder(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "upper_jobs.py").touch()
    monkeypatch.chdir(tmp_path / "deep" / "down")
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert load(CREW, "upper_jobs:hand").endswith("there is one in HERE: change to that folder")
    told = load(CREW, "../../upper_jobs:hand")
    assert told.endswith("not of the form module:object; in HERE it is upper_jobs:hand: change to that folder")
    assert load(CREW, f"{tmp_path}/upper_jobs.py").endswith("; in HERE it is upper_jobs: change to that folder")
    assert load(CREW, "../../nothing:hand").endswith(", such as jobs:hand")


def test_a_module_that_is_hidden_by_one_of_python_is_named(load: Load, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text(HAND)
    assert load(CREW, "queue:hand").startswith("module 'queue' has no name 'hand'; its Chargehand objects: none; HERE/")
    assert load(CREW, "queue").endswith("/queue.py: give it another name")
    assert load(CREW, "time:hand").endswith("objects: none")


def test_a_circular_import_is_answered_with_the_way_to_name_handlers(load: Load, tmp_path: Path) -> None:
    (tmp_path / "circular_handlers.py").write_text("from mistaken_jobs import hand")
    assert load("from circular_handlers import Tag").endswith("as text, 'handlers:Tag', and only workers import them")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("enqueue", "Did you mean 'jobs enqueue'?"), ("retry", "Did you mean 'jobs retry', 'flows retry'?"),
        ("create", "Did you mean 'keys create'?"), ("worker", "Did you mean 'work'?"),
        ("dashbord", "Did you mean 'dashboard'?"), ("purge", "Did you mean 'jobs clear'?"),
        ("flower", "Did you mean 'dashboard'?"), ("version", "Did you mean '--version'?"),
    ],
)  # fmt: skip
def test_a_command_without_its_group_is_found(word: str, meant: str) -> None:
    done = CliRunner().invoke(app, [word])
    assert done.exit_code == 2
    assert meant in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["work", "-A", "jobs"], "The application is an argument: chargehand work jobs:hand."),
        (["check", "--app", "jobs:hand"], "The application is an argument: chargehand check jobs:hand."),
        (["work", "jobs:hand", "--concurrency", "4"], "CHARGEHAND_CREW_NAME_WORKERS=4"),
        (["work", "jobs:hand", "-Q", "tag"], "The command runs all crews of the application"),
        (["work", "jobs:hand", "--colour"], "No such option: --colour"),
        (["jobs", "list", "--crew", "tag"], "The jobs of a crew have its queue: --queue."),
        (["jobs", "01a1f1f2ea64"], "Did you mean 'show 01a1f1f2ea64'?"),
        (["flows", "01a1f1f2ea64"], "Did you mean 'show 01a1f1f2ea64'?"),
        (["keys", "01a1f1f2ea64"], "No such command '01a1f1f2ea64'."),
    ],
)
def test_words_of_other_systems_are_answered_with_what_to_write(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert meant in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("toml", "answer"),
    [
        (
            "grace = 45",
            "line 1: unknown setting grace; did you mean liveness.grace? In a TOML file, grace belongs below",
        ),
        ("\n[crews.tga]\n\nworkers = 3", "line 4: the crew TGA does not exist; there are: tag; did you mean tag?"),
        ("[crew.tag]\nworkers = 3", "line 1: unknown setting crew; did you mean [crews.NAME]?"),
        ("[tag]\nworkers = 3", "line 1: unknown setting tag; the settings of a crew belong below [crews.tag]"),
        ("[crews.tag]\nworker = 3", "line 2: unknown setting crews.tag.worker; did you mean crews.tag.workers?"),
        (
            "[crews.tag]\ntimeout = 60",
            "line 2: unknown setting crews.tag.timeout; a crew has workers and threads here: ",
        ),
        ("workers = 4", "line 1: unknown setting workers; workers belongs below [crews.NAME]"),
        ("port = 1\nhost = 'a b'", "line 2); must be an address or a host's name"),
        ("[liveness]\ngrace = [\n1]", "line 3); must be a number of seconds, 0 or more"),
        ("port = 5x", "cannot be read: Expected newline or end of document after a statement (at line 1, column 9)"),
        ("CHARGEHAND_PORT = 5", "line 1: unknown setting CHARGEHAND_PORT; did you mean port?"),
    ],
)
def test_a_mistake_in_the_toml_file_is_told_with_its_line(toml: str, answer: str, load: Load) -> None:
    told = load(CREW, toml=toml)
    assert "HERE/chargehand.toml" in told
    assert answer in told
    assert "mistaken_jobs.py" not in told  # it is not there that something is to be changed


def test_a_mistake_in_the_env_file_is_told_with_its_line(load: Load) -> None:
    told = load(CREW, env="NODE_NAME=a\nCHARGEHAND_PROT=80\n")
    assert told.endswith("unknown setting CHARGEHAND_PROT (HERE/.env, line 2); did you mean CHARGEHAND_PORT?")
    assert load(CREW, env="CHARGEHAND_CREW_TGA_WORKERS=2").endswith(
        "TGA does not exist; there are: tag; did you mean tag?"
    )


def test_serve_tells_a_mistake_in_the_settings_of_a_crew_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CF-1
    monkeypatch.setenv("CHARGEHAND_CREW_TGA_WORKERS", "2")
    hand = Chargehand(tmp_path / "jobs.db", folder=tmp_path)
    hand.crew("tag", "handlers:Tag")
    with pytest.raises(ConfigurationError, match="TGA"):  # the server itself would end with SystemExit
        serve(hand, "127.0.0.1", 0)


# what workers say of handlers


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import torhc", "cannot be imported: ModuleNotFoundError: No module named 'torhc' (HERE/mistaken_handlers.py"),
        ("class Tga: ...", "AttributeError: module 'mistaken_handlers' has no attribute 'Tag'"),
        ("class Tag:\n def perform(self, job): ...", "is not a class derived from chargehand.Handler: it is <class"),
        ("def Tag(job): ...", "is not a class derived from chargehand.Handler: it is <function Tag"),
        (f"{HANDLER} ...", "has no perform(job)"),
        (f"{HANDLER}\n def perform(self, path, size): ...", "has perform(self, path, size); write perform(self, job)"),
        (f"{HANDLER}\n def perform(self): ...", "has perform(self); write perform(self, job)"),
        (f"{HANDLER}\n def perform(self, job, *, size): ...", "perform(self, job, *, size); write perform(self, job)"),
        (f"{HANDLER}\n def perform(self, *, job): ...", "has perform(self, *, job); write perform(self, job): a payl"),
        (f"{HANDLER}\n def perform(self, job): yield 1", "has a perform that yields, which nothing would run: return"),
        (f"{HANDLER}\n async def perform(self, job): yield 1", "has a perform that yields, which nothing would run"),
        (f"{HANDLER}\n @property\n def perform(self): ...", "has perform as a property; write def perform(self, job)"),
        (f"{HANDLER}\n def perform(self, job): ...\n def set_up(self, m): ...", "has set_up(self, m); write set_up"),
        (f"{HANDLER}\n def perform(self, job): ...\n def tear_down(): ...", "has tear_down(); write tear_down"),
        (f"{HANDLER}\n def __init__(self, model): ...\n def perform(self, job): ...", "'model': set it up in set_up"),
        ("import sys\nsys.exit(3)", "SystemExit: 3 (HERE/mistaken_handlers.py, line 2); put what runs the program"),
    ],
)  # fmt: skip
def test_a_handler_that_cannot_be_used(code: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mistaken_handlers", raising=False)
    (tmp_path / "mistaken_handlers.py").write_text(code)
    with pytest.raises(ConfigurationError) as found:
        perform.make("mistaken_handlers:Tag", perform.load("mistaken_handlers:Tag"))
    assert answer in str(found.value).replace(str(tmp_path), "HERE")


@pytest.mark.parametrize(
    "method",
    [
        "def perform(self, job): ...", "async def perform(self, job, extra=1): ...", "def perform(self, *args): ...",
        "def perform(self, job): ...\n def set_up(self, model='small'): ...",
        "def perform(self, job): ...\n @staticmethod\n def tear_down(): ...",
        "@staticmethod\n def perform(job): ...", "@classmethod\n def perform(cls, job): ...",
        "def perform(self, *args, size=1, **rest): ...", "perform = print",
    ],
)  # fmt: skip
def test_a_handler_that_can_be_called_with_a_job_is_accepted(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mistaken_handlers", raising=False)
    (tmp_path / "mistaken_handlers.py").write_text(f"{HANDLER}\n {method}")
    assert issubclass(perform.load("mistaken_handlers:Tag"), Handler)


@dataclass
class Song:
    path: str
    seconds: float = 0


@dataclass
class Track:
    seconds: float
    path: str


class Album(msgspec.Struct):
    artist: str


class Person(BaseModel):
    name: str


class Takes(Handler[list[Song], dict[str, int]]):
    def perform(self, job: object) -> dict[str, int]: ...


class Sings(Handler[Song, Person]):
    def perform(self, job: object) -> Person: ...


@pytest.mark.parametrize(
    ("kind", "takes", "gives", "faults"),
    [
        (Takes, None, None, []),
        (Takes, list[Song], dict[str, int], []),
        (Takes, list[Track], dict, []),
        (Takes, list, int | None, []),
        (Takes, object, Annotated[str, ""], []),
        (Takes, int, dict[str, float], ["the crew takes int, but the handler takes list[Song(path, seconds)]",
                                        "the crew gives dict[str, float], but the handler gives dict[str, int]"]),
        (Takes, list[str], str, ["the crew takes list[str], but the handler takes list[Song(path, seconds)]",
                                 "the crew gives str, but the handler gives dict[str, int]"]),
        (Sings, Track, Person, []),
        (Sings, dict, dict[str, str], []),
        (Sings, dict, None, []),
        (Sings, Album, int, ["the crew takes Album(artist), but the handler takes Song(path, seconds)",
                             "the crew gives int, but the handler gives Person(name)"]),
        (Sings, str, Song, ["the crew takes str, but the handler takes Song(path, seconds)",
                            "the crew gives Song(path, seconds), but the handler gives Person(name)"]),
    ],
)  # fmt: skip
def test_types_that_cannot_be_the_same_are_found(
    kind: type[Handler[Any, Any]], takes: object, gives: object, faults: list[str]
) -> None:
    """Two classes with the same fields may be the same: a handler need not import the module of the application."""
    assert type_faults(kind, type_name(takes), type_name(gives)) == faults
