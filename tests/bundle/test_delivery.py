"""What keeps a page from a person is said in one line each, and what does not is not."""

from __future__ import annotations

from math import inf

import pytest
from click.testing import CliRunner

from omniwatch.bundle import delivery, install, trial_page, versions
from omniwatch.bundle.bridge import BridgeError, Outcome, Report, RobotReport
from omniwatch.bundle.trial_page import Taken
from omniwatch.bundle.versions import LEAST
from omniwatch.cli import main
from omniwatch.settings import parse

WATCHED = "watchdog_webhook_url: 'https://switch.example/orin'"
PAGER = "page_webhook_url: 'https://pager.example/hook'"
ROBOT = "{kind: feishu, url_file: /robot}"
FLEET = "remote_write_url: 'https://c/w', alertmanager_urls: ['https://c/am']"


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("{}", ["receivers: nobody is told of a page", "receivers.watchdog_webhook_url: set it"]),
        (f"receivers: {{{WATCHED}}}", ["receivers: nobody is told of a page"]),
        (f"receivers: {{{WATCHED}, {PAGER}}}", []),
        (f"receivers: {{{PAGER}}}", ["receivers.watchdog_webhook_url: set it"]),
        (f"receivers: {{{WATCHED}, page: {{email_to: a@example.org}}}}", []),
        (
            f"receivers: {{{WATCHED}, page_webhook_url: 'http://127.0.0.1:5001/'}}",
            ["receivers.page_webhook_url: http://127.0.0.1:5001/ is on this device"],
        ),
        (
            f"receivers: {{{WATCHED}, page_webhook_url: 'http://localhost/', page: {{slack_api_url_file: /s}}}}",
            [],
        ),
        (f"{{receivers: {{{WATCHED}}}, notify: {{robots: [{ROBOT}]}}}}", []),
        (
            f"{{receivers: {{{WATCHED}, {PAGER}}}, notify: {{robots: [{ROBOT}]}}}}",
            [
                "notify.robots[0]: takes pages and gets none: receivers.page_webhook_url is https://pager.example/hook"
            ],
        ),
        (
            f"{{receivers: {{{WATCHED}, ticket_webhook_url: ''}}, notify: {{robots: [{ROBOT}]}}}}",
            ["notify.robots[0]: takes tickets and gets none: receivers.ticket_webhook_url is empty"],
        ),
        (
            f"{{receivers: {{{WATCHED}, page_webhook_url: 'http://127.0.0.1:9095/page'}}, notify: {{robots: [{ROBOT}]}}}}",
            [],
        ),
        (
            f"{{receivers: {{{WATCHED}}}, notify: {{timezone: Mars/Olympus, robots: [{ROBOT}]}}}}",
            ['notify.timezone: no time zone "Mars/Olympus" on this device; the package tzdata'],
        ),
        (f"fleet: {{{FLEET}}}", []),
        (
            f"{{receivers: {{{WATCHED}, {PAGER}}}, fleet: {{remote_write_url: 'https://c/w'}}}}",
            ["fleet.remote_write_url: set fleet.alertmanager_urls to the centre's Alertmanager, too"],
        ),
        (
            f"{{receivers: {{{PAGER}}}, fleet: {{{FLEET}}}}}",
            ["fleet.alertmanager_urls: this device's alerts go to the fleet's Alertmanager; receivers"],
        ),
        (
            f"{{notify: {{robots: [{ROBOT}]}}, fleet: {{{FLEET}}}}}",
            ["fleet.alertmanager_urls: this device's alerts go to the fleet's Alertmanager; receivers"],
        ),
        ("fleet: {alertmanager_urls: ['https://c/am']}", ["fleet.remote_write_url: set it, too"]),
        (
            "fleet: {remote_write_url: 'https://c/w', alertmanager_urls: ['http://127.0.0.1:9093']}",
            ["fleet.alertmanager_urls: every address is this device's own"],
        ),
    ],
)
def test_what_keeps_a_page_from_a_person_is_said(text, begins):
    found = list(delivery.faults(parse(text)))
    assert len(found) == len(begins), found
    for line, begin in zip(found, begins, strict=True):
        assert line.startswith(begin)


def test_who_is_told_is_named():
    settings = parse(
        f"{{receivers: {{page: {{pagerduty_routing_key_file: /k, email_to: a@example.org}}}}, notify: {{robots: [{ROBOT}]}}}}"
    )
    assert delivery.notified(settings, "page") == ["PagerDuty", "a@example.org", "feishu robot"]
    assert delivery.notified(settings, "ticket") == ["feishu robot"]


@pytest.mark.parametrize(
    ("words", "old"),
    [
        ("promtool, version 2.42.0+ds (branch: debian/sid)", ""),
        ("promtool, version 2.31.2", ""),
        ("promtool, version 2.30.9", "Prometheus 2.30 is too old: at least 2.31 is needed"),
        ("promtool, version 3.0.1", ""),
        ("", ""),
    ],
)
def test_a_program_that_is_too_old_is_named(words, old):
    assert versions.too_old(LEAST[0], words) == old


def test_installing_beside_an_old_program_says_so(tmp_path):
    old, new = tmp_path / "promtool", tmp_path / "amtool"
    old.write_text("#!/bin/sh\necho promtool, version 2.15.2\n")
    new.write_text("#!/bin/sh\necho amtool, version 0.25.0\n")
    old.chmod(0o755), new.chmod(0o755)
    says = install.outdated({"promtool": str(old), "amtool": str(new)}.get)
    assert says == ["note: Prometheus 2.15 is too old: at least 2.31 is needed"]


class Api:
    """An Alertmanager whose webhook takes what is posted a second later, and whose e-mail server never does."""

    def __init__(self) -> None:
        self.now, self.posted = 100.0, []

    def post(self, alerts):
        self.posted += [(self.now, alert) for alert in alerts]

    def sent(self):
        late = bool(self.posted) and self.now >= self.posted[0][0] + 1
        return {"webhook": (7.0 + late, 0.0), "email": (3.0, 2.0 + 2 * late)}

    def beats(self):
        return False

    def pause(self, seconds: float) -> None:
        self.now += seconds


def test_a_test_alert_says_who_took_it_and_ends():
    api = Api()
    settings = parse(f"receivers: {{{PAGER}, page: {{email_to: a@example.org}}}}")
    found = list(trial_page.run(api, settings, "page", 10, lambda: api.now, api.pause))
    assert [one.who for one in found] == ["webhook", "email"]
    assert found[0].after_s == pytest.approx(1, abs=0.3)
    assert found[1] == Taken("email", None, 2)
    (_, begin), (ended_t, end) = api.posted
    assert begin["labels"] == end["labels"]
    assert begin["labels"]["fault"] == "test"
    assert end["endsAt"] < begin["endsAt"]
    assert ended_t == pytest.approx(110, abs=0.3)


class Beating(Api):
    """One that sends a heartbeat each minute, and a test after `takes_s`."""

    def __init__(self, takes_s: float) -> None:
        super().__init__()
        self.takes_s = takes_s

    def sent(self):
        taken = bool(self.posted) and self.now >= self.posted[0][0] + self.takes_s
        return {"webhook": ((self.now - 70) // trial_page.BEAT_S + taken, 0.0)}

    def beats(self):
        return True


@pytest.mark.parametrize(
    ("takes_s", "within_s", "after_s"), [(1, 30, 1), (inf, 30, None), (inf, 200, None), (90, 200, 90)]
)
def test_a_heartbeat_is_no_answer_to_a_test(takes_s, within_s, after_s):
    api = Beating(takes_s)
    settings = parse(f"receivers: {{{WATCHED}, {PAGER}}}")
    assert trial_page.is_hidden_by_heartbeat(settings, "page")
    beat_t = trial_page.heartbeat(api, lambda: api.now, api.pause)
    assert beat_t == pytest.approx(130, abs=0.3)
    (found,) = trial_page.run(api, settings, "page", within_s, lambda: api.now, api.pause, beat_t=beat_t)
    assert found.after_s == pytest.approx(after_s, abs=6) if after_s else found.after_s is None


def test_where_no_heartbeat_comes_none_is_waited_for_long():
    api = Api()
    assert trial_page.heartbeat(api, lambda: api.now, api.pause) is None
    assert api.now == pytest.approx(165, abs=0.3)
    assert not trial_page.is_hidden_by_heartbeat(parse(f"receivers: {{{PAGER}}}"), "page")


def test_what_reaches_nobody_is_not_tested(tmp_path):
    config = tmp_path / "omniwatch.yaml"
    config.write_text("receivers: {page_webhook_url: '', ticket_webhook_url: ''}")
    done = CliRunner().invoke(main, ["page", "--test", "--config.file", str(config)])
    assert done.exit_code == 1
    assert done.stdout == f"nobody is told of a page: set receivers, notify.robots or fleet in {config}\n"


def test_a_bridge_without_a_robot_is_nobody(tmp_path):
    """By default pages go to the bridge: whether anybody is behind it is known at once, and not after 30 s."""
    config = tmp_path / "omniwatch.yaml"
    config.write_text("site: {alertmanager: '127.0.0.1:1'}")
    done = CliRunner().invoke(main, ["page", "--test", "--config.file", str(config)])
    assert (done.exit_code, done.stdout.partition(":")[0]) == (1, "nobody is told of a page")


class Failing(Beating):
    """Its dead man's switch takes a heartbeat only at the third attempt, at no fixed time; the test reaches nobody."""

    def __init__(self) -> None:
        super().__init__(inf)

    def sent(self):
        return {"webhook": ((self.now - 40) // 30, self.now // 10)}


def test_a_heartbeat_at_no_fixed_time_is_no_answer_either():
    api = Failing()
    settings = parse(f"receivers: {{{WATCHED}, {PAGER}}}")
    assert trial_page.heartbeat(api, lambda: api.now, api.pause) is None
    api.now = 131.0
    (found,) = trial_page.run(api, settings, "page", 30, lambda: api.now, api.pause)
    assert (found.after_s, found.error) == (None, trial_page.HIDDEN)


def test_a_heartbeat_that_begins_within_the_test_is_none_either():
    class Beginning(Beating):
        def beats(self):
            return self.now >= 105

        def sent(self):
            return {"webhook": (float(self.now >= 106), 0.0)}

    api = Beginning(inf)
    (found,) = trial_page.run(
        api, parse(f"receivers: {{{WATCHED}, {PAGER}}}"), "page", 30, lambda: api.now, api.pause
    )
    assert found.after_s is None


ROBOTS = f"{{receivers: {{{WATCHED}}}, notify: {{robots: [{ROBOT}, {{kind: wecom, url_file: /w}}]}}}}"


def outcome(api: Api, result: str, error: str = "", test: str = "100.000") -> Outcome:
    return Outcome(f'{{}}/{{severity="page"}}:{{fault="test", test="{test}"}}', result, api.now - 103, error)


def test_a_robots_own_answer_is_waited_for_and_a_refusal_is_said_at_once():
    """The bridge has taken it after a second; of its robots one takes it after three, and one refuses it."""
    api = Api()

    def bridge() -> Report:
        if api.now < 103:
            return Report([RobotReport("feishu-0", ["page"]), RobotReport("wecom-1", ["page"])])
        taken = [outcome(api, "later", "HTTP 502"), outcome(api, "delivered")]
        refused = [outcome(api, "delivered", test="99.000"), outcome(api, "refused", "93000: invalid key")]
        return Report(
            [
                RobotReport("feishu-0", ["page"], outcomes=taken),
                RobotReport("wecom-1", ["page"], outcomes=refused),
            ]
        )

    settings = parse(ROBOTS)
    assert not trial_page.is_hidden_by_heartbeat(settings, "page"), "no heartbeat has a part in it"
    found = list(trial_page.run(api, settings, "page", 30, lambda: api.now, api.pause, bridge=bridge))
    assert found == [
        Taken("feishu-0", pytest.approx(3, abs=0.01), 1),
        Taken("wecom-1", None, 1, "93000: invalid key", pytest.approx(3, abs=0.01)),
    ]
    assert api.now == pytest.approx(103, abs=0.3)


def test_robots_that_do_not_answer_and_a_bridge_that_does_not_are_named():
    api = Api()
    settings = parse(ROBOTS)
    waiting = Report([RobotReport("feishu-0", ["page"], outcomes=[outcome(api, "later", "HTTP 502")])])
    found = list(trial_page.run(api, settings, "page", 5, lambda: api.now, api.pause, bridge=lambda: waiting))
    assert found == [
        Taken("feishu-0", None, 1, "HTTP 502"),
        Taken(
            "wecom-1",
            None,
            1,
            "the running bridge does not know this robot: systemctl restart omniwatch-notify",
        ),
    ]

    def gone() -> Report:
        raise BridgeError("http://127.0.0.1:9095: Connection refused")

    api = Api()
    found = list(trial_page.run(api, settings, "page", 5, lambda: api.now, api.pause, bridge=gone))
    assert {one.error for one in found} == {"http://127.0.0.1:9095: Connection refused"}
    assert [one.after_s for one in found] == [None, None]


def test_an_alertmanager_that_is_not_reached_is_one_line(tmp_path):
    config = tmp_path / "omniwatch.yaml"
    config.write_text(f"{{site: {{alertmanager: '127.0.0.1:1'}}, receivers: {{{PAGER}}}}}")
    done = CliRunner().invoke(main, ["page", "--test", "--config.file", str(config)])
    assert done.exit_code == 2
    assert "http://127.0.0.1:1: Connection refused" in done.stderr
