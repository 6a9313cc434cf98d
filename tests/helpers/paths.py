"""Where the clone and the tests' data are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CLONE = TESTS.parent
DATA = TESTS / "data"
