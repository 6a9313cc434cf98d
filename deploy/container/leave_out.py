"""Remove from the environment that runs this what a device does without: what only a desk needs of Omniwatch, as `omniwatch install`
does, and Pygments' lexers. rich asks for them where it colours source code, which no command does; they are 8 MB.
"""

import shutil
from pathlib import Path

import pygments

import omniwatch
from omniwatch.bundle.program_files import DESK_ONLY

LISTS = ("__init__.py", "_mapping.py")

for part in DESK_ONLY:
    path = Path(omniwatch.__file__).parent / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
for path in Path(pygments.__file__).with_name("lexers").glob("*.py"):
    if path.name not in LISTS:
        path.unlink()
