#!/usr/bin/env bash
# Puts what `make dist` has made on each kind of machine, all together in dist/, into the forge's release of a tag, with the signature of each
# archive's sums, and the packages into npm. The release is a draft until everything is in it, and the same command continues one that failed.
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
fail() {
    echo "$*" >&2
    exit 1
}
[[ ${VERSION:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION is a version of three numbers, as in 1.2.3"
export VERSION
targets="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-apple-darwin"
for target in $targets; do
    [ -s "dist/ensemble-$VERSION-$target.tar.gz" ] || [ -n "${DRY_RUN:-}" ] || fail "dist/ has no archive of $VERSION for $target: make dist"
done
is_draft=none
[ -n "${DRY_RUN:-}" ] || is_draft=$(gh release view "v$VERSION" --json isDraft --jq .isDraft 2>/dev/null) || is_draft=none
if [ "$is_draft" = false ]; then
    echo "v$VERSION is published already"
    exit
fi
# The formula has the sums of all machines.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
NAMES=deploy/release/names run deploy/dist/ways.py dist
for target in $targets; do
    sums=dist/ensemble-$VERSION-$target.sha256
    run cosign sign-blob --yes --new-bundle-format --bundle "$sums.sigstore.json" "$sums"
done
kind=() tag=latest
[[ $VERSION != *-* ]] || kind=(--prerelease) tag=next
[ "$is_draft" = true ] || run gh release create "v$VERSION" --draft --verify-tag --title "$VERSION" --notes "CHANGELOG.md says what is new." "${kind[@]}"
files=(dist/ensemble-"$VERSION"-* dist/install.sh dist/VERSION)
[ ! -e dist/ensemble.rb ] || files+=(dist/ensemble.rb)
run gh release upload "v$VERSION" --clobber "${files[@]}"
# npm never takes a version twice.
is_in_npm() {
    local about name
    about='import json, sys; one = json.load(sys.stdin); print(one["name"] + "@" + one["version"])'
    name=$(tar -xzOf "$1" package/package.json | python3 -c "$about")
    [ -z "${DRY_RUN:-}" ] && [ -n "$(npm view "$name" version 2>/dev/null)" ]
}
# The command comes after the programs that it needs.
for package in dist/npm/*-{darwin,linux}-*.tgz dist/npm/*-ensemble-"$VERSION".tgz; do
    [ ! -e "$package" ] || is_in_npm "$package" || run npm publish "$package" --access public --provenance --tag "$tag"
done
run gh release edit "v$VERSION" --draft=false
