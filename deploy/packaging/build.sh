#!/bin/sh
# Build omniwatch_VERSION_ARCH.deb and omniwatch-desk_VERSION_ARCH.deb into dist/, for amd64 and arm64 or the architectures named.
# DIST names another folder, and WHEEL a wheel that is built already.
# The same commit gives the same bytes: every file in them has the commit's time, or SOURCE_DATE_EPOCH.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- amd64 arm64
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
umask 022
bin=${BIN:-.venv/bin}
tools=$(PYTHON="$bin/python" deploy/packaging/tools.sh)
work=build/deb

rm -rf "$work"
dist=${DIST:-dist}
mkdir -p "$work" "$dist"
wheel=${WHEEL:-$("$bin/python" deploy/packaging/wheel.py "$tools" "$work")}
VERSION=$(basename "$wheel" | cut -d- -f2)
export VERSION
for ARCH in "$@"; do
    "$bin/python" deploy/packaging/tree.py "$ARCH" "$wheel" "$work/$ARCH"
    find "$work/$ARCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    for package in omniwatch omniwatch-desk; do
        export ARCH TREE="$work/$ARCH/$package"
        # nfpm itself puts no variables into Breaks.
        sed "s/\${VERSION}/$VERSION/" "deploy/packaging/$package.yaml" >"$work/$package.yaml"
        "$tools/nfpm" package --config "$work/$package.yaml" --packager deb --target "$dist/"
    done
done
