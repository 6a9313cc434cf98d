"""Remove from the environment that runs this what only a desk needs of Omniwatch, as `omniwatch install` does."""

import shutil
from pathlib import Path

import omniwatch
from omniwatch.bundle.program_files import DESK_ONLY

for part in DESK_ONLY:
    path = Path(omniwatch.__file__).parent / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
