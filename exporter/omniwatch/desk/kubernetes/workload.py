"""The sidecar's own objects: its settings, DaemonSet or patch, Service and NetworkPolicy, and the patch that gives a server the tap."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec
import yaml

from omniwatch.desk.kubernetes.names import (
    NAME,
    PORT,
    PORT_NAME,
    SIDECAR,
    UID,
    Object,
    image,
    metadata,
    pairs,
)
from omniwatch.settings import Settings
from omniwatch.sources.spec import path_of
from omniwatch.system.errors import UserError

SPOOL = PurePosixPath("/run/omniwatch")
STATE = PurePosixPath("/var/lib/omniwatch")
SETTINGS = PurePosixPath("/etc/omniwatch")
TAP = PurePosixPath("/tap")
CGROUPS = PurePosixPath("/sys/fs/cgroup")
SPOOL_SIZE = "64Mi"
"""Memory of the events in mode `sidecar`: three files of 16 MiB and the beginning of a fourth."""
OF_OTHERS = ("fleet", "grafana", "kubernetes", "notify", "receivers")
"""Settings that the sidecar does not read. A webhook's address may hold a token."""
RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def refuse(settings: Settings) -> None:
    """Raise UserError for settings that no pod can keep."""
    for spec in settings.sources:
        path = path_of(spec)
        if path is None or not PurePosixPath(path).is_relative_to(SPOOL):
            raise UserError(
                f"sources: {spec}: a pod follows tail:{SPOOL}/FILE, which it shares with the server"
            )
    if settings.notify.robots:
        raise UserError(
            "notify.robots: the bridge to chat robots is not rendered for Kubernetes; set receivers.page_webhook_url to one that runs"
        )


def settings_map(settings: Settings) -> Object:
    """Return the ConfigMap with the sidecar's omniwatch.yaml: what differs from the defaults."""
    service, namespace = NAME, settings.kubernetes.namespace
    hosts = [service, f"{service}.{namespace}", f"{service}.{namespace}.svc", *settings.site.hosts]
    site = msgspec.structs.replace(settings.site, hosts=list(dict.fromkeys(hosts)))
    content = _differing(msgspec.structs.replace(settings, site=site), Settings())
    kept = {key: value for key, value in content.items() if key not in OF_OTHERS}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(settings),
        "data": {"omniwatch.yaml": yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)},
    }


def _differing(one: msgspec.Struct, defaults: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in one.__struct_fields__:
        value, default = getattr(one, name), getattr(defaults, name)
        if value != default:
            is_group = isinstance(value, msgspec.Struct) and isinstance(default, msgspec.Struct)
            found[name] = _differing(value, default) if is_group else msgspec.to_builtins(value)
    return found


def service(settings: Settings) -> Object:
    """Return the Service of all sidecars, without an address of its own: Prometheus asks each pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(settings, **SIDECAR),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": SIDECAR,
            "ports": [{"name": PORT_NAME, "port": PORT, "targetPort": PORT}],
        },
    }


def network_policy(settings: Settings) -> Object:
    """Return who may reach a sidecar: Prometheus. In the server's pod, any may reach the server's port as before."""
    monitoring = {"kubernetes.io/metadata.name": settings.kubernetes.monitoring_namespace}
    ingress: list[Object] = [
        {
            "from": [{"namespaceSelector": {"matchLabels": monitoring}}],
            "ports": [{"port": PORT, "protocol": "TCP"}],
        }
    ]
    is_own_pod = settings.kubernetes.mode == "daemonset"
    if not is_own_pod and settings.site.model_server:
        port = int(settings.site.model_server.rpartition(":")[2])
        ingress.append({"ports": [{"port": port, "protocol": "TCP"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(settings),
        "spec": {
            "podSelector": {"matchLabels": SIDECAR},
            "policyTypes": ["Ingress", "Egress"] if is_own_pod else ["Ingress"],
            "ingress": ingress,
        },
    }


def daemon_set(settings: Settings) -> Object:
    """Return the DaemonSet: a sidecar on each node that is selected."""
    selector = pairs(settings.kubernetes.node_selector)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(settings),
        "spec": {
            "selector": {"matchLabels": SIDECAR},
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": NAME, **SIDECAR}},
                "spec": {
                    "automountServiceAccountToken": False,
                    **({"nodeSelector": selector} if selector else {}),
                    "initContainers": [_owner_of_state(settings)],
                    "containers": [_sidecar(settings, (CGROUPS,))],
                    "volumes": [
                        _host_path("events", SPOOL),
                        _host_path("state", STATE),
                        _host_path("cgroups", CGROUPS, "Directory"),
                        _config(),
                    ],
                },
            },
        },
    }


def server_patch(settings: Settings) -> Object:
    """Return the patch of a Deployment of the model server: the tap, the place for the events and, in mode `sidecar`, the sidecar."""
    is_sidecar = settings.kubernetes.mode == "sidecar"
    memory = {"name": "omniwatch-events", "emptyDir": {"medium": "Memory", "sizeLimit": SPOOL_SIZE}}
    beside = [
        {"name": "omniwatch-state", "emptyDir": {}},
        {**_config(), "name": "omniwatch-settings"},
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {
            "template": {
                **({"metadata": {"labels": SIDECAR}} if is_sidecar else {}),
                "spec": {
                    "initContainers": [
                        _tap(settings),
                        *([_native(_sidecar(settings, (), "omniwatch-"))] if is_sidecar else ()),
                    ],
                    "containers": [
                        {
                            "name": settings.kubernetes.server_container,
                            "env": [
                                {"name": "PYTHONPATH", "value": str(TAP)},
                                {"name": "OMNIWATCH_EVENTS", "value": str(SPOOL / "events.jsonl")},
                                *_ear(settings),
                            ],
                            "volumeMounts": [
                                {"name": "omniwatch-tap", "mountPath": str(TAP), "readOnly": True},
                                {"name": "omniwatch-events", "mountPath": str(SPOOL)},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "omniwatch-tap", "emptyDir": {}},
                        memory if is_sidecar else _host_path("omniwatch-events", SPOOL),
                        *(beside if is_sidecar else ()),
                    ],
                },
            }
        },
    }


def _ear(settings: Settings) -> list[Object]:
    return [] if settings.tap.ear == "auto" else [{"name": "OMNIWATCH_EAR", "value": settings.tap.ear}]


def _tap(settings: Settings) -> Object:
    return {
        "name": "omniwatch-tap",
        "image": image(settings),
        "args": ["tap-path", "--copy", str(TAP)],
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "omniwatch-tap", "mountPath": str(TAP)}],
    }


def _native(container: Object) -> Object:
    """Return a container as a native sidecar: it starts before the server and ends after it (Kubernetes 1.29)."""
    return {**container, "restartPolicy": "Always"}


def _owner_of_state(settings: Settings) -> Object:
    """Return what gives a node's directory for state, which the kubelet makes as root's, to the sidecar's user."""
    return {
        "name": "owner-of-state",
        "image": image(settings),
        "command": ["chown", f"{UID}:{UID}", str(STATE)],
        "securityContext": {
            **CONFINED,
            "runAsNonRoot": False,
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
        },
        "volumeMounts": [{"name": "state", "mountPath": str(STATE)}],
    }


def _sidecar(settings: Settings, more: tuple[PurePosixPath, ...], prefix: str = "") -> Object:
    return {
        "name": NAME,
        "image": image(settings),
        "args": [
            "exporter",
            f"--config.file={SETTINGS / 'omniwatch.yaml'}",
            f"--web.listen-address=0.0.0.0:{PORT}",
        ],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/-/healthy", "port": PORT_NAME}, "periodSeconds": 10},
        # No readiness: in the server's pod it would take the server out of its Service.
        "resources": RESOURCES,
        "securityContext": CONFINED,
        "volumeMounts": [
            {"name": f"{prefix}events", "mountPath": str(SPOOL), "readOnly": True},
            {"name": f"{prefix}state", "mountPath": str(STATE)},
            {"name": f"{prefix}settings", "mountPath": str(SETTINGS), "readOnly": True},
            *({"name": "cgroups", "mountPath": str(path), "readOnly": True} for path in more),
        ],
    }


def _host_path(name: str, path: PurePosixPath, kind: str = "DirectoryOrCreate") -> Object:
    return {"name": name, "hostPath": {"path": str(path), "type": kind}}


def _config() -> Object:
    return {"name": "settings", "configMap": {"name": NAME}}
