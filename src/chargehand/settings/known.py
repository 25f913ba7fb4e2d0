"""All settings: their names, how each is read, and which values are allowed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import msgspec

from chargehand.model.fleet.orders import MOST_WORKERS
from chargehand.model.fleet.policy import LivenessPolicy, RestartPolicy, StartPolicy
from chargehand.model.job import JobPolicy
from chargehand.model.records import Retention
from chargehand.model.search import DiscoveryPolicy
from chargehand.settings import reading
from chargehand.settings.http import HttpPolicy
from chargehand.settings.names import PREFIX
from chargehand.settings.plan import THREADS
from chargehand.settings.reading import Secret

SettingPath = tuple[str, ...]
"""The path of a setting: ("url",), ("liveness", "grace"), ("crews", "TAG", "workers")."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of an application."""

    url: str
    """The store's path or URL."""
    node: str
    """This machine's name among nodes."""
    embed_workers: bool = True
    """Whether an API process also runs the workers; if not, `chargehand work` does."""
    worker_processes: int | None = None
    """The number of workers of the default crew, or of the only one."""
    pipeline_threads_per_job: int | None = None
    """The maximum number of threads of numeric libraries in each worker."""
    crews: dict[str, dict[str, int]] = {}
    """Workers and threads of individual crews, by `crew_key`."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the API."""
    allowed_hosts: tuple[str, ...] = ()
    """The host names under which the API may be called; if empty, any."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies whose X-Forwarded-For names the caller in the operator log; if empty, none."""
    host: str = "127.0.0.1"
    """The address on which `chargehand serve` listens."""
    port: int = 8356
    """The port on which `chargehand serve` listens; 0 means any free port."""
    admin_key: Secret | None = None
    """A key with all scopes, for containers."""
    log_level: str = "INFO"
    """The minimum level of log messages."""
    log: str = "human"
    """The log format: `human` or `json`."""
    synchronous: str = "full"
    """`full`: acknowledged writes survive a power failure; `normal`: they survive crashes, and writing is faster."""
    nvidia_smi: str = "nvidia-smi"
    """NVIDIA's tool that lists GPUs: a name to be found on PATH, or a path."""
    history: bool = False
    """Whether periodic snapshots of every component's health are kept."""
    restart: RestartPolicy = RestartPolicy()
    liveness: LivenessPolicy = LivenessPolicy()
    starts: StartPolicy = StartPolicy()
    retention: Retention = Retention()
    jobs: JobPolicy = JobPolicy()
    discovery: DiscoveryPolicy = DiscoveryPolicy()
    http: HttpPolicy = HttpPolicy()
    origins: dict[str, str] = {}
    """The origin of every setting that was set, as text."""
    read_from: tuple[str, ...] = ()
    """The files that were read; later ones override earlier ones."""
    files: str | None = None
    """The folder for the files of flows and jobs; by default it is beside an SQLite store. All nodes share it."""
    files_limit: int | None = None
    """The maximum size of the files of a flow, a job or an attempt, in bytes; None: no limit."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its path, its reader, its allowed values as text, and its additional environment variables."""

    path: SettingPath
    read: Callable[[Any], Any]
    allowed: str
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The setting's name in the TOML file."""
        return ".".join(self.path)

    @property
    def variables(self) -> tuple[str, ...]:
        """The setting's environment variables; the last one takes precedence."""
        return (*self.others, PREFIX + "_".join(self.path).upper())


POLICIES: dict[str, type[Any]] = {
    "restart": RestartPolicy,
    "liveness": LivenessPolicy,
    "starts": StartPolicy,
    "retention": Retention,
    "jobs": JobPolicy,
    "discovery": DiscoveryPolicy,
    "http": HttpPolicy,
}
CREW_SETTINGS = {
    "workers": (reading.whole(0, MOST_WORKERS), f"a whole number, 0 to {MOST_WORKERS}"),
    "threads": (reading.whole(1, 4096), "a whole number, 1 or more"),
}


def _of_policies() -> list[Setting]:
    """Returns one setting per field of every policy."""
    found: list[Setting] = []
    for table, policy in POLICIES.items():
        for field in msgspec.structs.fields(policy):
            kind, *about = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
            least = about[0].ge if about else 0
            if kind is float:
                read, allowed = reading.seconds(least), f"a number of seconds, {least:g} or more"
            elif kind is int:
                read, allowed = reading.whole(least, 1 << 53), f"a whole number, {least} or more"
            else:
                read, allowed = reading.size, "bytes, or a text such as '800 MB' or '1.5 GiB'"
            others = ("CHARGEHAND_GRACE",) if field.name == "grace" else ()
            found.append(Setting((table, field.name), read, allowed, others))
    return found


SETTINGS = [
    Setting(("url",), reading.address, "a path, sqlite:///path/to/file.db or postgresql://user@host/database"),
    Setting(("node",), reading.name, "a name of 1 to 200 printable characters without blanks", ("NODE_NAME",)),
    Setting(("embed_workers",), reading.boolean, "1, true, yes, 0, false or no", ("EMBED_WORKERS",)),
    Setting(("worker_processes",), *CREW_SETTINGS["workers"], ("WORKER_PROCESSES",)),
    Setting(("pipeline_threads_per_job",), *CREW_SETTINGS["threads"], (THREADS,)),
    Setting(("cors_origins",), reading.origins, "origins such as https://example.org, with commas", ("CORS_ORIGINS",)),
    Setting(
        ("allowed_hosts",),
        reading.hosts,
        "names of hosts such as jobs.example.org, without scheme and port, with commas",
    ),
    Setting(("trusted_proxies",), reading.networks, "addresses or networks such as 10.0.0.0/8, with commas"),
    Setting(("host",), reading.name, "an address or a host's name"),
    Setting(("port",), reading.whole(0, 65535), "a whole number, 0 (any free one) to 65535"),
    Setting(("admin_key",), reading.secret, "16 or more printable characters without blanks"),
    Setting(("log_level",), reading.one_of("DEBUG", "INFO", "WARNING", "ERROR"), "DEBUG, INFO, WARNING or ERROR"),
    Setting(("log",), reading.one_of("human", "json"), "human or json"),
    Setting(("synchronous",), reading.one_of("full", "normal"), "full or normal"),
    Setting(("nvidia_smi",), reading.text, "the name or the path of a program"),
    Setting(("history",), reading.boolean, "1, true, yes, 0, false or no"),
    Setting(("files",), reading.text, "the path of a folder"),
    Setting(("files_limit",), reading.size, "bytes, or a text such as '800 MB' or '1.5 GiB'"),
    *_of_policies(),
]
BY_PATH = {setting.path: setting for setting in SETTINGS}
BY_VARIABLE = {variable: setting for setting in SETTINGS for variable in setting.variables}


def crew_key(name: str) -> str:
    """Returns a crew's name as it is spelled in environment variables: `tag-fast` becomes TAG_FAST."""
    return "".join(c if c.isalnum() else "_" for c in name).upper()
