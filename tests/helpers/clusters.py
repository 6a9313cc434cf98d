"""What `omniwatch render --kubernetes` writes, for tests: its objects, and the unit tests of the rules with the labels that they gain."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from helpers.bundles import LINKED
from omniwatch.bundle import render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes import check, files, rules
from omniwatch.settings import Settings, parse

FULL = """
kubernetes:
  namespace: speech
  mode: sidecar
  image: registry.example:5000/team/omniwatch:0.1.0
  node_selector: [nvidia.com/gpu.present=true]
  server_labels: [app.kubernetes.io/name=vllm, tier=speech]
fleet: {site: "north 2", model: agx, release: "7"}
tap: {ear: sent}
alerts: {network_pages: false, scrape_interval_s: 2}
sources: ["tail:/run/omniwatch/events.jsonl"]
receivers:
  page_webhook_url: https://pager.example/hook
  watchdog_webhook_url: https://switch.example/cluster
  page:
    pagerduty_routing_key_file: /etc/omniwatch/secrets/pagerduty
    slack_api_url_file: /etc/omniwatch/secrets/slack
    slack_channel: "#speech"
    email_to: on-call@example.org
  ticket: {email_to: team@example.org}
  mail: {smarthost: "mail.example.org:587", username: omniwatch, password_file: /etc/omniwatch/secrets/mail}
"""
EVERY_SETTINGS = {"defaults": LINKED, "full": parse(FULL)}


def objects(settings: Settings) -> dict[PurePosixPath, Any]:
    """Return each rendered file, read."""
    return {path: load_yaml(text) for path, text in files.render_all(settings).items()}


def in_base(settings: Settings) -> dict[PurePosixPath, Any]:
    """Return the objects of the base."""
    return {
        path: one
        for path, one in objects(settings).items()
        if path.parts[0] == "base" and path != check.KUSTOMIZATION
    }


def unrolled(directory: Path, settings: Settings) -> Path:
    """Write the bundle's files that the objects stand for, and beside the rules their unit tests, and return where they are.

    The unit tests are the device's own, with the labels that each alert has more.
    """
    render.write(check.bundle_of(objects(settings)), directory)
    device = render.render(files.of_a_cluster(settings), is_cluster=True)
    for subject in rules.subjects(device):
        whole = load_yaml(device[PurePosixPath(f"alerts/{subject}.test.yaml")])
        for test in whole["tests"]:
            for case in test.get("alert_rule_test", ()):
                for alert in case["exp_alerts"]:
                    alert["exp_labels"] |= rules.added(settings, case["alertname"])
        (directory / f"alerts/{subject}.test.yaml").write_text(json.dumps(whole))
    return directory
