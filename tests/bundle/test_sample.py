"""The sample of omniwatch.yaml: commented it says nothing, uncommented it holds, and no field of the receivers is missing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from omniwatch.bundle import check, render
from omniwatch.settings import Settings, parse
from omniwatch.settings.receivers import Channels, Mail, Notify, Receivers, Robot

SAMPLE = PurePosixPath("deploy/omniwatch.sample.yaml")
TEXT = render.render(Settings(), only=[SAMPLE])[SAMPLE]
UNCOMMENTED = re.sub(r"^#(?!#)", "", TEXT, flags=re.MULTILINE)


def test_commented_it_says_nothing():
    assert parse(TEXT) == Settings()


def test_uncommented_it_loads_and_a_person_is_told():
    found = parse(UNCOMMENTED)
    assert [str(result) for result in check.check_delivery(found)] == ["SUCCESS: delivery: omniwatch.yaml"]
    results = check.check_files(render.render(found), unit_tests=False)
    assert [str(result) for result in results if result.status is check.Status.FAILED] == []


def test_every_field_of_the_receivers_is_in_it():
    named = set(re.findall(r"(\w+):", UNCOMMENTED)) | {"page_webhook_url"}
    fields = {name for kind in (Receivers, Channels, Mail, Notify, Robot) for name in kind.__struct_fields__}
    assert fields <= named
    assert "page_webhook_url" in TEXT


def test_the_devices_own_file_has_its_name_as_a_line_to_uncomment():
    path = PurePosixPath("deploy/omniwatch.yaml")
    text = render.render(Settings(), only=[path])[path]
    assert parse(text).site.device == Settings().site.device
    assert parse(re.sub(r"^( *)# (?=device:)", r"\1", text, flags=re.MULTILINE)).site.device == "orin-7"
    named = render.render(parse('site: {device: "bus 017"}'), only=[path])[path]
    assert parse(named).site.device == "bus 017"
