"""The files of `omniwatch render --kubernetes`: a kustomize base, an example overlay, and values of two Helm charts. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec
import yaml

from omniwatch.bundle import render
from omniwatch.bundle.render import Files
from omniwatch.desk.kubernetes import monitors, routes, rules, workload
from omniwatch.desk.kubernetes.names import NAME, Object, image, metadata, pairs
from omniwatch.settings import Settings

BASE = PurePosixPath("base")
EXAMPLE = PurePosixPath("overlays/example")
VALUES = PurePosixPath("values")
SERVER = PurePosixPath("components/server")
OF_A_FLEET = ("fleet",)
"""Dashboards of series that a fleet's centre alone has."""
GRAFANAS_LABEL = {"grafana_dashboard": "1"}
"""What the sidecar of Grafana's chart looks for."""
HEAD = "# Rendered by `omniwatch render --kubernetes`: change omniwatch.yaml and render anew.\n"


def render_all(settings: Settings) -> dict[PurePosixPath, str]:
    """Render everything. The same settings give the same bytes. Raises UserError for settings that no pod can keep."""
    workload.refuse(settings)
    bundle = render.render(of_a_cluster(settings), is_cluster=True)
    objects = {
        **({"daemonset": workload.daemon_set(settings)} if settings.kubernetes.mode == "daemonset" else {}),
        "settings": workload.settings_map(settings),
        "service": workload.service(settings),
        "networkpolicy": workload.network_policy(settings),
        **{f"monitors/{name}": one for name, one in monitors.monitors(settings, bundle).items()},
        **{f"rules/{name}": one for name, one in rules.prometheus_rules(settings, bundle).items()},
        "alertmanagerconfig": routes.alertmanager_config(settings, bundle),
        **{f"dashboards/{name}": one for name, one in _dashboards(settings, bundle).items()},
    }
    files = {BASE / f"{name}.yaml": written(one) for name, one in objects.items()}
    files[BASE / "kustomization.yaml"] = written(
        _kustomization(resources=[f"{name}.yaml" for name in objects])
    )
    files |= {
        SERVER / "patch.yaml": written(workload.server_patch(settings)),
        SERVER / "kustomization.yaml": written(_component(settings)),
        EXAMPLE / "kustomization.yaml": written(_example(settings)),
        EXAMPLE / "server.yaml": written(_server(settings)),
        VALUES / "kube-prometheus-stack.yaml": written(_stack(bundle)),
        VALUES / "vllm-omni.yaml": written({"omniArgs": {"extraArgs": _TAP_ARGS}}),
    }
    return dict(sorted(files.items()))


def of_a_cluster(settings: Settings) -> Settings:
    """Return the settings that the rules and routes of a cluster are rendered with.

    Its own alerts are of `kubernetes.cluster`, not of a device. It has no bridge to chat robots, and its Alertmanager is the operator's.
    """
    receivers = settings.receivers
    return msgspec.structs.replace(
        settings,
        site=msgspec.structs.replace(settings.site, device=settings.kubernetes.cluster),
        fleet=msgspec.structs.replace(settings.fleet, remote_write_url="", alertmanager_urls=[]),
        receivers=msgspec.structs.replace(
            receivers,
            page_webhook_url=receivers.page_webhook_url or "",
            ticket_webhook_url=receivers.ticket_webhook_url or "",
        ),
    )


_TAP_ARGS = ["--middleware", "omniwatch.tap.Tap"]


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: a text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write each value where it stands: an alias would be one more thing to know."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def written(value: Object) -> str:
    """Return a value as the YAML of a file."""
    return HEAD + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)


def _kustomization(**content: Any) -> Object:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **content}


def _dashboards(settings: Settings, bundle: Files) -> dict[str, Object]:
    names = [path.stem for path in bundle if path.parts[0] == "dashboards" and path.stem not in OF_A_FLEET]
    return {
        name: {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                **metadata(settings, f"{NAME}-dashboard-{name}", **GRAFANAS_LABEL),
                "annotations": {"grafana_folder": settings.grafana.folder},
            },
            "data": {f"{NAME}-{name}.json": bundle[PurePosixPath(f"dashboards/{name}.json")]},
        }
        for name in names
    }


def _component(settings: Settings) -> Object:
    """Return the component that gives the Deployments of the model server the patch: an overlay names it."""
    target = {"kind": "Deployment", "labelSelector": ",".join(settings.kubernetes.server_labels)}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"path": "patch.yaml", "target": target}],
    }


def _example(settings: Settings) -> Object:
    """Return an overlay that takes the image from elsewhere and has a server with the tap."""
    name, _, tag = image(settings).rpartition(":")
    return _kustomization(
        resources=["../../base", "server.yaml"],
        components=["../../components/server"],
        images=[{"name": name, "newName": f"registry.example/{NAME}", "newTag": tag}],
    )


def _server(settings: Settings) -> Object:
    """Return a model server as an example: put in its place what your chart renders."""
    labels = pairs(settings.kubernetes.server_labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vllm-omni", "namespace": settings.kubernetes.namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [
                        {
                            "name": settings.kubernetes.server_container,
                            "image": "vllm/vllm-omni:v0.30.0",
                            "command": ["vllm", "serve", "Qwen/Qwen3-Omni-30B-A3B-Instruct", "--omni"],
                            "args": _TAP_ARGS,
                            "ports": [{"containerPort": 8000}],
                        }
                    ]
                },
            },
        },
    }


def _stack(bundle: Files) -> Object:
    """Return values for kube-prometheus-stack: the texts of messages, which an AlertmanagerConfig cannot carry."""
    return {"alertmanager": {"templateFiles": {routes.TEMPLATES.name: bundle[routes.TEMPLATES]}}}
