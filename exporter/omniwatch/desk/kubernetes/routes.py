"""AlertmanagerConfig: the routes, receivers and silences of a device's alertmanager.yml, and back again."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from omniwatch.bundle.render import Files
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.kubernetes.names import SECRET, Object, metadata
from omniwatch.settings import Settings

CONFIG = PurePosixPath("deploy/alertmanager/alertmanager.yml")
TEMPLATES = PurePosixPath("deploy/alertmanager/omniwatch.tmpl")
_MATCHER = re.compile(r'(?P<name>\w+)(?P<type>=~|!~|!=|=)"(?P<value>[^"]*)"')
_KEYS = {
    "group_by": "groupBy",
    "group_wait": "groupWait",
    "group_interval": "groupInterval",
    "repeat_interval": "repeatInterval",
    "send_resolved": "sendResolved",
    "title_link": "titleLink",
    "mrkdwn_in": "mrkdwnIn",
    "source_matchers": "sourceMatch",
    "target_matchers": "targetMatch",
    "webhook_configs": "webhookConfigs",
    "pagerduty_configs": "pagerdutyConfigs",
    "slack_configs": "slackConfigs",
    "email_configs": "emailConfigs",
    "links": "pagerDutyLinkConfigs",
}
_SECRETS = {"routing_key_file": "routingKey", "api_url_file": "apiURL"}
_MAIL = {
    "smtp_smarthost": "smarthost",
    "smtp_from": "from",
    "smtp_require_tls": "requireTLS",
    "smtp_auth_username": "authUsername",
    "smtp_auth_password_file": "authPassword",
}
"""Of Alertmanager's `global`: an AlertmanagerConfig says it with each receiver."""
_IN_MAIL = {key.removeprefix("smtp_"): of for key, of in _MAIL.items()}
_BACK = {camel: snake for snake, camel in {**_KEYS, **_SECRETS, **_IN_MAIL}.items()}


def alertmanager_config(settings: Settings, files: Files) -> Object:
    """Return the AlertmanagerConfig of a rendered bundle."""
    config = load_yaml(files[CONFIG])
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": metadata(settings),
        "spec": {
            "route": _there(config["route"]),
            "receivers": [_receiver(one, config.get("global", {})) for one in config["receivers"]],
            "inhibitRules": [_there(one) for one in config["inhibit_rules"]],
        },
    }


def as_alertmanager(config: Object) -> dict[str, Any]:
    """Return what the operator makes of an AlertmanagerConfig: Alertmanager's own form.

    It adds a matcher on the object's namespace to the route and to both sides of each silence. A secret is named by the file of its
    key, as the operator would have put its content.
    """
    namespace = f'namespace="{config["metadata"]["namespace"]}"'
    spec = config["spec"]
    route = _back(spec["route"])
    inhibit = [_back(one) for one in spec["inhibitRules"]]
    for one in inhibit:
        for side in ("source_matchers", "target_matchers"):
            one[side] = [*one[side], namespace]
    return {
        "templates": [TEMPLATES.name],
        "route": {
            "receiver": "nobody",
            "routes": [{**route, "matchers": [*route.get("matchers", ()), namespace], "continue": True}],
        },
        "inhibit_rules": inhibit,
        "receivers": [{"name": "nobody"}, *(_back(one) for one in spec["receivers"])],
    }


def _receiver(receiver: dict[str, Any], defaults: dict[str, Any]) -> Object:
    found: Object = _there(receiver)
    for mail in found.get("emailConfigs", ()):
        for key, name in _MAIL.items():
            if key in defaults:
                value = defaults[key]
                mail[name] = _secret(value) if key.endswith("_file") else value
    return found


def _secret(path: str) -> Object:
    return {"name": SECRET, "key": PurePosixPath(path).name}


def _there(value: Any) -> Any:
    """Turn Alertmanager's form into the operator's."""
    if isinstance(value, list):
        return [_there(one) for one in value]
    if not isinstance(value, dict):
        return value
    found: Object = {}
    key: str
    for key, inner in value.items():
        if key in _SECRETS:
            found[_SECRETS[key]] = _secret(inner)
        elif key in ("matchers", "source_matchers", "target_matchers"):
            found[_KEYS.get(key, key)] = [_matcher(one) for one in inner]
        elif key in ("details", "headers"):
            found[key] = [{"key": name, "value": text} for name, text in inner.items()]
        elif key == "links":
            found[_KEYS[key]] = [{"href": one["href"], "alt": one["text"]} for one in inner]
        else:
            found[_KEYS.get(key, key)] = _there(inner)
    return found


def _matcher(text: str) -> Object:
    parts = _MATCHER.fullmatch(text)
    assert parts, text
    return {"name": parts["name"], "matchType": parts["type"], "value": parts["value"]}


def _back(value: Any) -> Any:
    """Turn the operator's form into Alertmanager's."""
    if isinstance(value, list):
        return [_back(one) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    key: str
    for key, inner in value.items():
        name = _BACK.get(key, key)
        if isinstance(inner, dict) and inner.keys() == {"name", "key"}:
            found[name] = f"/{inner['name']}/{inner['key']}"
        elif key in ("matchers", "sourceMatch", "targetMatch"):
            found[name] = [f'{one["name"]}{one["matchType"]}"{one["value"]}"' for one in inner]
        elif key in ("details", "headers"):
            found[name] = {one["key"]: one["value"] for one in inner}
        elif key == "pagerDutyLinkConfigs":
            found[name] = [{"href": one["href"], "text": one["alt"]} for one in inner]
        else:
            found[name] = _back(inner)
    return found
