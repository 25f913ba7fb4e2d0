"""Settings: four layers, read and checked once; every error names the setting, where it stands and what is allowed."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chargehand import (
    Chargehand,
    ConfigurationError,
    DiscoveryPolicy,
    JobPolicy,
    LivenessPolicy,
    RestartPolicy,
    Retention,
)
from chargehand.settings import dotenv
from chargehand.settings.known import SETTINGS, Settings
from chargehand.settings.layers import read
from chargehand.settings.reading import Secret
from chargehand.settings.staffing import Declared, threads, workers

# spec: CF-1


@pytest.fixture
def told(tmp_path: Path) -> Any:
    """Settings from files with these texts, an environment, and code."""

    def settings(toml: str = "", env: str = "", code: dict[str, Any] | None = None, **environment: str) -> Settings:
        (tmp_path / "chargehand.toml").write_text(toml)
        (tmp_path / ".env").write_text(env)
        return read(tmp_path, code or {}, environment)

    return settings


def test_nothing_set_is_the_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, {}, {})
    assert (found.url, found.host, found.port) == (str(tmp_path / "chargehand.db"), "127.0.0.1", 8356)
    assert (found.embed_workers, found.worker_processes, found.cors_origins) == (True, None, ())
    assert (found.log_level, found.log, found.synchronous, found.admin_key) == ("INFO", "human", "full", None)
    assert (found.restart, found.liveness, found.origins) == (RestartPolicy(), LivenessPolicy(), {})


def test_the_later_wins(told: Any) -> None:
    code: dict[str, Any] = {"node": "code", "liveness": LivenessPolicy(grace=1, silent=9)}
    toml = "node = 'toml'\n[liveness]\ngrace = 2\n"
    assert (told(code=code).node, told(code=code).liveness.grace) == ("code", 1)
    assert told(toml, code=code).node == "toml"
    assert told(toml, code=code).liveness == LivenessPolicy(grace=2, silent=9)
    assert told(toml, "NODE_NAME=dotenv", code).node == "dotenv"
    assert told(toml, "NODE_NAME=dotenv\nCHARGEHAND_GRACE=3", code).liveness.grace == 3
    assert told(toml, "CHARGEHAND_NODE=dotenv", code, NODE_NAME="environment").node == "environment"
    assert told(NODE_NAME="general", CHARGEHAND_NODE="own").node == "own"
    assert told(toml, CHARGEHAND_NODE="").node == "toml"  # empty is not set


@pytest.mark.parametrize(
    ("texts", "meant"), [(["1", "true", "YES", "True"], True), (["0", "false", "No", "FALSE "], False)]
)
def test_yes_and_no(told: Any, texts: list[str], meant: bool) -> None:  # spec: CF-2
    assert [told(EMBED_WORKERS=text).embed_workers for text in texts] == [meant] * len(texts)
    assert told(f"embed_workers = {str(meant).lower()}").embed_workers is meant


def test_every_setting_can_be_set_in_every_way(told: Any) -> None:
    samples: dict[str, Any] = {
        "url": "/x/y.db", "node": "n", "embed_workers": False, "worker_processes": 3, "pipeline_threads_per_job": 2,
        "cors_origins": ["https://a.example", "http://b.example:3000"], "host": "::1", "port": 0,
        "allowed_hosts": ["a.example", "10.0.0.7", "::1"], "trusted_proxies": ["127.0.0.1", "10.0.0.0/8", "::1"],
        "admin_key": "0123456789abcdef", "log_level": "DEBUG", "log": "json", "synchronous": "normal", "history": True,
        "nvidia_smi": "/opt/bin/nvidia-smi", "files": "/x/files",
    }  # fmt: skip
    for setting in SETTINGS:
        value = samples.get(setting.path[0], 700)
        head = f"[{setting.path[0]}]\n" if len(setting.path) == 2 else ""
        by_file = told(f"{head}{setting.path[-1]} = {msgspec.json.encode(value).decode()}")
        text = ",".join(value) if isinstance(value, list) else str(value)
        ways = [by_file, *(told(**{variable: text}) for variable in setting.variables)]
        ways += [told(env=f"{variable}={text}") for variable in setting.variables]
        for found in ways:
            for part in setting.path:
                found = getattr(found, part)
            meant = tuple(value) if isinstance(value, list) else value
            assert (found.value if isinstance(found, Secret) else found) == meant, setting.name


def test_the_defaults_are_those_of_the_specification() -> None:  # spec: CF-4 SV-5 SV-6 SV-7 SV-8 WP-6 PD-3 HP-6 HP-7
    live = LivenessPolicy()
    assert (live.grace, live.terminate, live.silent, live.idle, live.first_frame) == (10, 2, 30, 30, 30)
    assert (live.set_up, live.still, live.stalled, live.beat, live.node_beat) == (300, 300, 600, 5, 5)
    assert (live.bad_frames, Retention().history_every_ms, Retention().history_age_ms) == (3, 30_000, 7 * 86_400_000)
    restart = RestartPolicy()
    assert (restart.first_pause, restart.longest_pause, restart.window, restart.rapid_limit) == (1, 60, 300, 5)
    assert (restart.lifetime_limit, restart.healthy_after, restart.forgive_after) == (20, 300, 6 * 3600)
    assert (JobPolicy().poison_crashes, JobPolicy().suspect_after) == (3, 3)
    assert (DiscoveryPolicy().interval, DiscoveryPolicy().timeout) == (2, 30)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("CHARGEHAND_JOBS_POISON_CRASHES", "0", "a whole number, 1 or more"),
        ("CHARGEHAND_JOBS_SUSPECT_AFTER", "0", "a whole number, 1 or more"),
        ("CHARGEHAND_DISCOVERY_INTERVAL", "0", "a number of seconds, 0.01 or more"),
        ("CHARGEHAND_DISCOVERY_MOST_DONE", "three", "a whole number, 1 or more"),
        ("CHARGEHAND_LIVENESS_NODE_BEAT", "0", "a number of seconds, 0.05 or more"),
        ("CHARGEHAND_LIVENESS_BAD_FRAMES", "0", "a whole number, 1 or more"),
        ("CHARGEHAND_RETENTION_HISTORY_EVERY_MS", "99", "a whole number, 100 or more"),
    ],
)
def test_numbers_that_would_stop_the_node_from_working_are_refused(
    told: Any, name: str, text: str, allowed: str
) -> None:  # spec: CF-1 CF-4
    with pytest.raises(ConfigurationError, match=f"{name} is '{text}'.*must be {allowed}"):
        told(**{name: text})


def test_policies_reach_the_plan_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: CF-4
    monkeypatch.setenv("CHARGEHAND_DISCOVERY_TIMEOUT", "7")
    given = DiscoveryPolicy(interval=0.5)
    hand = Chargehand(tmp_path / "store.db", folder=tmp_path, jobs=JobPolicy(poison_crashes=2), discovery=given)
    hand.crew("a", "x:Y")
    plan = hand._node_plan()
    assert (plan.jobs, plan.discovery) == (JobPolicy(poison_crashes=2), DiscoveryPolicy(interval=0.5, timeout=7))
    with pytest.raises(ConfigurationError, match=r"jobs\.poison_crashes is 0"):
        Chargehand(tmp_path / "store.db", folder=tmp_path, jobs=JobPolicy(poison_crashes=0))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"EMBED_WORKERS": "maybe"}, r"EMBED_WORKERS is 'maybe' \(in the environment\); must be 1, true, yes, 0"),
    ({"WORKER_PROCESSES": "two"}, r"WORKER_PROCESSES is 'two' \(in the environment\); must be a whole number, 0 to"),
    ({"WORKER_PROCESSES": "-1"}, "WORKER_PROCESSES is '-1'"),
    ({"WORKER_PROCESSES": "1.5"}, "WORKER_PROCESSES is '1.5'"),
    ({"PIPELINE_THREADS_PER_JOB": "0"}, "PIPELINE_THREADS_PER_JOB is '0'.*1 or more"),
    ({"CHARGEHAND_PORT": "65536"}, "CHARGEHAND_PORT is '65536'.*65535"),
    ({"CORS_ORIGINS": "*"}, r"CORS_ORIGINS is '\*'.*https://example.org"),
    ({"CORS_ORIGINS": "https://a.example/path"}, "CORS_ORIGINS"),
    ({"CHARGEHAND_LOG": "xml"}, "CHARGEHAND_LOG is 'xml'.*human or json"),
    ({"CHARGEHAND_LOG_LEVEL": "LOUD"}, "CHARGEHAND_LOG_LEVEL is 'LOUD'.*DEBUG, INFO, WARNING or ERROR"),
    ({"CHARGEHAND_GRACE": "nan"}, "CHARGEHAND_GRACE is 'nan'.*seconds"),
    ({"CHARGEHAND_RESTART_WINDOW": "-3"}, "CHARGEHAND_RESTART_WINDOW is '-3'.*0 or more"),
    ({"CHARGEHAND_STARTS_MEMORY": "much"}, "CHARGEHAND_STARTS_MEMORY is 'much'.*'1.5 GiB'"),
    ({"CHARGEHAND_CREW_TAG_WORKERS": "x"}, "CHARGEHAND_CREW_TAG_WORKERS is 'x'.*0 to 1000"),
    (
        {"CHARGEHAND_ULR": "x"},
        r"unknown setting CHARGEHAND_ULR \(in the environment\); did you mean CH",
    ),
    ({"CHARGEHAND_STORE": "x.db"}, r"unknown setting CHARGEHAND_STORE \(.*; did you mean CHARGEHAND_URL\?"),
    ({"CHARGEHAND_DATABASE_URL": "x.db"}, r"; did you mean CHARGEHAND_URL\?"),
    ({"CHARGEHAND_WORKERS": "4"}, "mean WORKER_PROCESSES, or CHARGEHAND_CREW_NAME_WORKERS for one crew"),
    ({"CHARGEHAND_CREW_TAG_WORKER": "4"}, r"did you mean CHARGEHAND_CREW_TAG_WORKERS\?"),
    ({"CHARGEHAND_CREW_TAG_TIMEOUT": "4"}, r"; a crew has WORKERS and THREADS here: give other options to hand.crew"),
    ({"CHARGEHAND_CREW_WORKERS": "4"}, r"did you mean CHARGEHAND_CREW_NAME_WORKERS\?"),
    ({"CHARGEHAND_JOBS_MAX_ATTEMPTS": "4"}, r"unknown setting CHARGEHAND_JOBS_MAX_ATTEMPTS \(in the environment\)$"),
    ({"CHARGEHAND_ALLOWED_HOSTS": "https://a.example"}, "must be names of hosts such as jobs.example.org, without"),
    ({"CHARGEHAND_ALLOWED_HOSTS": "a.example,b.example:8356"}, "CHARGEHAND_ALLOWED_HOSTS is 'a.example,b.example:8"),
    ({"CHARGEHAND_ALLOWED_HOSTS": "*"}, r"CHARGEHAND_ALLOWED_HOSTS is '\*'"),
    ({"CHARGEHAND_ALLOWED_HOSTS": ".example"}, r"CHARGEHAND_ALLOWED_HOSTS is '\.example'"),
    ({"CHARGEHAND_ALLOWED_HOSTS": "[::1]"}, r"CHARGEHAND_ALLOWED_HOSTS is '\[::1\]'"),
    ({"CHARGEHAND_CONFIG": "/nowhere/x.toml"}, r"/nowhere/x.toml \(named by CHARGEHAND_CONFIG\) cannot be read"),
    ({"env": "A=1\nWORKER_PROCESSES=x"}, r"WORKER_PROCESSES is 'x' \(.*/\.env, line 2\)"),
    ({"env": "CHARGEHAND_URL=${HOME}/x.db"}, "CHARGEHAND_URL .*line 1.* refers to another variable"),
    ({"env": "just words"}, r"/\.env, line 1: expected NAME=VALUE"),
    ({"toml": "port = "}, "chargehand.toml cannot be read"),
    ({"toml": "port = " + "[" * 5_000 + "]" * 5_000}, "chargehand.toml cannot be read: a value is nested too deeply"),
    (
        {"toml": "port" + ".a" * 5_000 + " = 1"},
        r"port is (\{'a': .{0,200}…|a very large dict) \(in .*/chargehand.toml, line 1\)",
    ),
    ({"toml": "port = 0x" + "f" * 9_000}, r"port is a very large int \(in .*/chargehand.toml, line 1\)"),
    ({"toml": "[crews]\nx = 0x" + "f" * 9_000}, r"crews.x is a very large int; expected a table"),
    ({"toml": "port = '80x'"}, r"port is '80x' \(in .*/chargehand.toml, line 1\)"),
    ({"toml": "port = true"}, "port is True"),
    ({"toml": "worker_proceses = 1"}, "unknown setting worker_proceses; did you mean worker_processes?"),
    ({"toml": 'CHARGEHAND_URL = "x"'}, "unknown setting CHARGEHAND_URL; did you mean url?"),
    ({"toml": "[liveness]\ngarce = 1"}, "unknown setting liveness.garce; did you mean liveness.grace?"),
    ({"toml": "liveness = 3"}, r"liveness is 3; expected a table, \[liveness\]"),
    ({"toml": "[crews]\ntag = 3"}, r"crews.tag is 3; expected a table"),
    ({"toml": "[crews.tag]\nworker = 3"}, "unknown setting crews.tag.worker; did you mean crews.tag.workers?"),
    ({"toml": "cors_origins = 3"}, "cors_origins is 3"),
    ({"code": {"liveness": LivenessPolicy(grace=-1)}}, r"liveness.grace is -1 \(given in code\)"),
    ({"code": {"retention": Retention(count=True)}}, "retention.count is True"),
    ({"code": {"node": "two words"}}, "node is 'two words'"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=[str(given)[:60] for given, _ in WRONG])
def test_what_is_wrong_is_said(told: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        told(**given)


def test_a_secret_is_never_shown(told: Any) -> None:  # spec: SE-4
    with pytest.raises(ConfigurationError, match=r"CHARGEHAND_ADMIN_KEY is not shown .*16 or more") as error:
        told(CHARGEHAND_ADMIN_KEY="hunter2")
    assert "hunter2" not in str(error.value)
    found = told(CHARGEHAND_ADMIN_KEY="correct-horse-battery")
    assert found.admin_key.value == "correct-horse-battery"
    assert "horse" not in repr(found)
    with pytest.raises(TypeError):
        msgspec.json.encode(found)


def test_what_others_put_into_the_environment_is_theirs(told: Any) -> None:
    """Kubernetes sets these in every pod beside a service that is called chargehand."""
    found = told(
        env="OTHER_PORT=x\nEMPTY=",
        CHARGEHAND_SERVICE_HOST="10.0.0.1", CHARGEHAND_PORT="tcp://10.0.0.1:8356",
        CHARGEHAND_PORT_8356_TCP="tcp://10.0.0.1:8356", HOST="x", PORT="80",
    )  # fmt: skip
    assert (found.host, found.port) == ("127.0.0.1", 8356)


def test_a_path_in_a_file_is_meant_from_there(told: Any, tmp_path: Path) -> None:  # spec: CF-3
    assert told("url = 'data/jobs.db'").url == str(tmp_path / "data/jobs.db")
    assert told(env="CHARGEHAND_URL=jobs.db").url == str(tmp_path / "jobs.db")
    assert told(CHARGEHAND_URL="jobs.db").url == "jobs.db"  # from the working directory, as everywhere
    assert told("url = 'sqlite:///x/jobs.db'").url == "sqlite:///x/jobs.db"


def test_another_file_can_be_named(told: Any, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("port = 1234\n")
    assert told("port = 99", CHARGEHAND_CONFIG=str(tmp_path / "other.toml")).port == 1234
    assert told("port = 99", "CHARGEHAND_CONFIG=other.toml").port == 1234


# the folder of the start


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of a module, and another in which the process was started."""
    module, here = tmp_path / "module", tmp_path / "here"
    for folder in (module, here):
        folder.mkdir()
    monkeypatch.chdir(here)
    return module, here


def test_files_of_the_current_folder_win_name_by_name(start: tuple[Path, Path]) -> None:  # spec: CF-4
    module, here = start
    (module / "chargehand.toml").write_text("port = 1\nnode = 'beside'\n[liveness]\ngrace = 1\nsilent = 1\n")
    (here / "chargehand.toml").write_text("port = 2\n[liveness]\ngrace = 2\n")
    (module / ".env").write_text("WORKER_PROCESSES=3\nCHARGEHAND_LIVENESS_SILENT=3\nCHARGEHAND_LOG=json\n")
    (here / ".env").write_text("WORKER_PROCESSES=4\nCHARGEHAND_URL=jobs.db\n")
    found = read(module, {}, {})
    assert (found.port, found.node, found.worker_processes, found.log) == (2, "beside", 4, "json")
    assert (found.liveness.grace, found.liveness.silent) == (2, 3)  # .env beside the module wins over TOML here
    assert found.url == str(here / "jobs.db")
    names = ["chargehand.toml", "chargehand.toml", ".env", ".env"]
    assert found.read_from == tuple(str(folder / name) for folder, name in zip([module, here] * 2, names, strict=True))
    assert read(module, {}, {"WORKER_PROCESSES": "5"}).worker_processes == 5


def test_each_file_alone_is_read_and_reported(start: tuple[Path, Path]) -> None:  # spec: CF-4
    module, here = start
    assert read(module, {}, {}).read_from == ()
    assert read(module, {}, {}).url == str(module / "chargehand.db")
    for folder in start:
        (folder / ".env").write_text("CHARGEHAND_PORT=7\n")
        found = read(module, {}, {})
        assert (found.port, found.read_from) == (7, (str(folder / ".env"),))
        assert str(folder / ".env") in found.origins["port"]
        (folder / ".env").unlink()
    (here / ".env").write_text("CHARGEHAND_PORT=8\n")
    assert read(here, {}, {}).read_from == (str(here / ".env"),)  # once, if both folders are the same


def test_a_named_file_replaces_both(start: tuple[Path, Path]) -> None:  # spec: CF-4
    module, here = start
    for folder in start:
        (folder / "chargehand.toml").write_text("port = 1\n")
        (folder / "other.toml").write_text(f"node = '{folder.name}'\n")
        (folder / ".env").write_text("CHARGEHAND_CONFIG=other.toml\n")
    found = read(module, {}, {})
    assert (found.port, found.node, found.read_from[0]) == (8356, "here", str(here / "other.toml"))
    (here / ".env").unlink()
    assert read(module, {}, {}).node == "module"


def test_a_current_folder_that_cannot_be_used_is_left_out(
    start: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:  # spec: CF-4
    module, here = start
    (here / ".env").mkdir()  # a virtual environment of that name
    assert read(module, {}, {}).read_from == ()
    (here / ".env").rmdir()
    (here / ".env").write_text("CHARGEHAND_PORT=7\n")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may search every folder
    assert read(module, {}, {}).read_from == ()
    monkeypatch.undo()
    monkeypatch.chdir(here)
    (here / ".env").unlink()
    here.rmdir()
    assert read(module, {}, {}).read_from == ()


# .env


def test_what_a_dotenv_file_may_look_like(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(
        b'\xef\xbb\xbf# first\r\n\r\n  export A = plain words  # w\r\nB=\'it is # $HOME \\n\'\nC="a\\nb \\"c\\"" # x\n'
        b'KEY="-----BEGIN\nsecond line\n-----END"\nEMPTY=\nHASH=a#b\nNONE= # nothing\nlast.one=1'
    )
    assert dotenv.read(file) == {
        "A": ("plain words", 3), "B": ("it is # $HOME \\n", 4), "C": ('a\nb "c"', 5),
        "KEY": ("-----BEGIN\nsecond line\n-----END", 6), "EMPTY": ("", 9), "HASH": ("a#b", 10), "NONE": ("", 11),
        "last.one": ("1", 12),
    }  # fmt: skip


@pytest.mark.parametrize("line", ["A", "=x", "1A=x", "A='hush", 'A="hush', "A='x' y", "A b=1", "A='x'y"])
def test_what_it_may_not_look_like(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(f"# one\nB=1\n{line}\n")
    with pytest.raises(ConfigurationError, match=r"\.env, line 3: expected NAME=VALUE") as error:
        dotenv.read(tmp_path / ".env")
    assert "hush" not in str(error.value)


def test_a_dotenv_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    with pytest.raises(ConfigurationError, match=r"\.env cannot be read"):
        dotenv.read(tmp_path / ".env")


# workers


def staff(told: Settings, *crews: tuple[Any, ...]) -> dict[str, int]:
    return workers(told, [Declared(*crew) for crew in crews])


def test_how_many_workers_a_crew_has(told: Any) -> None:
    assert staff(told(), ("only", None)) == {"only": 2}
    assert staff(told(), ("only", 5)) == {"only": 5}
    assert staff(told(), ("a", None), ("b", None)) == {"a": 1, "b": 1}
    assert staff(told(), ("a", None, True), ("b", None)) == {"a": 2, "b": 1}
    three = told(WORKER_PROCESSES="3")
    assert staff(three, ("only", 5)) == {"only": 3}
    assert staff(three, ("a", 4), ("b", 5, True)) == {"a": 4, "b": 3}
    own = told("[crews.tag-fast]\nworkers = 7", WORKER_PROCESSES="3", CHARGEHAND_CREW_B_WORKERS="0")
    assert staff(own, ("tag-fast", 1, True), ("b", 5), ("c", 6)) == {"tag-fast": 7, "b": 0, "c": 6}
    assert staff(told("[crews.b]\nworkers = 7", CHARGEHAND_CREW_B_WORKERS="8"), ("b", 1)) == {"b": 8}


def test_a_count_that_is_for_nobody_is_refused(told: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"WORKER_PROCESSES in the environment: .*a, b.*default=True"):
        staff(told(WORKER_PROCESSES="3"), ("a", 1), ("b", 1))
    with pytest.raises(
        ConfigurationError, match=r"CHARGEHAND_CREW_TGA_WORKERS.*crew TGA does not exist; there are: tag"
    ):
        staff(told(CHARGEHAND_CREW_TGA_WORKERS="3"), ("tag", 1))
    with pytest.raises(ConfigurationError, match=r"crew A_B is ambiguous"):
        staff(told(CHARGEHAND_CREW_A_B_WORKERS="3"), ("a-b", 1), ("a_b", 1))
    with pytest.raises(ConfigurationError, match=r"crews a and b are both marked default"):
        staff(told(), ("a", 1, True), ("b", 1, True))


def test_how_many_threads_a_job_may_use(told: Any) -> None:  # spec: WP-11
    assert [threads(told(), "a", None), threads(told(), "a", 4)] == [1, 4]
    assert threads(told(PIPELINE_THREADS_PER_JOB="3"), "a", 4) == 3
    assert threads(told(PIPELINE_THREADS_PER_JOB="3", CHARGEHAND_CREW_A_THREADS="5"), "a", 4) == 5


# the object that an application makes


def test_a_chargehand_reads_what_is_beside_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settled_jobs.py").write_text(
        "from chargehand import Chargehand\nhand = Chargehand()\n"
        "a = hand.crew('a', 'x:Y', default=True)\nb = hand.crew('b', 'x:Y', workers=3, threads=2)\n"
    )
    (tmp_path / "chargehand.toml").write_text("log = 'json'\nsynchronous = 'normal'\n[crews.b]\nworkers = 4\n")
    (tmp_path / ".env").write_text("WORKER_PROCESSES=5\nPIPELINE_THREADS_PER_JOB=6\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CHARGEHAND_LIVENESS_SILENT", "12")
    import settled_jobs  # pyright: ignore[reportMissingImports]

    hand: Chargehand = settled_jobs.hand
    plan = hand._node_plan()
    assert hand.path == tmp_path / "chargehand.db"
    assert [(crew.name, crew.workers, crew.threads) for crew in plan.crews] == [("a", 5, 6), ("b", 4, 6)]
    assert (plan.log, plan.synchronous, plan.liveness.silent) == ("json", "normal", 12)
    del sys.modules["settled_jobs"]


def test_durability_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # spec: ST-2
    """SQLite calls NORMAL 1 and FULL 2."""
    for name, number in (("", 2), ("normal", 1), ("full", 2)):
        monkeypatch.setenv("CHARGEHAND_SYNCHRONOUS", name)
        hand = Chargehand(tmp_path / "store.db", folder=tmp_path)
        with hand.transaction() as tx:
            assert tx.execute("PRAGMA synchronous") == [(number,)]
        hand.close()
