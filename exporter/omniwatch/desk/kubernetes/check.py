"""Check rendered objects of Kubernetes: names, sizes, and, turned back into the bundle's files, rules, routes and dashboards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from omniwatch.bundle import check
from omniwatch.bundle.check import Result, Status
from omniwatch.bundle.render import Files
from omniwatch.desk.kubernetes import files, routes
from omniwatch.desk.kubernetes.names import NAME, Object
from omniwatch.system import user_yaml

KUSTOMIZATION = files.BASE / "kustomization.yaml"
MOST_BYTES = 2**20
"""Bytes of a ConfigMap's data that the API server takes."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
NAME_LENGTH = 253


def check_folder(directory: Path) -> list[Result]:
    """Check what was rendered into a folder. What is wrong is in the results; raises OSError."""
    paths = [path for path in sorted(directory.rglob("*.yaml")) if path.is_file() and not path.is_symlink()]
    return _check(
        {PurePosixPath(path.relative_to(directory)): partial(user_yaml.load, path) for path in paths}
    )


def check_files(rendered: Files) -> list[Result]:
    """As `check_folder`, of files before they are anywhere."""
    return _check({path: partial(user_yaml.parse, text) for path, text in rendered.items()})


def _check(read: Mapping[PurePosixPath, Callable[[], Any]]) -> list[Result]:
    results: list[Result] = []
    objects: dict[PurePosixPath, Object] = {}
    for path, load in read.items():
        try:
            objects[path] = msgspec.convert(load(), Object)
        except ValueError as error:
            results.append(Result(Status.FAILED, "YAML", str(path), " ".join(str(error).split())))
    if results:
        return results
    for path, one in objects.items():
        if path.parts[0] == files.BASE.name and path != KUSTOMIZATION:
            try:
                wrong = list(_faults(one))
            except (AttributeError, KeyError, TypeError):
                wrong = ["not of the shape in which it was rendered"]
            results += [Result(Status.FAILED, "object", str(path), fault) for fault in wrong] or [
                Result(Status.OK, "object", str(path))
            ]
    results += _resources(objects)
    if check.exit_code(results):
        return results
    return [*results, *check.check_files(bundle_of(objects), unit_tests=False, whole=False)]


def _faults(one: Object) -> Iterator[str]:
    name = str(one.get("metadata", {}).get("name", ""))
    if len(name) > NAME_LENGTH or not _NAME.fullmatch(name):
        yield f'metadata.name: "{name}" is no name that Kubernetes takes'
    if one.get("kind") == "ConfigMap":
        size = sum(len(key.encode()) + len(str(text).encode()) for key, text in one.get("data", {}).items())
        if size > MOST_BYTES:
            yield f"{size} bytes of data; a ConfigMap takes {MOST_BYTES}"
    if one.get("kind") == "PrometheusRule":
        namespace = one["metadata"].get("namespace")
        for group in one.get("spec", {}).get("groups", ()):
            for rule in group.get("rules", ()):
                if "alert" in rule and rule.get("labels", {}).get("namespace") != namespace:
                    yield f"{rule['alert']}: without the label namespace: {namespace} no route of the AlertmanagerConfig takes it"


def _resources(objects: dict[PurePosixPath, Object]) -> Iterator[Result]:
    """Hold the base's list of resources against the files that are there."""
    named = set(objects.get(KUSTOMIZATION, {}).get("resources", ()))
    there = {
        str(path.relative_to(files.BASE))
        for path in objects
        if path.parts[0] == files.BASE.name and path != KUSTOMIZATION
    }
    for name in sorted(named - there):
        yield Result(Status.FAILED, "kustomize", str(KUSTOMIZATION), f"{name}: not there")
    for name in sorted(there - named):
        yield Result(Status.FAILED, "kustomize", str(KUSTOMIZATION), f"{name}: not among the resources")


def bundle_of(objects: dict[PurePosixPath, Object]) -> dict[PurePosixPath, str]:
    """Return the files of a bundle that these objects stand for: rules, routes with their texts, dashboards."""
    found: dict[PurePosixPath, str] = {}
    for path, one in objects.items():
        if one.get("kind") == "PrometheusRule":
            found[PurePosixPath(f"alerts/{path.stem}.rules.yaml")] = files.written(one["spec"])
        elif one.get("kind") == "AlertmanagerConfig":
            found[routes.CONFIG] = files.written(routes.as_alertmanager(one))
        elif one.get("kind") == "ConfigMap" and path.parent.name == "dashboards":
            for name, text in one["data"].items():
                found[PurePosixPath("dashboards", name.removeprefix(f"{NAME}-"))] = text
    texts = objects.get(files.VALUES / "kube-prometheus-stack.yaml", {}).get("alertmanager", {})
    found |= {routes.TEMPLATES.parent / name: text for name, text in texts.get("templateFiles", {}).items()}
    return found
