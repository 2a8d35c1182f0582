"""Rules and board speak of metrics that there are."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHOWN = (
    *sorted((ROOT / "deploy" / "prometheus").glob("*.yml")),
    ROOT / "deploy" / "grafana" / "boards" / "ternmq.json",
)
_METRIC = re.compile(r"ternmq_[a-z0-9_]+")
_RECORDED = re.compile(r"ternmq:[a-z0-9_:]+")
_SUFFIX = re.compile(r"_(total|bucket|count|sum)$")
SERVICES = {"namesrv": "namesrv", "broker": "broker", "proxy": "proxy", "txn_checker": "txn-checker"}


def source_text() -> str:
    """Every line of ours that may name a metric."""
    files = [*(ROOT / "libs" / "tern_service").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    return "\n".join(file.read_text("utf-8") for file in files)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_every_metric_that_is_asked_for_is_exported(path: Path) -> None:
    """By its whole name, or by what stands behind the service's in a table of names."""
    source = source_text()
    for metric in sorted(set(_METRIC.findall(path.read_text("utf-8")))):
        name = _SUFFIX.sub("", metric)
        service = next((each for each in SERVICES if name.startswith(f"ternmq_{each}_")), "")
        short = name.removeprefix(f"ternmq_{service}_")
        is_known = f'"{name}"' in source or (service and f'"{short}"' in source) or metric == "ternmq_"
        assert is_known, f"{path.name} asks for {metric}, which nobody exports"


def test_every_recorded_figure_that_is_asked_for_is_recorded() -> None:
    """In records.yml."""
    records = (ROOT / "deploy" / "prometheus" / "records.yml").read_text("utf-8")
    recorded = set(re.findall(r"record: (\S+)", records))
    for path in SHOWN:
        assert set(_RECORDED.findall(path.read_text("utf-8"))) <= recorded, path.name


def test_every_alert_is_explained_to_who_is_woken_by_it() -> None:
    """In the table of docs/operations.md."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    alerts = re.findall(r"alert: (\S+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert len(alerts) == len(set(alerts)) > 10
    assert [alert for alert in alerts if alert not in page] == []


def test_the_panels_of_the_board_do_not_overlap() -> None:
    """Each cell of the grid belongs to one panel."""
    board = json.loads(SHOWN[-1].read_text("utf-8"))
    cells = [
        (x, y)
        for panel in board["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
