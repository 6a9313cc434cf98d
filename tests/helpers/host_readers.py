"""A host reader as the sidecar scrapes it."""

from __future__ import annotations

from omniwatch.host import Host, Reader


def scraped(reader: Reader, name: str) -> dict[str, float]:
    """What it says and whether it worked, by name and labels; not how long it took."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in Host({name: reader}).collect()
        for sample in family.samples
        if "duration" not in sample.name
    }
