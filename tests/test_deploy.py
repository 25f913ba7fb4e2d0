"""The files in deploy/: what they name exists."""

import json
import re
from typing import Any

import pytest
import yaml

from chargehand import Chargehand
from chargehand.settings.layers import read
from paths import ROOT

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
