"""When the certificates expire that this device serves or shows, or checks others against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client.core import Metric

from omniwatch.settings import Settings
from omniwatch.system import user_file
from omniwatch.system.certificates import expires_t, families

CA_FILE = "ca_file"
"""How the name of a setting ends whose file holds authorities: one of them that is valid is enough."""


def of_settings(settings: Settings) -> dict[str, Path]:
    """Return the files of certificates that omniwatch.yaml names, by setting."""
    named = {"ca_file": settings.fleet.ca_file, "client_cert_file": settings.fleet.client_cert_file}
    return {f"fleet.{name}": Path(file) for name, file in named.items() if file}


class Certificates:
    """The families `omniwatch_certificate_*` of these files, by setting, and of those that are `served`.

    A file is read anew when it has changed. Of a file that holds several, the first to expire counts; of authorities the last.
    """

    def __init__(
        self, files: Mapping[str, Path], served: Callable[[], Mapping[str, float | None]] = dict
    ) -> None:
        # A certificate that is its own authority is one file, and then it is what is shown that counts.
        authorities = {path: True for setting, path in files.items() if setting.endswith(CA_FILE)}
        self._files = authorities | {
            path: False for setting, path in files.items() if not setting.endswith(CA_FILE)
        }
        self._served = served
        self._known: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the families of one scrape: none where there is no certificate."""
        named = {str(path): self._expires_t(path, authorities) for path, authorities in self._files.items()}
        return families({**named, **self._served()})

    def _expires_t(self, path: Path, of_authorities: bool) -> float | None:
        try:
            now = path.stat()
            signature = now.st_ctime_ns, now.st_size, now.st_ino
            if self._known.get(path, (None, 0.0))[0] != signature:
                self._known[path] = signature, expires_t(user_file.read(path), of_authorities=of_authorities)
            return self._known[path][1]
        except (OSError, ValueError):
            return None
