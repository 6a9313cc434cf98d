"""Stand-ins for promtool and amtool that know no more than Ubuntu 22.04's, in a directory of their own."""

from __future__ import annotations

from pathlib import Path

PROMTOOL = """#!/bin/sh
echo "$@" >> "$0.calls"
case "$*" in
  *--lint*|*--agent*) echo "promtool: error: unknown flag" >&2; exit 1;;
  "help "*) echo "usage: promtool [<flags>]"; exit 0;;
esac
for last; do :; done
if grep -q "^storage:" "$last"; then echo "field tsdb not found in type config.plain"; exit 1; fi
if [ "$1" = test ] && grep -q "offset -" "$last"; then echo "negative offset is disabled"; exit 1; fi
exit 0
"""
AMTOOL = """#!/bin/sh
if grep -q -E "routing_key_file|smtp_auth_password_file" "$2"; then echo "field not found in type config.plain"; exit 1; fi
exit 0
"""
PROMETHEUS = """#!/bin/sh
echo "      --storage.tsdb.path=\\"data/\\""
"""


def old_tools(directory: Path) -> dict[str, str]:
    """Write them; return where each is, by its name."""
    found = {}
    for name, text in (("promtool", PROMTOOL), ("amtool", AMTOOL), ("prometheus", PROMETHEUS)):
        program = directory / name
        program.write_text(text)
        program.chmod(0o755)
        found[name] = str(program)
    return found
