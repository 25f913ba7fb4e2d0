"""Reads the settings of an application once, when its Chargehand object is created.

Settings come from code, `chargehand.toml`, `.env` and the environment; later ones override earlier ones. The two files
are read in the folder of the application's module and in the current folder, which overrides the former, name by name.
An invalid value raises a ConfigurationError that names the setting, its origin, the value and the allowed values; so
does an unknown name.
"""

import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from chargehand.errors import ConfigurationError
from chargehand.model.spelling import nearest
from chargehand.settings import dotenv, reading
from chargehand.settings.known import (
    BY_PATH,
    BY_VARIABLE,
    CREW_SETTINGS,
    POLICIES,
    PREFIX,
    Setting,
    SettingPath,
    Settings,
    crew_key,
)

CONFIG = "CHARGEHAND_CONFIG"
_CREW = re.compile(rf"{PREFIX}CREW_(.+)_(WORKERS|THREADS)")
_IGNORED = re.compile(
    # Variables of the command line, of processes and of tests, and those that Kubernetes sets for a service.
    rf"{PREFIX}(APP|CONFIG|KEY|REMOTE_URL|LIFE|TEST_.*|FAULT_.*|SERVICE_.*|PORT_\d+_.*)"
)

_OTHER_WORDS = {
    **dict.fromkeys(
        ("BROKER", "BROKER_URL", "DATABASE", "DATABASE_URL", "DB", "DB_URL", "STORE", "STORE_URL"), f"{PREFIX}URL"
    ),
    **dict.fromkeys(
        ("CONCURRENCY", "PROCESSES", "WORKERS"), f"WORKER_PROCESSES, or {PREFIX}CREW_NAME_WORKERS for one crew"
    ),
    "LOGLEVEL": f"{PREFIX}LOG_LEVEL",
    "LOG_FORMAT": f"{PREFIX}LOG",
    "NAME": "NODE_NAME",
    "NODE_NAME": "NODE_NAME",
}
"""What unknown variables probably mean, by their names without the prefix."""


@dataclass(frozen=True, slots=True)
class _Found:
    value: Any
    origin: str


Layer = dict[SettingPath, _Found]


def read(folder: Path, given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings of an application whose module is in this folder and which passed `given` in code."""
    folders = [folder, *_current_folder(folder)]
    dotenvs = {file: dotenv.read(file) for file in _files(".env", folders)}
    named = _named_toml(dotenvs, environment)
    tomls = [named] if named else _files("chargehand.toml", folders)
    found = _from_code(given)
    try:
        for file in tomls:
            found |= _from_toml(file, f" (named by {CONFIG})" if named else "")
        for file, lines in dotenvs.items():
            found |= _from_dotenv(file, lines)
        found |= _from_environment(environment)
    except ConfigurationError as error:
        error.has_place = True
        raise
    return _build(folder, found, [*tomls, *dotenvs])


def _current_folder(other: Path) -> list[Path]:
    """Returns the current folder, unless it is the other one, was deleted, or may not be searched by this user."""
    try:
        here = Path.cwd()
    except OSError:
        return []
    return [here] if here != other and os.access(here, os.X_OK) else []


def _files(name: str, folders: Sequence[Path]) -> list[Path]:
    """Returns the files of this name in the folders. A folder of that name, such as a virtual environment, is none."""
    found: list[Path] = []
    for file in (folder / name for folder in folders):
        try:
            is_folder = stat.S_ISDIR(file.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            is_folder = False  # reading the file reports the error
        if not is_folder:
            found.append(file)
    return found


# the four layers


def _from_code(given: Mapping[str, Any]) -> Layer:
    found: Layer = {}
    for name, value in given.items():
        if value is None:
            continue
        policy = POLICIES.get(name)
        if policy is not None and not isinstance(value, policy):
            raise ConfigurationError(
                f"{name} is {reading.shown(value)} (given in code); must be a chargehand.{policy.__name__}(…)"
            )
        if policy is None:
            found[(name,)] = _checked(BY_PATH[(name,)], name, value, "given in code")
            continue
        for field in msgspec.structs.fields(policy):
            part = getattr(value, field.name)
            if part != field.default:
                path = (name, field.name)
                found[path] = _checked(BY_PATH[path], ".".join(path), part, "given in code")
    return found


def _named_toml(dotenvs: dict[Path, dotenv.Lines], environment: Mapping[str, str]) -> Path | None:
    """Returns the TOML file that CHARGEHAND_CONFIG names, which replaces those in the folders."""
    named = environment.get(CONFIG)
    if named:
        return Path(named).expanduser().absolute()
    for file, lines in reversed(dotenvs.items()):
        named = lines.get(CONFIG, ("", 0))[0]
        if named:
            return file.parent / Path(named).expanduser()
    return None


def _from_toml(file: Path, named: str) -> Layer:
    import tomllib  # not loaded in workers whose application has no such file

    try:
        with file.open("rb") as opened:
            tables = tomllib.load(opened)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}{named} cannot be read: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{file}{named} cannot be read: a value is nested too deeply") from None
    found: Layer = {}
    for key, value in tables.items():
        is_table = key == "crews" or key in POLICIES
        for written, part in _flat(file, key, value) if is_table else [((key,), value)]:
            line = _line(file, written)
            path = (key, *map(crew_key, written[1:2]), *written[2:]) if key == "crews" else written
            _check_known(written, f"{file}{line}", part)
            found[path] = _checked(_setting(path), ".".join(written), part, f"in {file}{line}")
    return _resolve_path(file.parent, found)


def _line(file: Path, path: SettingPath) -> str:
    """Returns ", line N" for the setting of a TOML file: the first line with which the file so far has it."""
    import tomllib

    lines = file.read_text("utf-8").splitlines()
    for count in range(1, len(lines) + 1):
        try:
            found: Any = tomllib.loads("\n".join(lines[:count]))
        except ValueError:  # in the middle of a value
            continue
        for part in path:
            found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
        if found is not None:
            return f", line {count}"
    return ""


def _flat(file: Path, key: str, table: Any) -> list[tuple[SettingPath, Any]]:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{file}: {key} is {reading.shown(table)}; expected a table, [{key}]")
    parts = cast("dict[str, Any]", table)
    if key != "crews":
        return [((key, name), value) for name, value in parts.items()]
    return [
        (("crews", crew, option), value)
        for crew, own in parts.items()
        for (_, option), value in _flat(file, f"crews.{crew}", own)
    ]


def _check_known(path: SettingPath, where: str, value: Any) -> None:
    known = [".".join(each) for each in BY_PATH]
    if path[0] == "crews":
        known = [".".join((*path[:2], option)) for option in CREW_SETTINGS]
    if ".".join(path) not in known:
        name = ".".join(path)
        raise ConfigurationError(f"{where}: unknown setting {name}{_meant(path, known, value)}")


def _meant(path: SettingPath, known: Sequence[str], value: Any) -> str:
    """Returns "; did you mean …?" for an unknown setting, or an empty string."""
    name = ".".join(path).lower().removeprefix(PREFIX.lower())
    in_tables = [each for each in known if each.partition(".")[2] == name]
    if in_tables:
        table, _, key = in_tables[0].partition(".")
        return f"; did you mean {in_tables[0]}? In a TOML file, {key} belongs below [{table}]"
    if name == "crew":
        return "; did you mean [crews.NAME]?"
    if name in CREW_SETTINGS:
        return f"; {name} belongs below [crews.NAME]"
    if isinstance(value, dict) and not CREW_SETTINGS.keys().isdisjoint(cast("dict[str, Any]", value)):
        return f"; the settings of a crew belong below [crews.{path[0]}]"
    if path[0] == "crews":  # without the first words, which are always alike
        near = nearest(path[-1], CREW_SETTINGS)
        rest = f"; a crew has {' and '.join(CREW_SETTINGS)} here: give other options to hand.crew(…)"
        return near.replace("mean ", f"mean {'.'.join(path[:-1])}.") or rest
    return nearest(name, known)


def _setting(path: SettingPath) -> Setting:
    return Setting(path, *CREW_SETTINGS[path[2]]) if path[0] == "crews" else BY_PATH[path]


def _from_dotenv(file: Path, lines: dotenv.Lines) -> Layer:
    texts = {name: text for name, (text, _) in lines.items()}
    for name, (text, line) in lines.items():
        if "${" in text and (name in BY_VARIABLE or name.startswith(PREFIX)):
            raise ConfigurationError(
                f"{name} ({file}, line {line}) refers to another variable; references are not expanded"
            )
    return _resolve_path(file.parent, _from_variables(texts, lambda name: f"{file}, line {lines[name][1]}"))


def _from_environment(environment: Mapping[str, str]) -> Layer:
    # Kubernetes sets CHARGEHAND_PORT=tcp://… for a service of that name, which is not a port number.
    texts = {
        name: text for name, text in environment.items() if name != "CHARGEHAND_PORT" or not text.startswith("tcp://")
    }
    return _from_variables(texts, lambda name: "in the environment")


def _from_variables(texts: Mapping[str, str], origin: Callable[[str], str]) -> Layer:
    """Reads variables; an empty one counts as not set, and a setting's own variable overrides its general one."""
    found: Layer = {}
    for name, setting in BY_VARIABLE.items():
        if texts.get(name):
            found[setting.path] = _checked(setting, name, texts[name], origin(name))
    for name, text in texts.items():
        if not text or name in BY_VARIABLE or not name.startswith(PREFIX) or _IGNORED.fullmatch(name):
            continue
        crew = _CREW.fullmatch(name)
        if crew is None:
            raise ConfigurationError(f"unknown setting {name} ({origin(name)}){_variable_meant(name)}")
        path = ("crews", crew[1], crew[2].lower())
        found[path] = _checked(_setting(path), name, text, origin(name))
    return found


def argument_meant(name: str, known: Iterable[str]) -> str:
    """Returns what to write in place of an argument that `Chargehand(…)` does not have: most are settings."""
    known, word = sorted(known), name.upper()
    table = next((each for each in POLICIES if each in known and name in POLICIES[each].__struct_fields__), None)
    if table is not None:
        return f"; did you mean {table}=chargehand.{POLICIES[table].__name__}({name}=…)?"
    variable = _OTHER_WORDS.get(word, f"{PREFIX}{word}")
    if variable == f"{PREFIX}URL":
        return "; did you mean url?"
    if word in _OTHER_WORDS:
        return f"; it is a setting: {variable}"
    if variable in BY_VARIABLE:
        return f"; it is a setting: {variable} in the environment or in .env, {name} in chargehand.toml"
    return nearest(name, known)


def _variable_meant(name: str) -> str:
    """Returns "; did you mean …?" for an unknown variable, or an empty string."""
    word = name.removeprefix(PREFIX)  # which is always alike
    if word in _OTHER_WORDS:
        return f"; did you mean {_OTHER_WORDS[word]}?"
    if word.startswith("CREW_"):
        crew, _, option = name.rpartition("_")
        crew = crew if crew != f"{PREFIX}CREW" else f"{crew}_NAME"
        rest = f"; a crew has {' and '.join(map(str.upper, CREW_SETTINGS))} here: give other options to hand.crew(…)"
        return nearest(option, map(str.upper, CREW_SETTINGS), f"{crew}_") or rest
    return nearest(word, (each.removeprefix(PREFIX) for each in BY_VARIABLE if each.startswith(PREFIX)), PREFIX)


def _checked(setting: Setting, name: str, value: Any, origin: str) -> _Found:
    try:
        return _Found(setting.read(value), f"{name} {origin}")
    except ValueError:
        shown = "not shown" if setting.read is reading.secret else reading.shown(value)
        raise ConfigurationError(f"{name} is {shown} ({origin}); must be {setting.allowed}") from None


def _resolve_path(folder: Path, found: Layer) -> Layer:
    """Resolves the paths of the store and of files relative to the folder of the file that sets them."""
    files = found.get(("files",))
    if files is not None:
        found[("files",)] = _Found(str(folder / Path(files.value).expanduser()), files.origin)
    url = found.get(("url",))
    if url is not None and ":" not in url.value:
        found[("url",)] = _Found(str(folder / Path(url.value).expanduser()), url.origin)
    return found


def _build(folder: Path, found: Layer, files: Sequence[Path]) -> Settings:
    """Combines the values of all layers into Settings."""
    values: dict[str, Any] = {"url": str(folder / "chargehand.db"), "node": socket.gethostname()}
    crews: dict[str, dict[str, int]] = {}
    parts: dict[str, dict[str, Any]] = {name: {} for name in POLICIES}
    for path, each in found.items():
        match path:
            case (name,):
                values[name] = each.value
            case ("crews", crew, option):
                crews.setdefault(crew, {})[option] = each.value
            case (policy, field):
                parts[policy][field] = each.value
            case _:
                raise AssertionError(path)
    policies: dict[str, Any] = {name: policy(**parts[name]) for name, policy in POLICIES.items()}
    origins = {".".join(path): each.origin for path, each in found.items()}
    return Settings(**values, **policies, crews=crews, origins=origins, read_from=tuple(str(file) for file in files))
