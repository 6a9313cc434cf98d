#!/bin/sh
# Print the folder of the programs that packages are built by. They are installed into build/packaging, in the versions of
# requirements.txt, where they are not there yet.
set -eu
cd "$(dirname "$0")/../.."
tools=build/packaging
if ! cmp -s deploy/packaging/requirements.txt "$tools/requirements.txt"; then
    rm -rf "$tools"
    "${PYTHON:-python3}" -m venv "$tools"
    "$tools/bin/pip" install --quiet --require-hashes --requirement deploy/packaging/requirements.txt >&2
    cp deploy/packaging/requirements.txt "$tools/requirements.txt"
fi
echo "$tools/bin"
