#!/bin/sh
# Install the Debian packages named, those that are missing, without starting what they bring.
#   deploy/setup.sh prometheus prometheus-alertmanager
set -eu

find_missing() {
    missing=
    for package in "$@"; do
        # Ubuntu's package of that name installs snapd and a snap: what needs a browser is skipped there.
        [ "$package" != chromium ] || ! grep -q -E '^ID(_LIKE)?=.*ubuntu' /etc/os-release || continue
        # Ubuntu has no such package; and where another package brought kubectl, this one would be in its way.
        [ "$package" != kubernetes-client ] || { ! command -v kubectl && ! grep -q -E '^ID(_LIKE)?=.*ubuntu' /etc/os-release; } >/dev/null || continue
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
    done
    [ -n "$missing" ] || exit 0
}
find_missing "$@"

if ! command -v apt-get >/dev/null; then
    echo "setup: please install:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
fi

policy=/usr/sbin/policy-rc.d
# Two targets side by side: the second waits, and finds what the first has installed. The lock is on the policy's directory.
exec 9<"${policy%/*}"
flock 9
find_missing "$@"

echo "setup: installing$missing" >&2
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
log=$(mktemp)
# shellcheck disable=SC2086 -- $missing is a list
if ! { $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends $missing; } >"$log" 2>&1 9<&-; then
    cat "$log" >&2
    exit 1
fi
rm -f "$log"
