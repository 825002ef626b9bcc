#!/usr/bin/env bash
# Publishes a release: images for several processors with their SBOM and provenance, the chart, and a signature of each. Then it writes
# dist/digests.yaml, the values with which the chart takes exactly these images.
#
#   REGISTRY=registry.example.com/   where to push to, with a slash at the end; sign in with `docker login` and `helm registry login`
#   VERSION=1.2.3                    the tag; default: the version of Cargo.toml. The commit must be tagged v1.2.3, and be clean
#   PLATFORMS=linux/amd64,linux/arm64
#   COSIGN_KEY=cosign.key            a key to sign with; without it cosign signs with the identity of the forge's workflow
#   DRY_RUN=1                        says what it would do, and does nothing
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() {
    echo "$*" >&2
    exit 1
}
run() {
    echo "+ $*"
    [ -n "${DRY_RUN:-}" ] || "$@"
}
REGISTRY=${REGISTRY:-}
# Registries take no capitals, and owners on forges may have some.
REGISTRY=${REGISTRY,,}
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
REVISION=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export REGISTRY VERSION REVISION SOURCE_DATE_EPOCH
prefix=${PREFIX:-ensemble/}
services="edge-proxy identity machine-registry session-store orchestrator voice-gateway runner ensemble voice-agent backup"
helm=${HELM:-.cache/deploy/bin/helm}

# Everything that can be wrong is found before anything is pushed.
[[ $REGISTRY =~ ^[^/]+.*/$ ]] || fail "REGISTRY is the registry that you push to, with a slash at the end: REGISTRY=registry.example.com/ make publish"
[[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION is a version of three numbers, as in 1.2.3"
grep -q "^## \[\?$VERSION\]\?" CHANGELOG.md || [ -n "${DRY_RUN:-}" ] || fail "CHANGELOG.md has no section $VERSION"
if [ -z "${DRY_RUN:-}" ]; then
    [ -z "$(git status --porcelain)" ] || fail "the folder has changes that are in no commit"
    [ "$(git tag --points-at HEAD --list "v$VERSION")" = "v$VERSION" ] || fail "the commit is not tagged v$VERSION"
    for tool in docker cosign; do command -v $tool >/dev/null || fail "the program $tool is needed"; done
    docker buildx version >/dev/null 2>&1 || fail "docker has no buildx"
    [ -x "$helm" ] || fail "helm is needed: make chart-package installs it"
fi
sign=(cosign sign --yes)
[ -z "${COSIGN_KEY:-}" ] || sign+=(--key "$COSIGN_KEY")

digests=dist/digests.yaml
[ -z "${DRY_RUN:-}" ] || digests=/dev/stdout
mkdir -p dist
run docker buildx bake --file deploy/release/docker-bake.hcl --push --metadata-file dist/images.json
{
    echo "# The images of $VERSION by what is in them. helm install … -f digests.yaml"
    echo "image:"
    echo "  registry: $REGISTRY"
    echo "  prefix: $prefix"
    echo "  tag: $VERSION"
    echo "  digests:"
} >"$digests"
for service in $services; do
    digest=sha256:…
    if [ -z "${DRY_RUN:-}" ]; then
        digest=$(python3 -c 'import json, sys; print(json.load(open("dist/images.json"))[sys.argv[1]]["containerimage.digest"])' "$service")
    fi
    run "${sign[@]}" --recursive "$REGISTRY$prefix$service@$digest"
    # The chart runs no runner, and each service in its own image.
    [ "$service" = runner ] || [ "$service" = ensemble ] || echo "    $service: $digest" >>"$digests"
done

run "$helm" package deploy/helm/ensemble --version "$VERSION" --app-version "$VERSION" --destination dist
run "$helm" push "dist/ensemble-$VERSION.tgz" "oci://${REGISTRY}${prefix}charts"
run "${sign[@]}" "${REGISTRY}${prefix}charts/ensemble:$VERSION"
[ -n "${DRY_RUN:-}" ] || echo "$VERSION is published. Its digests are in dist/digests.yaml."
