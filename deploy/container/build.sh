#!/bin/sh
# Build the images localhost/omniwatch:VERSION and localhost/omniwatch-desk:VERSION with buildah, and save each into dist/.
#   deploy/container/build.sh [ARCH]      ARCH as Debian names it; this machine's by default
# BASE names the image that they stand on, PYTHON_OF_BASE its Python; DIST another folder, WHEEL a wheel that is built already.
# The same commit and base give the same files.
set -eu
cd "$(dirname "$0")/../.."
arch=${1:-$(dpkg --print-architecture)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
base=${BASE:-docker.io/library/debian:bookworm-slim}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
bin=${BIN:-.venv/bin}
tools=$(PYTHON="$bin/python" deploy/packaging/tools.sh)
dist=${DIST:-dist}
work=build/image/$arch

if ! command -v buildah >/dev/null; then
    echo "image: buildah is missing: apt-get install buildah" >&2
    exit 2
fi
rm -rf "$work"
mkdir -p "$work" "$dist"
wheel=${WHEEL:-$("$bin/python" deploy/packaging/wheel.py "$tools" "$work")}
version=$(basename "$wheel" | cut -d- -f2)
"$bin/python" deploy/packaging/fetch.py "$arch" "${PYTHON_OF_BASE:-3.11}" "$wheel" "$work/wheels"
cp "$wheel" "$work/wheels"
cp deploy/container/leave_out.py "$work"
for target in device desk; do
    name=omniwatch
    [ $target = device ] || name=omniwatch-desk
    # Only docker's format has a health check.
    buildah build ${ISOLATION:+--isolation="$ISOLATION"} --format docker --arch "$arch" --timestamp "$SOURCE_DATE_EPOCH" --layers=false \
        --build-arg BASE="$base" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
        --target $target --tag "localhost/$name:$version" --file deploy/container/Containerfile "$work" >&2
    archive=$dist/${name}_${version}_$arch.image.tar
    buildah push --quiet "localhost/$name:$version" "docker-archive:$work/image.tar:localhost/$name:$version"
    "$bin/python" deploy/container/settle.py "$work/image.tar" "$archive"
    rm "$work/image.tar"
    gzip --no-name --force "$archive"
    echo "$archive.gz"
done
