#!/usr/bin/env bash
# Checks what a release is made with, up to the push: that every image is in the list of the release, what a dry run says and what it
# refuses, and the workflows of the forge.
#
#   release.sh <folder of tools>
set -euo pipefail
tools=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
done=0
failed=0
that() { # what, then a command
    local what=$1
    shift
    done=$((done + 1))
    "$@" || { echo "FAILED $what"; failed=$((failed + 1)); }
}
bake=deploy/release/docker-bake.hcl

# Images that the chart, compose and the Dockerfile know.
for service in $(sed -n 's/^FROM base\S* AS \(.*\)/\1/p' deploy/docker/Dockerfile | grep -v '^base') voice-agent backup; do
    that "$service is in no release" grep -q "\"$service\"" "$bake"
    that "$service is not signed" grep -q "^services=.*\b$service\b" deploy/release/publish.sh
    [ "$service" = runner ] || [ "$service" = ensemble ] || that "the chart takes no digest of $service" grep -q "\"$service\": {" deploy/helm/ensemble/values.schema.json
done

refuses() { # word, then variables
    local word=$1 said
    shift
    said=$(env -u REGISTRY -u VERSION "$@" deploy/release/publish.sh 2>&1) && return 1
    [[ $said == *"$word"* ]]
}
that "no registry is accepted" refuses REGISTRY DRY_RUN=1
that "a registry without a slash is accepted" refuses REGISTRY DRY_RUN=1 REGISTRY=registry.example.com
that "a version of two numbers is accepted" refuses "three numbers" DRY_RUN=1 REGISTRY=registry.example.com/ VERSION=1.2
that "a commit without a tag is published" refuses "" REGISTRY=registry.example.com/ VERSION=99.0.0
said=$(DRY_RUN=1 REGISTRY=ghcr.io/Some-Owner/ VERSION=1.2.3 deploy/release/publish.sh)
that "a registry with capitals is used as it is" grep -q 'ghcr.io/some-owner/ensemble/edge-proxy@' <<<"$said"
said=$(DRY_RUN=1 REGISTRY=registry.example.com/ VERSION=1.2.3 deploy/release/publish.sh)
that "a dry run signs less than it builds" [ "$(grep -c '^+ cosign sign' <<<"$said")" = 11 ]
that "a dry run pushes no chart" grep -q 'push dist/ensemble-1.2.3.tgz oci://registry.example.com/ensemble/charts' <<<"$said"

said=$(DRY_RUN=1 VERSION=1.2.3-rc.1 deploy/release/archive.sh)
that "a candidate is no prerelease" grep -q '^+ gh release create v1.2.3-rc.1 --draft .*--prerelease' <<<"$said"
that "the sums of an archive are not signed" [ "$(grep -c '^+ cosign sign-blob .*\.sha256$' <<<"$said")" = 4 ]
that "a release is seen before everything is in it" [ "$(tail -n 1 <<<"$said")" = "+ gh release edit v1.2.3-rc.1 --draft=false" ]
that "a release has no install.sh" grep -q '^+ gh release upload v1.2.3-rc.1 .*dist/install.sh dist/VERSION' <<<"$said"
that "an archive of two numbers is published" eval '! DRY_RUN=1 VERSION=1.2 deploy/release/archive.sh 2>/dev/null'

for script in deploy/release/*.sh deploy/release/deb/p* deploy/dist/*.sh; do that "$script" bash -n "$script"; done
# A workflow decides nothing: each step is an action or a target of the Makefile.
steps=$(sed -n 's/^ *- run: //p' .github/workflows/*.yml)
that "a workflow does more than make: $steps" [ -z "$(grep -v '^\(sudo \)\?make [a-z -]*\( VERSION=.*\)\?$' <<<"$steps")" ]
for target in $(sed 's/^\(sudo \)\?make //; s/ VERSION=.*//' <<<"$steps"); do
    that "a workflow calls $target, which no Makefile has" grep -qhE "^$target:" Makefile $(git ls-files '*.mk')
done
# A tag can be moved to other code, and the steps hold the registry's password.
unpinned=$(grep -h 'uses:' .github/workflows/*.yml | grep -vE 'uses: [^@]+@[0-9a-f]{40} # v[0-9]' || true)
that "an action is not named by its commit: $unpinned" [ -z "$unpinned" ]
if [ -x "$tools/bin/actionlint" ]; then
    that "actionlint" "$tools/bin/actionlint" .github/workflows/*.yml
else
    echo "skipped: the workflows (actionlint is not installed)"
fi
if docker buildx version >/dev/null 2>&1; then
    REGISTRY=registry.example.com/ VERSION=1.2.3 docker buildx bake --file "$bake" --print >"$tools/bake.json"
    targets='import json, sys; t = json.load(open(sys.argv[1]))["target"]; sys.exit(not (len(t) == 10 and all(len(x["attest"]) == 2 and len(x["platforms"]) == 2 for x in t.values())))'
    that "images of the release" python3 -c "$targets" "$tools/bake.json"
else
    echo "skipped: the images of the release (docker has no buildx)"
fi
echo "release-check: $((done - failed)) of $done checks hold"
exit $((failed > 0))
