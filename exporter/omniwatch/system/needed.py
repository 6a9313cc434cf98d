"""Say in one line which module an interpreter lacks, before an import fails deep within."""

from __future__ import annotations

import importlib.util
import sys

PACKAGES = {"msgspec": "msgspec", "yaml": "PyYAML"}


def check(what: str, *modules: str) -> None:
    """Raise ImportError, one line, where a module that `what` needs is not installed for this interpreter."""
    missing = [PACKAGES[name] for name in modules if not is_there(name)]
    if missing:
        raise ImportError(
            f"{what} needs {' and '.join(missing)}, which {sys.executable} does not have: pip install {' '.join(missing)}"
        )


def of_extra(what: str, module: str, extra: str) -> None:
    """Raise ModuleNotFoundError, one line, where a module that an extra of this package brings is not installed."""
    if not is_there(module):
        raise ModuleNotFoundError(f"{what} needs {module}: pip install 'omniwatch[{extra}]'", name=module)


def is_there(name: str) -> bool:
    """Whether a module can be imported. It is not imported."""
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None
