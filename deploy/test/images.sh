#!/usr/bin/env bash
# Builds every image and says how large each is beyond what it stands on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_engine "images"

services="edge-proxy identity machine-registry session-store orchestrator voice-gateway runner"
limit_mib=40 # for a service, beyond its base
prefix=${IMAGE_PREFIX:-ensemble/}
version=${VERSION:-dev}
profile=${BUILD_PROFILE:-dist}
network=${BUILD_NETWORK:-default}
# The steps that copy files have no need of a network; those that install packages may need the host's.
build() {
    DOCKER_BUILDKIT=1 "$docker" build --quiet --network "$network" -f deploy/docker/Dockerfile --target "$1" -t "$2" \
        --build-arg "PROFILE=$profile" --build-arg "VERSION=$version" \
        --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" . >/dev/null
}
for image in rust:1.95-slim-bookworm debian:bookworm-slim; do
    has_image "$image" || skip "images" "$image can be had from no registry; deploy/test/local-images.sh makes one"
done

size() { "$docker" image inspect --format '{{.Size}}' "$1"; }
base=$(size debian:bookworm-slim)
failed=0
for service in $services; do
    build "$service" "$prefix$service:$version"
    beyond=$((($(size "$prefix$service:$version") - base) / 1048576))
    echo "$prefix$service:$version is $beyond MiB beyond its base"
    if [ "$service" != runner ] && [ "$profile" = dist ] && [ "$beyond" -gt "$limit_mib" ]; then
        echo "FAILED $service is more than $limit_mib MiB beyond its base"
        failed=1
    fi
done
if has_image python:3.12-slim-bookworm; then
    DOCKER_BUILDKIT=1 "$docker" build --quiet --network "$network" -t "${prefix}voice-agent:$version" deploy/voice-agent >/dev/null
else
    echo "skipped: image voice-agent (python:3.12-slim-bookworm can be had from no registry)"
fi
exit $failed
