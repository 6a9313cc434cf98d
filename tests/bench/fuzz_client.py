"""Five minutes of a broken or hostile server, from seeds of today, to both clients: how many turns, how did they end?

No peer: whatever a sanitizer finds, an exception out of `speak`, or a turn without an end fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.client_fuzz import compile_fuzzer, fuzz_cpp, fuzz_python, fuzz_sockets


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0, help="for all three together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="the first; as printed")
    options = parser.parse_args()
    share_s = options.seconds / 3
    print(f"seeds from {options.seed} on")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_fuzzer(Path(folder))
        found = {
            "Python, virtual time": fuzz_python(options.seed, share_s),
            "C++, virtual time": fuzz_cpp(program, options.seed, share_s),
            "C++, sockets": asyncio.run(fuzz_sockets(program, options.seed, share_s)),
        }
    for name, reasons in found.items():
        print(f"{name:22}{sum(reasons.values()):>9,} turns, {reasons['done']:,} of them to their end")


if __name__ == "__main__":
    main()
