"""The picture of a replay: the same bytes again, the curves and bands that the numbers say, nothing half written."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.core.rule_states import contract_rules, spans
from omniwatch.desk import plotting
from omniwatch.desk.plotting import curves
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.replay import Replay
from omniwatch.settings import Settings

T0 = 1_700_000_000.0
SVG = "{http://www.w3.org/2000/svg}"


def replayed(name: str, duration_s: float | None = None) -> Replay:
    replay = Replay(Settings())
    for event in events(SCENARIOS[name], 1, T0, duration_s or SCENARIOS[name].duration_s):
        replay.apply(event)
    replay.finish()
    return replay


@pytest.fixture(scope="module")
def overload() -> Replay:
    return replayed("overload")


def drawn(replay: Replay):
    figure = Figure()
    curves.draw(replay, figure, "title")
    return figure.axes


def bands(axes, state: str) -> list[tuple[float, float]]:
    """Where an axis is shaded in a state's colour, in seconds."""
    shaded = [p for p in axes.patches if to_hex(p.get_facecolor()).upper() == plotting.STATE_COLOURS[state]]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in shaded]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.slow
def test_the_same_recording_gives_the_same_bytes(overload, tmp_path, suffix):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    curves.write(overload, first, "title")
    curves.write(replayed("overload"), second, "title")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_an_svg_is_a_picture_without_a_date_and_a_png_is_a_png(overload, tmp_path):
    curves.write(overload, tmp_path / "a.svg", "title")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag == f"{SVG}svg"
    assert b"dc:date" not in (tmp_path / "a.svg").read_bytes()
    curves.write(overload, tmp_path / "a.PNG", "title")
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_users_own_matplotlib_settings_change_nothing(overload, tmp_path):
    import matplotlib as mpl

    curves.write(overload, tmp_path / "a.svg", "title")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "none"}):
        curves.write(overload, tmp_path / "b.svg", "title")
        assert mpl.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_curves_are_the_samples_and_the_thresholds_are_lines(overload):
    above, below = drawn(overload)
    (track,) = overload.tracks.values()
    for axes, values, levels in (
        (above, [sample.drift_ms for sample in track.samples], [-60, 60]),
        (below, [sample.rtt_ms for sample in track.samples], [800]),
    ):
        curve, *lines = axes.get_lines()
        assert list(curve.get_xdata()) == [sample.t - T0 for sample in track.samples]
        assert [y for y in curve.get_ydata() if y == y] == [value for value in values if value is not None]
        assert sorted(line.get_ydata()[0] for line in lines) == levels
        low, high = axes.get_ylim()
        assert low <= min(levels)
        assert high > max(levels)


def test_the_bands_are_where_the_rules_would_be_pending_and_firing(overload):
    (track,) = overload.tracks.values()
    for axes, rule in zip(drawn(overload), contract_rules(overload.settings.alerts), strict=True):
        found = spans(rule, track.samples, 5)
        for state in ("pending", "firing"):
            expected = [(s.start_t - T0, s.end_t - T0) for s in found if s.state == state]
            assert bands(axes, state) == expected
            assert expected
        words = {text.get_text() for text in axes.texts}
        (length_s,) = (s.end_t - s.start_t for s in found if s.state == "firing")
        assert {"pending", f"{rule.name} fires {length_s:.0f} s"} <= words


def test_a_good_day_has_curves_and_no_bands():
    for axes in drawn(replayed("steady", 30)):
        assert len(axes.patches) == 0
        assert len(axes.get_lines()) >= 2


def test_a_few_streams_are_named_and_coloured_apart_and_many_are_not():
    above, below = drawn(replayed("two-streams", 60))
    for axes in (above, below):
        first, second = axes.get_lines()[:2]
        named = {text.get_text(): text for text in axes.texts}
        assert to_hex(named["two-streams-1-0"].get_color()) == to_hex(first.get_color())
        assert to_hex(named["two-streams-1-1"].get_color()) == to_hex(second.get_color())
        assert first.get_color() != second.get_color()
        heights = [named[f"two-streams-1-{k}"].xy[1] for k in (0, 1)]
        low, high = axes.get_ylim()
        assert abs(heights[0] - heights[1]) > 0.07 * (high - low)
    crowd = Replay(Settings())
    for number in range(len(plotting.STREAM_COLOURS) + 1):
        for k in range(40):
            pts = {"pts_ms": 80.0 * k, "video_pts_ms": 80.0 * k}
            crowd.apply(ev.Audio(t=T0 + 0.08 * k, stream=f"s{number}", **pts))
    crowd.finish()
    above, _ = drawn(crowd)
    assert len({line.get_color() for line in above.get_lines()[: len(crowd.tracks)]}) == 1
    assert not {text.get_text() for text in above.texts} & set(crowd.tracks)


def test_a_recording_too_short_to_be_sampled_is_an_empty_picture(tmp_path):
    replay = Replay(Settings())
    replay.apply(ev.Audio(t=T0 + 0.5, stream="a", pts_ms=0, video_pts_ms=0))
    replay.finish()
    curves.write(replay, tmp_path / "a.svg", "title")
    assert [len(axes.get_lines()) for axes in drawn(replay)] == [2, 1]


def test_a_picture_that_cannot_be_put_in_place_leaves_nothing_behind(overload, tmp_path):
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(IsADirectoryError):
        curves.write(overload, tmp_path / "a.svg", "title")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_the_command_draws_what_replay_says_and_titles_it_with_the_files_name(tmp_path):
    recording, picture = tmp_path / "a-drive.jsonl", tmp_path / "drift.svg"
    recording.write_bytes(b"".join(map(ev.encode, events(SCENARIOS["reconnect-jump"], 1, T0, 60))))
    done = CliRunner().invoke(main, ["curves", str(recording), "--out", str(picture)])
    assert (done.exit_code, done.output) == (0, f"drawn: {picture}\n")
    curves.write(replayed("reconnect-jump", 60), tmp_path / "same.svg", "a-drive.jsonl")
    assert picture.read_bytes() == (tmp_path / "same.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone", "--out", "drift.svg"], "gone: No such file or directory"),
        (["empty", "--out", "drift.svg"], "empty: no event in it"),
        (["good", "--out", "drift.pdf"], "drift.pdf: a plot ends in .svg or .png"),
        (["good", "--out", "gone/drift.svg"], "gone/drift.svg: no such directory: gone"),
        (["good", "--out", "folder.svg"], "folder.svg: Is a directory"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_drawn(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good").write_bytes(b"".join(map(ev.encode, events(SCENARIOS["steady"], 1, T0, 5))))
    Path("empty").write_bytes(b"")
    Path("folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(main, ["curves", *arguments])
    assert (done.exit_code, done.output) == (2, f"Error: {message}\n")
    assert sorted(tmp_path.iterdir()) == before
