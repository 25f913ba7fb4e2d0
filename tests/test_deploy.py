"""The files in deploy/: what they name exists."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from chargehand import Chargehand
from chargehand.settings.layers import read
from chargehand.testing import eventually
from paths import ROOT, python_path

FOLDER = ROOT / "deploy"
METRICS = (ROOT / "src" / "chargehand" / "web" / "metrics.py").read_text()


def exposed() -> set[str]:
    """The names of the metrics, as Prometheus has them."""
    gauges = re.findall(r'_gauge\(\s*f?"([a-z_{}]+)"', METRICS)
    counters = re.findall(r'_counter\(\s*"([a-z_]+)"', METRICS)
    histograms = ("job_wait_seconds", "job_run_seconds", "claim_seconds", "settle_seconds")
    found = {*gauges, *(f"{name}_total" for name in counters), *(f"{name}_bucket" for name in histograms)}
    return {f"chargehand_{name}" for name in found}


# spec: CF-5
def test_every_metric_of_the_grafana_dashboard_exists() -> None:
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in targets for name in re.findall(r"chargehand_\w+", text)}
    assert named <= exposed()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    labels = {label for text in targets for label in re.findall(r'(\w+)(?:=~|=)"', text)}
    assert labels == {"job", "status", "state"}


def test_the_page_of_metrics_has_every_metric() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    listed = set(re.findall(r"^\| `(chargehand_\w+)`", page, re.MULTILINE)) - {"chargehand_info"}
    gpus = {f"chargehand_gpu_{name}" for name in ("memory_bytes", "memory_used_bytes", "utilization_ratio")}
    named = {name.removesuffix("_bucket") for name in exposed() if "{" not in name}
    assert listed == named | gpus


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_compose_file_gives_every_node_a_name_of_its_own() -> None:
    (compose,) = documents("compose.yaml")
    nodes = {name: service for name, service in compose["services"].items() if name.startswith("node")}
    assert {service["environment"]["NODE_NAME"] for service in nodes.values()} == set(nodes)
    assert all(service["environment"]["CHARGEHAND_FILES"] == "/files" for service in nodes.values())
    assert (FOLDER.parent / "deploy" / "Dockerfile").exists()


def test_folders_that_are_volumes_belong_to_the_user_of_the_image() -> None:
    """A new volume takes its owner from the folder of the image; without one it belongs to root."""
    (compose,) = documents("compose.yaml")
    mounted = {each.partition(":")[2] for each in compose["services"]["node-a"]["volumes"]}
    made = re.search(r"install -d -o app -g app -m 0700 (.+)", (FOLDER / "Dockerfile").read_text())
    assert made
    assert mounted | {"/data"} <= set(made[1].split())


def test_the_figures_of_the_store_are_not_added_up_over_processes() -> None:
    """Every API process exposes them: a sum counts each job once for each process."""
    queries = re.findall(r'"expr": "(.*)"', (FOLDER / "grafana.json").read_text())
    shared = [each for each in queries if "chargehand_queue_" in each]
    assert len(shared) == 5
    for query in shared:
        assert re.search(r"\bmax(| by \([a-z, ]+\)) ?\(chargehand_queue_", query), query


def test_the_pods_have_time_for_the_grace_period() -> None:
    (pods,) = [each for each in documents("kubernetes.yaml") if each["kind"] == "StatefulSet"]
    spec = pods["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert float(environment["CHARGEHAND_LIVENESS_GRACE"]) < spec["terminationGracePeriodSeconds"] - 10
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "Dockerfile"])
def test_every_setting_that_is_named_is_one(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """An unknown setting is refused at the start."""
    values = {"CHARGEHAND_URL": str(tmp_path / "a.db"), "CHARGEHAND_LOG": "json", "CHARGEHAND_LIVENESS_GRACE": "45"}
    named = set(re.findall(r"\b(CHARGEHAND_[A-Z_]+)\b", (FOLDER / name).read_text()))
    assert named
    for each in named:
        monkeypatch.setenv(each, values.get(each, str(tmp_path)))
    assert read(tmp_path, {}).url
    Chargehand(folder=tmp_path).close()


LINTERS = {
    "Dockerfile": ["hadolint", "Dockerfile"],
    "compose.yaml": ["yamllint", "-s", "-d", "{extends: relaxed, rules: {line-length: {max: 160}}}", "compose.yaml"],
    "kubernetes.yaml": ["kubernetes-validate", "--strict", "kubernetes.yaml"],
}


@pytest.mark.parametrize("name", LINTERS)
def test_the_linter_finds_nothing(name: str) -> None:
    """kubernetes-validate compares with the published schemas of the resources."""
    program, *words = LINTERS[name]
    done = subprocess.run(
        [Path(sys.executable).parent / program, *words], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_runs_without_root_and_has_the_health_check() -> None:
    lines = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    words = {line.split(" ", 1)[0]: line for line in lines if line and not line.startswith("#")}
    assert words["USER"] == "USER 10001:10001"
    assert "http://127.0.0.1:8356/healthz" in words["HEALTHCHECK"]


def test_pods_scale_by_a_metric_that_exists() -> None:
    (scaler,) = [each for each in documents("kubernetes.yaml") if each["kind"] == "HorizontalPodAutoscaler"]
    (metric,) = [each["external"]["metric"] for each in scaler["spec"]["metrics"]]
    assert metric["name"] in exposed()
    assert metric["selector"]["matchLabels"].keys() == {"queue", "state"}


def zombies_of(pid: str) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for child in children if "State:\tZ" in Path(f"/proc/{child}/status").read_text()]


@pytest.mark.full
def test_serve_works_as_process_1(tmp_path: Path) -> None:  # spec: SV-11 WP-7
    """As in a container: the host is process 1 of its own process namespace, reaps what is left to it, serves the
    probes, and SIGTERM lets a running job finish."""
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN HERE: a process namespace needs root")
    (tmp_path / "jobs.py").write_text(
        "from chargehand import Chargehand\nhand = Chargehand()\ncrew = hand.crew('wait', 'waiting:Wait', workers=1)\n"
    )
    (tmp_path / "waiting.py").write_text(
        "import os\nfrom pathlib import Path\nfrom chargehand import Handler\n"
        "class Wait(Handler):\n"
        "    def perform(self, job):\n"
        "        Path('begun').touch()\n"
        "        while not Path('stopping').exists():\n"
        "            job.progress()\n"
        "        return os.getppid()\n"
    )
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-m", "chargehand", "serve",
             "jobs:hand", "--port", "0"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": python_path(tmp_path)}, stdout=log, stderr=log,
        )  # fmt: skip
    with closing(Chargehand(folder=tmp_path)) as hand:
        try:
            job = hand.crew("wait", "waiting:Wait").enqueue({})
            eventually(lambda: (tmp_path / "begun").exists())
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            status = Path(f"/proc/{first}/status").read_text()
            assert re.search(r"^NSpid:\s+\d+\s+1$", status, re.MULTILINE)
            # A process of `docker exec` that outlives its parent becomes a child of process 1.
            subprocess.run(["nsenter", "--target", first, "--pid", "sh", "-c", "sleep 0 &"], check=True)
            eventually(lambda: not zombies_of(first))
            os.kill(int(first), signal.SIGTERM)
            eventually(lambda: "node stopping" in (tmp_path / "log").read_text())
            (tmp_path / "stopping").touch()
            assert process.wait(30) == 0, (tmp_path / "log").read_text()
            assert job.job().state == "done"
        finally:
            process.kill()
            process.wait()


def test_the_example_of_settings_has_what_compose_asks_for() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+):\?", (FOLDER / "compose.yaml").read_text()))
    example = (FOLDER / ".env.example").read_text()
    assert set(re.findall(r"^([A-Z_]+)=$", example, re.MULTILINE)) == asked
