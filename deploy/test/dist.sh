#!/usr/bin/env bash
# Every way to install, with the program that `make dist` has built: sizes, the glibc that it needs, install.sh, the packages, `ensemble update`.
#
#   PROGRAM=target/release/ensemble   another program
#   NODES=/path/to/node:…             more programs of Node for the command of npm
set -euo pipefail
cd "$(dirname "$0")/../.."
PROGRAM=${PROGRAM:-target/dist/ensemble}
export PROGRAM
[ -x "$PROGRAM" ] || make --no-print-directory dist

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '{}' >"$work/sbom"
version=$("$PROGRAM" --version)
export RELEASE=$work/release
VERSION=${version#ensemble } NAMES=deploy/test/dist/names deploy/dist/pack.sh "$PROGRAM" "$work/sbom" "$RELEASE"

# In megabytes, as people see them next to a download.
largest() { # what, its file, megabytes
    local bytes
    bytes=$(wc -c <"$2")
    echo "$1: $((bytes / 1000000)) MB of $3"
    [ "$bytes" -le $(($3 * 1000000)) ] || { echo "$1 is larger than $3 MB" >&2; exit 1; }
}
deploy/dist/runs-on.sh "$PROGRAM"
node --test --test-reporter=spec deploy/test/dist/*.test.mjs
largest "the program" "$PROGRAM" 60
largest "the download" "$RELEASE"/*.tar.gz 25
