"""The settings of `omniwatch render --kubernetes`: where in a cluster the sidecar runs, and who watches it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from omniwatch.settings.kinds import ImageName, KeyValue, KubernetesName, Label


class Kubernetes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `omniwatch render --kubernetes` puts into a cluster. A device makes no use of it."""

    namespace: KubernetesName = "omniwatch"
    """Namespace of all objects, and of the model server's pods."""
    mode: Literal["daemonset", "sidecar"] = "daemonset"
    """`daemonset`: one sidecar on each node. `sidecar`: one in each pod of the model server, by a patch."""
    image: ImageName = ""
    """Image of the sidecar, as the nodes pull it. Empty: `localhost/omniwatch` of this version."""
    node_selector: list[KeyValue] = []
    """Labels of the nodes that run a sidecar, each `KEY=VALUE`. Empty: all nodes. Of mode `daemonset`."""
    server_labels: Annotated[list[KeyValue], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["app=vllm-omni"]
    )
    """Labels of the model server's pods, each `KEY=VALUE`: by them Prometheus finds the server's own metrics."""
    server_container: KubernetesName = "vllm"
    """Container of the model server in its pods: the patch gives it the tap."""
    release: KubernetesName = "kube-prometheus-stack"
    """Value of the label `release` that the Prometheus operator's selectors ask for."""
    monitoring_namespace: KubernetesName = "monitoring"
    """Namespace of Prometheus and Alertmanager."""
    cluster: Label = "cluster"
    """Label `device` of alerts about the monitoring itself: they are of no node."""
