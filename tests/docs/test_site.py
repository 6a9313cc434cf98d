"""`make docs`: the site builds without a warning, and its pages open in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import manual

pytestmark = pytest.mark.programs


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [
        "-W",
        "--keep-going",
        "-q",
        "-c",
        str(source / "docs"),
        "-d",
        str(out / "doctrees"),
        str(source),
        str(out / "html"),
    ]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(manual.ROOT, out)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_on_the_site(site):
    """-W makes an error of a page that no table of contents has, and of a link that leads nowhere."""
    pages = [page for page in manual.PAGES if page.name != "README.md"]
    missing = [
        page for page in pages if not (site / page.relative_to(manual.ROOT)).with_suffix(".html").exists()
    ]
    assert missing == []


def test_front_page_leads_into_the_manual(site):
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")
    index = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert 'href="start.html"' in index
    assert 'href="zh/start.html"' in index


def test_generated_tables_are_tables(site):
    text = (site / "docs" / "settings.html").read_text(encoding="utf-8")
    assert "<table" in text
    assert "alerts.drift_page_ms" in text


def test_a_broken_link_fails_the_build(tmp_path):
    (tmp_path / "docs" / "style").mkdir(parents=True)
    (tmp_path / "docs" / "site").mkdir()
    shutil.copy(manual.ROOT / "docs" / "conf.py", tmp_path / "docs")
    shutil.copy(manual.ROOT / "docs" / "style" / "manual.css", tmp_path / "docs" / "style")
    (tmp_path / "pyproject.toml").write_text('version = "0"\n')
    index = tmp_path / "docs" / "index.md"
    index.write_text("# Title\n\nText.\n")
    assert build(tmp_path, tmp_path / "good").returncode == 0
    index.write_text("# Title\n\n[nowhere](nowhere.md)\n")
    done = build(tmp_path, tmp_path / "bad")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None and "ubuntu" in Path("/etc/os-release").read_text(encoding="utf-8").lower():
        pytest.skip("Ubuntu has no package of Chromium, but a snap alone")
    assert found, "chromium is not installed: deploy/setup.sh chromium"
    return found


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("docs/when-it-fires.html", "CodecDrift"),
        ("docs/zh/start.html", "从这里开始"),
        ("runbooks/CodecDrift.html", "Mitigation"),
    ],
)
def test_pages_open_in_a_browser(site, chromium, tmp_path, page, words):
    """The page as the browser has it after its scripts ran; a picture of it holds more than one colour."""
    options = [
        *(
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-sync",
        ),
        *(
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={tmp_path}/profile",
        ),
    ]
    shot = tmp_path / "page.png"
    url = (site / page).as_uri()
    done = subprocess.run(
        [chromium, *options, "--dump-dom", url], capture_output=True, text=True, timeout=100, check=True
    )
    assert words in done.stdout
    assert "Omniwatch" in done.stdout
    subprocess.run(
        [chromium, *options, f"--screenshot={shot}", url], capture_output=True, timeout=100, check=True
    )
    assert shot.stat().st_size > 20_000
