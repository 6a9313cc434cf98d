"""The live page in a real Chromium, through a real sidecar."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import pytest

from helpers.sidecars import write
from helpers.waiting import wait_until
from helpers.web_files import hashed
from omniwatch import events as ev
from omniwatch.settings import Settings
from suites.browser.sidecar import OMNIWATCH, Sidecar

pytestmark = pytest.mark.programs

FIRES_S = 60.0
"""Seconds within which a scenario's rule fires: its `for`, an evaluation, and the time that its fault takes to show."""
SLACK_MS = 6.0
"""By how much drift moves within the second between the page's sample and a scrape."""
MINUS = str.maketrans("−", "-")


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def is_live(page: Any) -> Any:
    page.locator("#live").wait_for(state="visible")
    return page


def number(text: str) -> float:
    return float(re.search(r"-?[\d.]+", text.translate(MINUS))[0])


def cell(page: Any, head: str, row: int = 0) -> Any:
    return page.locator(f"#listeners tr >> nth={row}").locator(f"td[data-head='{head}']")


def held(sidecar: Sidecar, series: str, shown: Any) -> bool:
    """Whether what the page shows lies between two scrapes, one before and one after it."""
    before, text, after = sidecar.samples(), shown(), sidecar.samples()
    ends = [samples[series] for samples in (before, after) if series in samples]
    if len(ends) < 2 or not re.search(r"\d", text):
        return False
    return min(ends) - SLACK_MS <= number(text) <= max(ends) + SLACK_MS


@pytest.mark.parametrize(
    ("scenario", "rules"),
    [
        ("overload", {"TokenRTT"}),
        ("reconnect-jump", {"CodecDrift"}),
    ],
)
def test_a_fault_is_in_the_state_line_in_the_rows_and_on_the_curves(
    scenario, rules, sidecars, look, violations
) -> None:
    sidecar = sidecars[scenario]
    page = is_live(look(sidecar.url))
    (rule,) = rules
    state, row = page.locator("#sentence"), page.locator("#listeners tr").first
    expect(state).to_have_class("suffers", timeout=FIRES_S * 1000)
    expect(row).to_contain_text(f"{rule} firing", timeout=FIRES_S * 1000)
    expect(state).to_contain_text("would fire since")
    # What is read out is the state line, without its sign.
    assert page.get_by_role("status").first.inner_text() in state.inner_text()

    settings = Settings().alerts
    for name, level in (("drift", settings.drift_page_ms), ("rtt", settings.rtt_page_ms)):
        curve = page.locator(f"#{name}-curve")
        assert curve.get_attribute("data-threshold") == f"{level:g}"
        expect(curve).to_have_attribute("data-series", "0")
    curve = page.locator("#drift-curve" if rule == "CodecDrift" else "#rtt-curve")
    expect(curve).to_have_attribute("data-marks", re.compile("^(pending )+firing$"))

    drift, rtt = 'omni_codec_drift_ms{stream="0"}', 'omni_token_rtt_ms{stream="0",vantage="server"}'
    for series, head, readout in ((drift, "Drift", "#drift-readout"), (rtt, "Round trip", "#rtt-readout")):
        wait_until(lambda s=series, h=head: held(sidecar, s, lambda: cell(page, h).inner_text()), what=series)
        last = page.locator(readout)
        wait_until(
            lambda s=series, r=last: held(sidecar, s, lambda: r.inner_text().split("#0")[1]), what=readout
        )
    assert violations(page) == []


def test_a_stall_is_said_and_its_gap_is_a_gap(sidecars, look, violations) -> None:
    page = is_live(look(sidecars["stall"].url))
    expect(page.locator("#sentence")).to_have_class("suffers", timeout=FIRES_S * 1000)
    expect(page.locator("#drift-readout")).to_contain_text("#0 –", timeout=FIRES_S * 1000)
    assert 'omni_codec_drift_ms{stream="0"}' not in sidecars["stall"].samples()
    assert violations(page) == []


def test_a_bad_turn_unfolds_to_what_explain_prints(sidecars, look, violations) -> None:
    sidecar = sidecars["overload"]
    page = is_live(look(sidecar.url))
    page.locator("#turns summary").first.wait_for(timeout=FIRES_S * 1000)
    # The first is another one as soon as the next turn is bad.
    number = page.locator("#turns details").first.get_attribute("data-number")
    turn = page.locator(f'#turns details[data-number="{number}"]')
    head = turn.locator("summary")
    head.focus()
    page.keyboard.press("Enter")
    turn.locator("pre").wait_for()
    config = sidecar.directory / "explain.yaml"
    config.write_text(f"site: {{exporter: '{sidecar.address}'}}\n")
    command = [*OMNIWATCH, "explain", number, f"--config.file={config}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pieces = re.findall(r"^(\w+) +(-?[\d.]+ s)", printed, re.MULTILINE)
    rows = turn.locator(".waterfall > div")
    assert [tuple(row.split("\n")[:2]) for row in rows.all_inner_texts()] == pieces
    evidence = printed[printed.index(f"{pieces[-1][1]}") :].split("\n\n", 1)[1]
    # The runbook's words stand behind a link there.
    evidence = evidence.partition("\n\nWhat to do about ")[0].strip()
    assert turn.locator("pre").inner_text().strip() == evidence
    link = turn.get_by_role("link", name="What to do").first
    assert link.get_attribute("href").startswith("/runbooks/")
    # It stays open while the page goes on.
    page.locator("#announced").wait_for(state="attached")
    expect(turn.locator("pre")).to_be_visible()
    assert violations(page) == []


def test_a_keyboard_moves_along_the_curves(sidecars, look) -> None:
    page = is_live(look(sidecars["overload"].url))
    expect(page.locator("#drift-curve")).not_to_have_attribute("aria-valuemax", re.compile("^[0-9]$"))
    curve = page.get_by_role("slider", name="Cursor along the drift curve")
    curve.focus()
    last = int(curve.get_attribute("aria-valuenow"))
    page.keyboard.press("ArrowLeft")
    assert last - 1 <= int(curve.get_attribute("aria-valuenow")) <= last + 1
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("aria-valuenow", "0")
    first = curve.get_attribute("aria-valuetext")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  #0 (–|[+−]?\d+ ms)", first)
    assert page.locator("#drift-readout").inner_text().split() == first.split()
    page.keyboard.press("Escape")
    expect(curve).not_to_have_attribute("aria-valuenow", "0")
    page.get_by_role("slider", name="Cursor along the round trip curve").focus()


def test_the_curves_are_a_table_too(sidecars, look, violations) -> None:
    page = is_live(look(sidecars["overload"].url))
    page.get_by_text("The curves as a table").press("Enter")
    table = page.get_by_role("table").first
    heads = table.get_by_role("columnheader").all_inner_texts()
    assert heads == ["Time", "#0 Drift", "#0 Round trip"]
    expect(table.get_by_role("row").nth(1)).to_contain_text("ms")
    assert violations(page) == []


def test_the_same_by_its_structure(sidecars, look) -> None:
    page = is_live(look(sidecars["reconnect-jump"].url))
    heads = [text for text in page.get_by_role("heading", level=2).all_inner_texts() if text]
    assert heads == [
        "The last 15 minutes",
        "Listeners",
        "Bad turns of the last hour",
        *(["The device"] if page.locator("#machine").is_visible() else []),
        "Sources of events",
        "Pages",
    ]
    assert page.get_by_role("slider").count() == 2
    assert page.locator("canvas").count() == 2
    listeners = page.get_by_role("table", name="Listeners")
    assert (
        listeners.get_by_role("columnheader").count()
        == listeners.get_by_role("row").last.get_by_role("cell").count()
    )
    expect(page.get_by_role("table", name="Sources of events").get_by_role("row").nth(1)).to_contain_text(
        "is read"
    )


VIEWS = {
    "a telephone": {"viewport": {"width": 320, "height": 640}},
    "a wall": {"viewport": {"width": 3840, "height": 2160}},
    "dark": {"color_scheme": "dark"},
    "Chinese": {"locale": "zh-CN"},
    "less motion": {"reduced_motion": "reduce"},
    "forced colours": {"forced_colors": "active"},
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_and_has_no_barrier(view, sidecars, look, violations) -> None:
    page = is_live(look(sidecars["overload"].url, **VIEWS[view]))
    width = page.viewport_size["width"]
    assert page.locator("html").evaluate("root => root.scrollWidth") <= width
    assert page.locator("html").get_attribute("lang") == ("zh" if view == "Chinese" else "en")
    assert violations(page) == []
    size = page.locator("#sentence").evaluate("line => parseFloat(getComputedStyle(line).fontSize)")
    # Three metres away, a letter of 1/40 of a screen's height of 0.7 m is seen at a quarter of a degree and more.
    assert size >= (2160 / 40 if view == "a wall" else 16)


def test_another_language_is_remembered(sidecars, look) -> None:
    page = is_live(look(sidecars["overload"].url))
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="听者")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="听者")).to_be_visible()
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Listeners")).to_be_visible()


def test_without_scripts_there_is_a_table(sidecars, look) -> None:
    page = look(sidecars["overload"].url, java_script_enabled=False)
    assert page.get_by_role("heading", name="Streams (1)").is_visible()
    assert page.get_by_role("row").count() == 2
    assert not page.locator("#live").is_visible()
    assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "5"


def test_a_sidecar_that_was_killed_is_missed_and_found_again(tmp_path, look, violations) -> None:
    with Sidecar(tmp_path, "--scenario=steady") as sidecar:
        sidecar.await_ready()
        # A browser itself says in the console what it could not reach.
        page = is_live(look(sidecar.url, quiet=False))
        expect(page.locator("#listeners tr")).to_have_count(1)
        sidecar.kill()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(re.compile(r"has not answered since \d\d:\d\d:\d\d"))
        assert violations(page) == []
        sidecar.start()
        expect(alert).to_be_hidden(timeout=30_000)
        expect(page.locator("#listeners tr")).to_have_count(1)
        expect(page.locator("#drift-readout")).to_contain_text("ms")


def test_what_nothing_is_known_of_is_not_nobody(tmp_path, look, violations) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.await_ready()
        page = is_live(look(sidecar.url))
        expect(page.locator("#sentence")).to_contain_text("Listeners are not seen")
        assert page.locator("#more").inner_text() == ""
        assert violations(page) == []
        sidecar.events.touch()
        expect(page.locator("#sentence")).to_contain_text("nobody is listening")
        expect(page.locator("#more")).to_have_text("Nobody is listening.")
        page.close()


def test_sixty_four_listeners(tmp_path, look, violations) -> None:
    with Sidecar(tmp_path) as sidecar:
        sidecar.await_ready()
        now = time.time()
        names = [f"listener-{number}" for number in range(64)]
        write(
            sidecar.events,
            *(ev.StreamStart(t=now, stream=name, kind="realtime") for name in names),
            *(ev.TurnStart(t=now, stream=name, turn=1) for name in names),
            *(ev.Audio(t=now + 0.3, stream=name, turn=1, dur_ms=120_000) for name in names),
        )
        page = is_live(look(sidecar.url))
        expect(page.locator("#listeners tr")).to_have_count(64)
        curve = page.locator("#drift-curve")
        expect(curve).to_have_attribute("data-series", re.compile(r"^(\d+ ){7}\d+$"))
        assert page.get_by_text("worst listeners are drawn").is_visible()
        assert violations(page) == []
        button = page.get_by_role("button", name="#60 ")
        button.press("Enter")
        expect(curve).to_have_attribute("data-series", "60")
        expect(button).to_have_attribute("aria-pressed", "true")
        button.press("Enter")
        expect(curve).to_have_attribute("data-series", re.compile(r"^(\d+ ){7}\d+$"))
        page.close()


def test_a_name_of_a_client_is_text(tmp_path, look) -> None:
    with Sidecar(tmp_path, settings="site: {live_details: true}\n") as sidecar:
        sidecar.await_ready()
        name = "<script>document.title='bad'</script>"
        write(sidecar.events, ev.StreamStart(t=time.time(), stream=name, peer="<b>peer</b>"))
        page = is_live(look(sidecar.url))
        expect(page.locator("#listeners tr").first).to_contain_text(name)
        assert page.locator("#listeners script, #listeners b").count() == 0
        assert "bad" not in page.title()
        page.close()


def test_after_a_login_that_no_longer_holds_the_page_stops_asking(tmp_path, look, violations) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{anna: '{hashed('secret')}'}}\n")
    folder = tmp_path / "sidecar"
    folder.mkdir()
    with Sidecar(folder, "--scenario=steady", web_config=web) as sidecar:
        sidecar.await_ready()
        login = {"username": "anna", "password": "secret", "send": "always"}
        page = is_live(look(sidecar.url, quiet=False, clock=True, http_credentials=login))
        web.write_text(f"basic_auth_users: {{anna: '{hashed('another')}'}}\n")
        asked: list[str] = []
        expect(page.get_by_role("alert")).to_contain_text("A login is needed")
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(60_000)
        assert asked == []
        assert violations(page) == []


class Answers:
    """What the page is given instead of the sidecar's feed, from `status` on."""

    def __init__(self, page: Any) -> None:
        self.asked: list[float] = []
        self.status, self.headers = 200, {}
        self.changed: dict[str, object] = {}
        page.context.route("**/live.json*", self._answer)

    def _answer(self, route: Any) -> None:
        self.asked.append(time.monotonic())
        if self.status != 200:
            route.fulfill(status=self.status, headers=self.headers, body="")
            return
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps(answer.json() | self.changed))


@pytest.mark.parametrize("status", [429, 503])
def test_a_sidecar_with_much_to_do_is_asked_less_often(status, sidecars, look) -> None:
    page = is_live(look(sidecars["stall"].url, quiet=False))
    answers = Answers(page)
    answers.status, answers.headers = status, {"Retry-After": "3"}
    expect(page.get_by_role("alert")).to_contain_text("asks less often")
    wait_until(lambda: page.title() and len(answers.asked) >= 2)
    assert answers.asked[1] - answers.asked[0] > 2.9
    answers.status = 200
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_feed_of_another_schema_loads_the_page_once_and_then_says_so(sidecars, look, violations) -> None:
    page = is_live(look(sidecars["stall"].url))
    loads: list[str] = []
    page.on("domcontentloaded", lambda loaded: loads.append(loaded.url))
    answers = Answers(page)
    answers.changed = {"schema": 99}
    expect(page.get_by_role("alert")).to_contain_text("version 99")
    assert len(loads) == 1
    assert violations(page) == []
    answers.changed = {}
    page.reload()
    is_live(page)
    assert page.get_by_role("alert").count() == 0


def test_a_hole_in_the_history_is_asked_for_whole(sidecars, look) -> None:
    page = is_live(look(sidecars["overload"].url))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answers = Answers(page)
    answers.changed = {
        "reset": False,
        "history": {"step": 1, "first": 10**6, "start": 0, "count": 1, "columns": {}},
    }
    wait_until(lambda: page.title() and any(url.endswith("/live.json") for url in asked))
    answers.changed = {}
    expect(page.locator("#drift-readout")).to_contain_text("#0")
