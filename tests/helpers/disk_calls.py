"""The ways to the disk in a module, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_OF_PATHS = set(
    str.split(
        "open read_text read_bytes write_text write_bytes exists is_file is_dir is_symlink is_mount is_fifo lstat stat iterdir glob "
        "rglob walk readlink resolve mkdir rmdir unlink rename replace chmod lchmod symlink_to hardlink_to touch samefile owner group "
        "expanduser load_cert_chain load_verify_locations"
    )
)
_MODULES = {
    "user_file",
    "user_yaml",
    "os",
    "shutil",
    "tempfile",
    "io",
    "compileall",
    "atomic_write",
    "glob",
    "tarfile",
    "zipfile",
    "wave",
}
_NO_DISK = {
    *("os.cpu_count", "os.environ", "os.getpid", "os.strerror", "shutil.which", "io.BytesIO", "io.StringIO"),
    *("msgspec.structs.replace", "units.owner", "atomic_write.staged_for", "os.sched_getaffinity"),
}
_BY_NAME = {"open", "read_text", "names", "pairs", "read_int"}
"""Built in, and those of `system/sysfs.py` and `system/user_file.py`."""


def of(source: str) -> set[str]:
    """Return the calls in a module that may reach the disk, as they are written: what is called, without its arguments."""
    return {written for written, call in _calls(ast.parse(source)) if _reaches(written, call)}


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def _reaches(written: str, call: ast.Call) -> bool:
    owner, _, name = written.rpartition(".")
    if written in _NO_DISK or owner == "rooted":
        return False
    if not owner:
        return name in _BY_NAME
    if owner.replace(".", "").isidentifier() and owner.partition(".")[0] in _MODULES:
        return True
    # str.replace has two arguments, Path.replace one.
    return name in _OF_PATHS and not (name == "replace" and len(call.args) + len(call.keywords) != 1)
