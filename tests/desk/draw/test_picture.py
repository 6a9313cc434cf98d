"""Dashboards as pictures, on paper: the same bytes again, everything inside its box, mistakes in one line."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from click.testing import CliRunner
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from omniwatch.bundle import data
from omniwatch.cli import main
from omniwatch.desk.child_process import free_port
from omniwatch.desk.draw import arguments, picture
from omniwatch.desk.draw.canvas import curve_style, fitted, width, wrapped
from omniwatch.desk.draw.charts import clock_text, extent, legend_rows, lonely, y_ticks
from omniwatch.desk.draw.model import (
    Cell,
    Chart,
    Curve,
    Frame,
    Grid,
    Lane,
    Lanes,
    Level,
    Mark,
    Nothing,
    Place,
    Sheet,
    Shown,
    Span,
    Tile,
    Tiles,
)
from omniwatch.desk.draw.queries import DrawError
from omniwatch.desk.draw.svg import small
from omniwatch.desk.draw.window import Window

WINDOW = Window(1_768_478_400.0, 1_768_480_200.0)
LEVELS = [Level(None, "red"), Level(-60, "green"), Level(60, "red")]


def wave(name: str, height: float, hole: bool = False) -> Curve:
    points = [(WINDOW.start + n * 10, height * math.sin(n / 9)) for n in range(181)]
    return Curve(name, [(t, math.nan) if hole and 60 < n < 70 else (t, y) for n, (t, y) in enumerate(points)])


def chart(*curves: Curve, low: float | None = None, high: float | None = None) -> Chart:
    return Chart(list(curves) or [wave("orin stream 0", 40)], "ms", LEVELS, True, False, low, high)


SHOWN: dict[str, Shown] = {
    "Curves <&>": chart(wave("a $x_1$", 40, hole=True), wave("b", 20)),
    "Stack": Chart(
        [Curve("hit", [(WINDOW.start + 60, 2.0), (WINDOW.end, 3.0)], [0.0, 1.0])],
        "opm",
        [],
        False,
        True,
        0,
        None,
    ),
    "Values": Tiles([Tile("orin", "running", "green"), Tile("pi", "none", "dark-red")]),
    "States": Lanes([Lane("cgroup", [Span(WINDOW.start, WINDOW.end, "works", "green")]), Lane("jetson", [])]),
    "Table": Grid(["Device", "Drift"], [[Cell(f"orin-{n}"), Cell("72.5 ms", "red")] for n in range(40)]),
    "Empty": Nothing("No data"),
}


def a_sheet() -> Sheet:
    frames = [
        Frame(title, f"What {title} means. " * 40, Place(12 * (n % 2), 1 + n // 2 * 8, 12, 8), shown)
        for n, (title, shown) in enumerate(SHOWN.items())
    ]
    marks = [("Pages", "red", [Mark(WINDOW.start + 300, "CodecDrift", "red")]), ("Tickets", "orange", [])]
    return Sheet("Omniwatch / Test", "Everything.", WINDOW, [("A row", 0)], frames, marks)


@pytest.fixture(scope="module")
def svg(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("svg") / "a.svg"
    picture.write(a_sheet(), path)
    return path.read_text()


def words(svg: str) -> list[str]:
    return [
        "".join(text.itertext())
        for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.mark.slow
def test_what_is_written_can_be_read(svg):
    found = words(svg)
    assert {"Omniwatch / Test", "2026-01-15 12:00:00 to 12:30:00 UTC", "A row", "Pages"} <= set(found)
    assert set(SHOWN) <= set(found)
    assert {"a $x_1$", "running", "works", "jetson", "orin-0", "72.5 ms", "No data", "60 ms", "12:10"} <= set(
        found
    )
    assert "Tickets" not in found
    (rest,) = [text for text in found if "more" in text]
    assert rest == f"… and {40 - sum(text.startswith('orin-') for text in found)} more"


def test_long_descriptions_end_in_an_ellipsis(svg):
    assert sum(text.endswith("…") for text in words(svg)) == len(SHOWN)


def test_a_png_shows_points_that_stand_alone(tmp_path):
    """Each is a dot of the curve's colour, as high as it is wide."""
    alone = [(WINDOW.start + 60 * n, 10.0 if n % 5 == 2 else math.nan) for n in range(30)]
    shown = [Frame("Dots", "", Place(0, 0, 24, 8), chart(Curve("a", alone)))]
    picture.write(Sheet("T", "", WINDOW, [], shown, []), tmp_path / "dots.png")
    image = imread(tmp_path / "dots.png")
    legend_y = int(image.shape[0] * 0.85)
    near = abs(image[:legend_y, :, :3] - to_rgb(curve_style(0)["color"])).max(axis=2) < 0.02
    columns = near.any(axis=0)
    dots = int((columns[1:] & ~columns[:-1]).sum())
    rows = int(near.any(axis=1).sum())
    assert dots == 6
    assert rows >= 3


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.slow
def test_the_same_sheet_gives_the_same_bytes_whatever_the_user_has_set(tmp_path, suffix):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    picture.write(a_sheet(), first)
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "black"}):
        picture.write(a_sheet(), second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]
    assert b"dc:date" not in first.read_bytes()


def test_panels_are_where_the_grid_has_them():
    figure = Figure()
    picture.draw(a_sheet(), figure)
    page, curves, stack = figure.axes
    left, right = curves.get_position(), stack.get_position()
    assert left.x1 < 0.5 < right.x0
    assert abs(left.y0 - right.y0) < 0.02
    assert curves.get_xlim() == (WINDOW.start, WINDOW.end)
    assert page.get_position().bounds == (0, 0, 1, 1)


def test_no_text_leaves_the_page():
    figure = Figure()
    with mpl.style.context(picture.STYLE, after_reset=True):
        picture.draw(a_sheet(), figure)
        renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
        width_px = figure.get_size_inches()[0] * figure.dpi
        for text in figure.axes[0].texts:
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0, text.get_text()
            assert box.x1 <= width_px, text.get_text()


def test_a_threshold_that_is_near_is_seen_and_one_that_is_far_does_not_squeeze():
    near, far = extent(chart(wave("a", 40))), extent(chart(wave("a", 4)))
    assert near[0] < -60 < 60 < near[1]
    assert -5 < far[0] < far[1] < 5


def test_ends_that_the_panel_fixes_are_kept_and_a_flat_curve_has_room():
    low, high = extent(chart(wave("a", 40), low=0, high=100))
    assert low == pytest.approx(0, abs=1.5)
    assert high == pytest.approx(100, abs=1.5)
    flat = Chart([Curve("a", [(0, 0.0), (1, 0.0)])], "s", [], False, False, 0, None)
    assert extent(flat)[0] == pytest.approx(0, abs=0.1)
    assert extent(flat)[1] > 0.3


def test_ticks_are_round_in_the_unit_they_are_written_in():
    assert y_ticks(0, 900, "s") == [0, 300, 600, 900]
    assert all(tick % 2**28 == 0 for tick in y_ticks(0, 4 * 2**30, "bytes"))
    assert y_ticks(-0.01, 1.01, "percentunit")[-1] == 1


@pytest.mark.slow
def test_a_legend_is_broken_into_lines_and_counts_what_it_leaves_out():
    rows = legend_rows([f"orin stream {n}" for n in range(60)], 300)
    assert len(rows) == 3
    named = [number for row in rows for number, _, _ in row if number >= 0]
    assert rows[-1][-1][1] == f"… and {60 - len(named)} more"
    for row in rows:
        assert all(x + width(name, 7) <= 300 for _, name, x in row)
    assert legend_rows(["x" * 500], 300)[0][0][1].endswith("…")


def test_a_value_with_nothing_on_either_side_is_a_dot():
    nan = math.nan
    assert lonely([1, nan, 2, nan, 3, 4, nan, 5]) == [0, 2, 7]


def test_words_fit_their_room():
    assert fitted("short", 7, 100) == "short"
    assert width(fitted("a very long word indeed", 7, 40), 7) <= 40
    lines = wrapped("word " * 60, 7, 120, 3)
    assert len(lines) == 3
    assert all(width(line, 7) <= 120 for line in lines)
    assert wrapped("two words", 7, 500, 3) == ["two words"]
    assert (clock_text(WINDOW.start, 1800), clock_text(WINDOW.start, 60)) == ("12:00", "12:00:00")


def test_times_are_read():
    assert arguments.window(None, None, "30m", 5000.0) == (3200, 5000)
    assert arguments.window("2026-01-15T12:00:00Z", "2026-01-15T13:30:00+01:00", "1h", 0.0) == WINDOW
    assert arguments.window("1768478400", "2026-01-15 12:30", "1h", 0.0) == WINDOW
    assert arguments.choices(["device=a", "device=b=c", "var-job=x"]) == {
        "device": ["a", "b=c"],
        "job": ["x"],
    }


def test_targets_are_a_file_of_each_or_the_one_that_is_named(tmp_path):
    both = {"a": {"uid": "1"}, "b": {"uid": "2"}}
    assert list(arguments.targets(both, tmp_path / "new", "png")) == [
        tmp_path / "new/a.png",
        tmp_path / "new/b.png",
    ]
    assert arguments.targets({"a": both["a"]}, tmp_path / "x.svg", "png") == {
        tmp_path / "x.svg": {"uid": "1"}
    }
    with pytest.raises(DrawError, match="2 dashboards do not go into one file"):
        arguments.targets(both, tmp_path / "x.svg", "svg")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--last", "soon"], "--last: expected a time such as 30m or 90s, got 'soon'"),
        (
            ["--start", "noon"],
            "--start: expected seconds since the epoch or 2026-01-31T12:00:00Z, got 'noon'",
        ),
        (["--start", "200", "--end", "100"], "--start 200 is not before the end"),
        (["--var", "device"], "--var: expected NAME=VALUE, got 'device'"),
        (["--var", "city=x"], "no variable 'city' on omni-streaming"),
        (["traffic"], 'no dashboard "traffic"'),
        (["--prometheus.url", "http://127.0.0.1:{port}"], "http://127.0.0.1:{port}/api/v1/query: "),
        (
            ["--prometheus.url", "nowhere"],
            "nowhere/api/v1/query: expected http://HOST:PORT or https://HOST:PORT",
        ),
        (
            ["--prometheus.url", "http://host:abc"],
            "http://host:abc/api/v1/query: Port could not be cast to integer value as 'abc'",
        ),
        (["--prometheus.url", "http://[::1"], "http://[::1/api/v1/query: Invalid IPv6 URL"),
    ],
)
@pytest.mark.slow
def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, words, said):
    port = free_port()
    given = [word.format(port=port) for word in words]
    names = [] if "traffic" in words else ["streaming"]
    out = tmp_path / "a.svg"
    done = CliRunner().invoke(main, ["dashboards", "draw", *names, "--out", str(out), *given])
    assert done.exit_code == 2, done.output
    assert re.fullmatch(r"Error: .*\n", done.output), done.output
    assert said.format(port=port) in done.output
    assert list(tmp_path.iterdir()) == []


def test_every_dashboard_has_its_picture_in_the_documentation():
    pictures = {
        path.stem: path.stat().st_size for path in (data.root() / "docs" / "dashboards").glob("*.svg")
    }
    dashboards = {
        path.name.removesuffix(".yaml.j2") for path in (data.root() / "dashboards").glob("*.yaml.j2")
    }
    first_rows = {f"{name}-now" for name in ("streaming", "model-server", "fleet")}
    assert set(pictures) == dashboards | first_rows
    assert max(pictures.values()) < 300_000


@pytest.mark.parametrize(
    ("path", "smaller"),
    [
        ("M 1.04 2.06 \nL 3.04 2.06 \nL 3.04 -4.5 \nz\n", "M1 2.1l2 0l0 -6.6z"),
        ("M 0 0 \nM 10.25 1 \nL 10.25 1 \n", "M0 0M10.2 1l0 0"),
        ("M 0 3.123456 \nC 0.5 3 1 2 1 1 \n", "M 0 3.123456 \nC 0.5 3 1 2 1 1 \n"),
    ],
)
def test_paths_are_cut_to_tenths_and_add_up_to_the_same(path, smaller):
    assert small(f'<svg x="1"><path d="{path}"/>'.encode(), ["A B", "c"]).decode() == (
        f'<svg font-family="A B, c" x="1"><path d="{smaller}"/>'
    )


def test_a_directory_that_is_not_there_is_said(tmp_path):
    out: Path = tmp_path / "missing" / "a.svg"
    done = CliRunner().invoke(main, ["dashboards", "draw", "streaming", "--out", str(out)])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "no such directory" in done.output
