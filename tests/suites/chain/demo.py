"""Show the table of a real cascade on this machine: `make demo-chain`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from suites.chain.cascade import SHORT, cascade, speak_questions


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="omniwatch-chain-") as name:
        folder = Path(name)
        questions = speak_questions(folder / "questions")
        sys.stderr.write("cascade: starting whisper-tiny.en, SmolLM2-135M and hibari\n")
        with cascade(folder) as servers:
            command = [
                sys.executable,
                "-m",
                "omniwatch",
                "bench",
                "chain",
                str(questions),
                f"--body=llm={SHORT}",
            ]
            for part, server in servers.items():
                command += [f"--{part}={server.url}", f"--watch=cascade={server.process.pid}"]
            return subprocess.run([*command, "--turns=20", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
