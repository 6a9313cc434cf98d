"""The bridge's metrics of itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """The bridge's own series, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.groups = Counter(
            "omniwatch_notify_groups", "Webhook calls of Alertmanager, by how they were answered.",
            ["code"], registry=self.registry,
        )  # fmt: skip
        self.attempts = Counter(
            "omniwatch_notify_attempts", "Messages sent to a robot, by what became of them.",
            ["robot", "result"], registry=self.registry,
        )  # fmt: skip
        self.merged = Counter(
            "omniwatch_notify_merged", "Messages that were merged with others into one, as there were too many.",
            ["robot"], registry=self.registry,
        )  # fmt: skip
        self.given_up = Counter(
            "omniwatch_notify_given_up", "Messages that could not be delivered in time or were refused.",
            ["robot"], registry=self.registry,
        )  # fmt: skip
        self.forgotten = Counter(
            "omniwatch_notify_groups_forgotten", "Groups of alerts forgotten while they fired, there being too many.",
            registry=self.registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "omniwatch_notify_waiting", "Messages that have not left yet.",
            ["robot"], registry=self.registry,
        )  # fmt: skip
