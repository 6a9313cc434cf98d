"""The objects: against the schemas of Kubernetes and of the operator, and what each has to say."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from helpers.clusters import EVERY_SETTINGS, FULL, in_base, objects
from helpers.paths import CLONE
from omniwatch.desk.kubernetes import check, files, workload
from omniwatch.settings import Settings, parse
from omniwatch.system.errors import UserError

SCHEMAS = {path.stem: json.loads(path.read_bytes()) for path in (CLONE / "tests/data/crds").glob("*.json")}
BASE = PurePosixPath("base")

each_settings = pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)


def closed(schema: Any) -> Any:
    """Return a schema that refuses a field that it does not name, as the API server's strict validation does."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(inner) for key, inner in schema.items()}
    if "properties" in found and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def faults(one: Any) -> Iterator[str]:
    """Yield what the operator's schema has against an object; its metadata is the API server's to judge."""
    known = SCHEMAS[one["kind"]]
    assert one["apiVersion"] == known["apiVersion"]
    judged = {**known["schema"], "properties": {**known["schema"]["properties"], "metadata": {}}}
    for error in jsonschema.Draft202012Validator(closed(judged)).iter_errors(one):
        yield error.message


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.32", "1.35", "1.37"])
@each_settings
def test_kubernetes_takes_each_of_its_own_objects(settings: Settings, version: str) -> None:
    found = objects(settings)
    mine = [one for path, one in found.items() if one.get("kind") and one["kind"] not in SCHEMAS]
    core = [one for one in mine if one["kind"] not in ("Kustomization", "Component")]
    assert {"ConfigMap", "Service", "NetworkPolicy", "Deployment"} <= {one["kind"] for one in core}
    for one in core:
        if one["metadata"]["name"] == "any":
            continue  # the patch: judged with the server that it changes (test_kustomize.py)
        kubernetes_validate.validate(one, version, strict=True)


def test_kubernetes_schema_refuses_what_it_does_not_know() -> None:
    (one,) = [one for one in in_base(Settings()).values() if one["kind"] == "DaemonSet"]
    one["spec"]["template"]["spec"]["nonsense"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, "1.37", strict=True)


@each_settings
def test_the_operator_takes_each_of_its_objects(settings: Settings) -> None:
    found = [one for one in in_base(settings).values() if one["kind"] in SCHEMAS]
    assert {one["kind"] for one in found} == SCHEMAS.keys()
    for one in found:
        assert list(faults(one)) == [], one["metadata"]["name"]
        # The routes below the first are of any shape to the schema: each is held against the first's.
        for route in one["spec"].get("route", {}).get("routes", ()):
            assert list(faults({**one, "spec": {"route": route}})) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_the_operators_schema_refuses_what_it_does_not_know(kind: str) -> None:
    (one, *_) = [one for one in in_base(parse(FULL)).values() if one["kind"] == kind]
    changed = copy.deepcopy(one)
    changed["spec"]["nonsense"] = 1
    assert list(faults(changed))


@each_settings
def test_the_same_settings_give_the_same_bytes_and_all_is_well(settings: Settings) -> None:
    rendered = files.render_all(settings)
    assert files.render_all(settings) == rendered
    wrong = [str(one) for one in check.check_files(rendered) if one.status is check.Status.FAILED]
    assert wrong == []


def test_an_alert_has_the_node_as_its_device_and_outlives_its_pod() -> None:
    for name in ("omniwatch", "model_server"):
        spec = in_base(Settings())[BASE / f"monitors/{name}.yaml"]["spec"]
        (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
        by_label = {one.get("targetLabel"): one for one in endpoint["relabelings"]}
        assert by_label["job"]["replacement"] == name
        assert by_label["device"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
        assert {"action": "labeldrop", "regex": "pod|container|endpoint|service"} in endpoint["relabelings"]


def test_what_is_scraped_is_what_a_device_scrapes_as_often() -> None:
    found = in_base(parse("alerts: {scrape_interval_s: 2}"))
    intervals = {
        path.stem: (one["spec"].get("endpoints") or one["spec"]["podMetricsEndpoints"])[0]["interval"]
        for path, one in found.items()
        if path.parent.name == "monitors"
    }
    assert intervals == {"omniwatch": "2s", "model_server": "5s", "prometheus": "5s", "alertmanager": "5s"}
    assert BASE / "monitors/model_server.yaml" not in in_base(parse('site: {model_server: ""}'))


def test_the_sidecar_is_confined_and_reaches_nobody() -> None:
    found = in_base(Settings())
    pod = found[BASE / "daemonset.yaml"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == workload.CONFINED
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {
        "/var/lib/omniwatch"
    }
    (init,) = pod["initContainers"]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    policy = found[BASE / "networkpolicy.yaml"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy


def test_in_the_servers_pod_the_server_is_reached_as_before() -> None:
    policy = in_base(parse("kubernetes: {mode: sidecar}"))[BASE / "networkpolicy.yaml"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert {"ports": [{"port": 8000, "protocol": "TCP"}]} in policy["ingress"]


def test_the_settings_of_the_pod_are_those_that_differ_and_hold_no_address_of_others() -> None:
    settings = parse(FULL)
    text = in_base(settings)[BASE / "settings.yaml"]["data"]["omniwatch.yaml"]
    kept = parse(text)
    assert (kept.alerts, kept.tap, kept.sources) == (settings.alerts, settings.tap, settings.sources)
    assert kept.site.hosts == ["omniwatch", "omniwatch.speech", "omniwatch.speech.svc"]
    assert "example" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: ['journal:qwen3-omni.service']", "sources: journal:qwen3-omni.service: a pod follows"),
        ("sources: ['tail:/var/log/events.jsonl']", "sources: tail:/var/log/events.jsonl: a pod follows"),
        (
            "notify: {robots: [{kind: feishu, url_file: /a}]}",
            "notify.robots: the bridge to chat robots is not",
        ),
    ],
)
def test_what_no_pod_can_keep_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=r"^" + said) as raised:
        files.render_all(parse(text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "{namespace: Speech}",
        "{image: 'a b'}",
        "{node_selector: [gpu]}",
        "{server_labels: []}",
        "{mode: both}",
    ],
)
def test_settings_that_no_cluster_takes_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"kubernetes\."):
        parse(f"kubernetes: {text}")


def test_a_folder_that_was_changed_by_hand_is_found_out() -> None:
    rendered = files.render_all(Settings())

    def wrong(**changes: str) -> str:
        changed = {PurePosixPath(path.replace("__", "/") + ".yaml"): text for path, text in changes.items()}
        assert changed.keys() <= rendered.keys() | {PurePosixPath("base/more.yaml")}
        results = check.check_files({**rendered, **changed})
        return "\n".join(str(one) for one in results if one.status is check.Status.FAILED)

    settings = rendered[BASE / "settings.yaml"]
    assert "is no name that Kubernetes takes" in wrong(
        base__settings=settings.replace("name: omni", "name: Omni")
    )
    big = settings.replace("omniwatch.yaml: |", f"big: {'x' * check.MOST_BYTES}\n  omniwatch.yaml: |")
    assert "bytes of data; a ConfigMap takes 1048576" in wrong(base__settings=big)
    rules = rendered[BASE / "rules/streaming.yaml"]
    unrouted = rules.replace("        namespace: omniwatch\n", "")
    assert "CodecDrift: without the label namespace: omniwatch no route" in wrong(
        base__rules__streaming=unrouted
    )
    assert "more.yaml: not among the resources" in wrong(base__more=settings)
    assert "not of the shape" in wrong(base__settings="metadata: [1]")
    assert "YAML: base/settings.yaml" in wrong(base__settings="[")


@pytest.mark.programs
def test_tools_read_the_rules_and_routes_of_a_folder() -> None:
    rendered = files.render_all(parse(FULL))
    for path, old, new, tool in (
        (BASE / "rules/streaming.yaml", "> 60\n", "> > 60\n", "promtool check rules"),
        (BASE / "alertmanagerconfig.yaml", "receiver: ticket", "receiver: nowhere", "amtool check-config"),
    ):
        assert old in rendered[path]
        results = check.check_files({**rendered, path: rendered[path].replace(old, new)})
        assert [one.check for one in results if one.status is check.Status.FAILED] == [tool]
