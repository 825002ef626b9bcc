# Sourced: finds the container engine and compose, or skips by name.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

# skip <what> <why>: for machines that cannot run it; says so and ends well. With NO_SKIP=1 it fails.
skip() {
    echo "skipped: $1 ($2)"
    [ -z "${NO_SKIP:-}" ] || exit 1
    exit 0
}

# need_engine <what>: $docker, $buildkit and $compose, or skipped.
need_engine() {
    docker=${DOCKER:-docker}
    command -v "$docker" >/dev/null || skip "$1" "no docker command"
    "$docker" info >/dev/null 2>&1 || skip "$1" "no container engine answers; deploy/test/local-engine.sh start brings one on Debian"
    # Clients from 23 on have BuildKit only with their part buildx; without it there is the builder of before.
    buildkit=1
    if ! "$docker" buildx version >/dev/null 2>&1; then
        client=$("$docker" version --format '{{.Client.Version}}')
        [ "${client%%.*}" -lt 23 ] || buildkit=0
    fi
    if "$docker" compose version >/dev/null 2>&1; then
        compose=("$docker" compose)
    elif command -v docker-compose >/dev/null && docker-compose version --short 2>/dev/null | grep -q '^v\?[2-9]'; then
        compose=(docker-compose)
    else
        compose=()
    fi
}

need_compose() {
    need_engine "$1"
    [ ${#compose[@]} -gt 0 ] || skip "$1" "no docker compose of version 2"
}

# Whether an image is here or can be had.
has_image() {
    "$docker" image inspect "$1" >/dev/null 2>&1 || "$docker" pull --quiet "$1" >/dev/null 2>&1
}
