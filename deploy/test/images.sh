#!/usr/bin/env bash
# Builds every image, checks what each must hold, and says how large it is beyond what it stands on.
#
#   PROGRAMS_FROM=target/release   takes programs that were built before on the same Debian instead of compiling
#   BUILD_NETWORK=host             for engines whose builds reach no network otherwise
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_engine "images"

services="edge-proxy identity machine-registry session-store orchestrator voice-gateway runner"
limit_mib=40 # for a service, beyond its base
prefix=${IMAGE_PREFIX:-localhost/ensemble/}
version=${VERSION:-dev}
profile=${BUILD_PROFILE:-dist}
programs=programs
network=${BUILD_NETWORK:-default}
# The steps that copy files have no need of a network; those that install packages may need the host's.
build() {
    DOCKER_BUILDKIT=$buildkit "$docker" build --quiet --network "$network" -f deploy/docker/Dockerfile --target "$1" -t "$2" \
        --build-arg "PROGRAMS=$programs" --build-arg "PROFILE=$profile" --build-arg "VERSION=$version" \
        --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" . >/dev/null
}
if [ -n "${PROGRAMS_FROM:-}" ]; then
    programs=ensemble-programs
    profile="programs of $PROGRAMS_FROM"
    context=$(mktemp -d)
    trap 'rm -rf "$context"' EXIT
    for service in $services; do cp "$PROGRAMS_FROM/ensemble-$service" "$context/"; done
    cp "$PROGRAMS_FROM/ensemble" "$context/"
    printf 'FROM scratch\nCOPY ensemble ensemble-* /out/\n' >"$context/Dockerfile"
    DOCKER_BUILDKIT=$buildkit "$docker" build --quiet -t "$programs" "$context" >/dev/null
fi
for image in rust:1.95-slim-bookworm debian:bookworm-slim; do
    has_image "$image" || skip "images" "$image can be had from no registry; deploy/test/local-images.sh makes one"
done

failed=0
wrong() {
    echo "FAILED $1"
    failed=1
}
inspect() { "$docker" image inspect --format "$1" "$image"; }
# Runs a shell in the image as compose and the chart run the program: no root, nothing to write to.
within() { "$docker" run --rm --network none --read-only --cap-drop ALL --entrypoint sh "$image" -c "$1"; }

image=debian:bookworm-slim
base=$(inspect '{{.Size}}')
for service in $services; do
    image=$prefix$service:$version
    build "$service" "$image"
    beyond=$((($(inspect '{{.Size}}') - base) / 1048576))
    echo "$image is $beyond MiB beyond its base ($profile)"
    [ "$(inspect '{{.Config.User}}')" = 10001:10001 ] || wrong "$service does not run as 10001"
    [ "$(inspect '{{index .Config.Labels "org.opencontainers.image.version"}}')" = "$version" ] || wrong "$service has no version label"
    # The runner cannot be checked without a server.
    command="ensemble-$service config >/dev/null"
    [ "$service" != runner ] || command="ensemble-runner 2>&1 | grep -q ENSEMBLE_SERVER"
    within "$command && test \$(id -u) = 10001 && ! touch /var/lib/ensemble/x 2>/dev/null" || wrong "$service does not run on a read-only root"
    [ "$service" != runner ] || continue
    [ "$beyond" -le "$limit_mib" ] || wrong "$service is more than $limit_mib MiB beyond its base"
    [ "$(inspect '{{json .Config.Healthcheck.Test}}')" = "[\"CMD\",\"ensemble-$service\",\"healthcheck\"]" ] || wrong "$service has no health check"
    if [ "$service" = edge-proxy ]; then
        within "grep -aqE 'assets/[A-Za-z0-9_-]+[.]js[.]br' \$(command -v ensemble-edge-proxy)" || wrong "the edge has no web app"
        continue
    fi
    # The program is asked: it can hold its own libpq in addition to the one of the image.
    said=$(within "INTERNAL_TOKEN=$(printf '0%.0s' {1..40}) DATABASE_URL='postgres://u@127.0.0.1:1/d?sslmode=require' \
        DATABASE_START_TIMEOUT_MS=1 KEY_ENCRYPTION_KEY_FILE=/nowhere ensemble-$service migrate 2>&1" || true)
    [[ $said == *127.0.0.1* && $said != *"compiled in"* ]] || wrong "the libpq of $service speaks no TLS: $said"
done
image=${prefix}ensemble:$version
build ensemble "$image"
echo "$image is $((($(inspect '{{.Size}}') - base) / 1048576)) MiB beyond its base ($profile)"
[ "$(inspect '{{.Config.User}}')" = 10001:10001 ] || wrong "ensemble does not run as 10001"
within 'ensemble --version && ! touch /var/lib/ensemble/x 2>/dev/null' >/dev/null || wrong "ensemble does not run on a read-only root"
# As docs/OPERATIONS.md starts it: its log has the address of the first user.
container=$("$docker" run --detach --network none --read-only --tmpfs /tmp --cap-drop ALL --volume /data "$image")
first='http://127.0.0.1:8080/join#v1'
grep -m 1 -qF "$first" <(timeout 60 "$docker" logs --follow "$container" 2>&1) || wrong "ensemble names no address for its first user"
"$docker" stop --time 30 "$container" >/dev/null
[ "$("$docker" inspect --format '{{.State.ExitCode}}' "$container")" = 0 ] || wrong "ensemble does not end well"
"$docker" rm --volumes "$container" >/dev/null
image=${prefix}voice-agent:$version
if has_image python:3.12-slim-bookworm; then
    DOCKER_BUILDKIT=$buildkit "$docker" build --quiet --network "$network" -t "$image" \
        --label "org.opencontainers.image.version=$version" deploy/voice-agent >/dev/null
    echo "$image is $(($(inspect '{{.Size}}') / 1048576)) MiB with its base"
    [ "$(inspect '{{.Config.User}}')" = 10001 ] || wrong "voice-agent does not run as 10001"
else
    echo "skipped: image voice-agent (python:3.12-slim-bookworm can be had from no registry)"
fi
image=${prefix}backup:$version
postgres=${POSTGRES_IMAGE:-postgres:17-bookworm}
if has_image "$postgres"; then
    DOCKER_BUILDKIT=$buildkit "$docker" build --quiet --network "$network" -t "$image" --build-arg "POSTGRES_IMAGE=$postgres" \
        --build-arg "VERSION=$version" deploy/backup >/dev/null
    echo "$image is $((($(inspect '{{.Size}}') - $("$docker" image inspect --format '{{.Size}}' "$postgres")) / 1048576)) MiB beyond $postgres"
    [ "$(inspect '{{.Config.User}}')" = 10001:10001 ] || wrong "backup does not run as 10001"
    within 'pg_dump --version >/dev/null && age --version >/dev/null' || wrong "backup has no pg_dump or no age"
else
    echo "skipped: image backup ($postgres can be had from no registry)"
fi
[ $failed = 0 ] && echo "images: all hold"
exit $failed
