"""PrometheusRule: the rules of a device, with the labels that its Prometheus adds outside of them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from omniwatch.bundle import catalogue
from omniwatch.bundle.render import Files
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes.names import NAME, Object, metadata
from omniwatch.settings import Settings

PROMETHEUS = PurePosixPath("deploy/prometheus/prometheus.yml")
OF_A_FLEET = "uplink"
"""Rules that write series for a fleet's centre. A cluster's Prometheus has the series themselves."""


def subjects(files: Files) -> list[str]:
    """Return the names of the rule files that a device's Prometheus reads, but for those of a fleet."""
    named = [PurePosixPath(one).name for one in load_yaml(files[PROMETHEUS])["rule_files"]]
    return [name.removesuffix(".rules.yaml") for name in named if not name.startswith(f"{OF_A_FLEET}.")]


def added(settings: Settings, alert: str) -> dict[str, str]:
    """Return the labels of an alert beyond those of its rule on a device.

    `fault` is there by alert_relabel_configs; `site`, `model` and `release` are external labels. The operator lets an
    AlertmanagerConfig route alerts of its own `namespace` alone.
    """
    faults = {name: fault for fault, names in catalogue.by_fault(catalogue.load()).items() for name in names}
    fleet = settings.fleet
    return {
        **({"fault": faults[alert]} if alert in faults else {}),
        "site": fleet.site,
        "model": fleet.model,
        "release": fleet.release,
        "namespace": settings.kubernetes.namespace,
    }


def prometheus_rules(settings: Settings, files: Files) -> dict[str, Object]:
    """Return a PrometheusRule of each subject, by the subject's name."""
    return {subject: _object(settings, files, subject) for subject in subjects(files)}


def _object(settings: Settings, files: Files, subject: str) -> Object:
    whole = load_yaml(files[PurePosixPath(f"alerts/{subject}.rules.yaml")])
    for group in whole["groups"]:
        group["rules"] = [_labelled(settings, rule) for rule in group["rules"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(settings, f"{NAME}-{subject}"),
        "spec": whole,
    }


def _labelled(settings: Settings, rule: dict[str, Any]) -> dict[str, Any]:
    if "alert" not in rule:
        return rule
    return {**rule, "labels": {**rule.get("labels", {}), **added(settings, rule["alert"])}}
