"""ServiceMonitor and PodMonitor: the jobs of a device's prometheus.yml, found by the operator."""

from __future__ import annotations

from typing import Any

from omniwatch.bundle.render import Files
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes.names import NAME, PORT_NAME, SIDECAR, Object, metadata, pairs
from omniwatch.desk.kubernetes.rules import PROMETHEUS
from omniwatch.settings import Settings

NODE = "__meta_kubernetes_pod_node_name"
OPERATED = {"prometheus": 9090, "alertmanager": 9093}
"""What the operator runs: its Service has the label `operated-NAME`, and the pod this port."""
NOT_OF_THE_SERIES = "pod|container|endpoint|service"
"""What the operator adds to each target. An alert with the name of its pod would begin anew with each pod."""


def monitors(settings: Settings, files: Files) -> dict[str, Object]:
    """Return a monitor of each job that a device's Prometheus scrapes and a cluster has, by the job's name."""
    config = load_yaml(files[PROMETHEUS])
    found: dict[str, Object] = {}
    for job in config["scrape_configs"]:
        name = job["job_name"]
        endpoint = _endpoint(job, config["global"])
        if name == "omniwatch":
            found[name] = _service_monitor(
                settings, name, {**endpoint, "port": PORT_NAME}, SIDECAR, settings.kubernetes.namespace
            )
        elif name == "model_server":
            found[name] = _of_server(settings, endpoint)
        elif name in OPERATED:
            found[name] = _service_monitor(
                settings,
                name,
                {
                    **endpoint,
                    "targetPort": OPERATED[name],
                    "relabelings": _relabelings(name, settings.kubernetes.cluster),
                },
                {f"operated-{name}": "true"},
                settings.kubernetes.monitoring_namespace,
            )
    return found


def _endpoint(job: dict[str, Any], defaults: dict[str, Any]) -> Object:
    relabel = [_camel(one) for one in job.get("metric_relabel_configs", ())]
    return {
        "interval": job.get("scrape_interval", defaults["scrape_interval"]),
        "scrapeTimeout": job.get("scrape_timeout", defaults["scrape_timeout"]),
        "relabelings": _relabelings(job["job_name"]),
        **({"metricRelabelings": relabel} if relabel else {}),
    }


def _relabelings(job: str, device: str = "") -> list[Object]:
    """Return how a target gets the labels that it has on a device: a `device` that is given, or else its node's name."""
    of_node = [
        {"sourceLabels": [NODE], "targetLabel": "device"},
        {"sourceLabels": [NODE], "targetLabel": "instance"},
        {"action": "labeldrop", "regex": NOT_OF_THE_SERIES},
    ]
    return [
        {"targetLabel": "job", "replacement": job},
        *([{"targetLabel": "device", "replacement": device}] if device else of_node),
    ]


def _camel(rule: dict[str, Any]) -> Object:
    head = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    return {head.get(key, key): value for key, value in rule.items()}


def _service_monitor(
    settings: Settings, job: str, endpoint: Object, labels: dict[str, str], namespace: str
) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(settings, NAME if job == NAME else f"{NAME}-{job}"),
        "spec": {
            "selector": {"matchLabels": labels},
            "namespaceSelector": {"matchNames": [namespace]},
            "endpoints": [endpoint],
        },
    }


def _of_server(settings: Settings, endpoint: Object) -> Object:
    port = int(settings.site.model_server.rpartition(":")[2])
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(settings, f"{NAME}-model-server"),
        "spec": {
            "selector": {"matchLabels": pairs(settings.kubernetes.server_labels)},
            "namespaceSelector": {"matchNames": [settings.kubernetes.namespace]},
            "podMetricsEndpoints": [{**endpoint, "portNumber": port}],
        },
    }
