#!/usr/bin/env bash
# Puts what `make dist` has made into the forge's release of a tag. The first that comes makes the release.
#
#   VERSION=1.2.3   the release; the commit is tagged v1.2.3
#   GH_TOKEN        what GitHub's program `gh` signs in with
#   DRY_RUN=1       says what it would do, and does nothing
set -euo pipefail
cd "$(dirname "$0")/../.."
run() {
    echo "+ $*"
    [ -n "${DRY_RUN:-}" ] || "$@"
}
[[ ${VERSION:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "VERSION is a version of three numbers, as in 1.2.3" >&2; exit 1; }
target=$(rustc -vV | sed -n 's/^host: //p')
name=dist/ensemble-$VERSION-$target
if [ -z "${DRY_RUN:-}" ]; then
    [ -s "$name.tar.gz" ] || { echo "$name.tar.gz is not there: make dist" >&2; exit 1; }
    # Each kind of machine has sums of its own.
    mv dist/SHA256SUMS "$name.sha256"
fi
kind=()
[[ $VERSION == *-* ]] && kind=(--prerelease)
# Another kind of machine may have made it a moment ago.
run gh release create "v$VERSION" --verify-tag --title "$VERSION" --notes "CHANGELOG.md says what is new." "${kind[@]}" || run gh release view "v$VERSION"
run gh release upload "v$VERSION" --clobber "$name.tar.gz" "$name.sbom.cdx.json" "$name.sha256"
