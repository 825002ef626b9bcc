#!/usr/bin/env bash
# A container engine of its own on Debian or Ubuntu, as root, with its own data folder: for machines that have none.
#
#   deploy/test/local-engine.sh start [folder]     then: export DOCKER_HOST=unix://<folder>/docker.sock
#   deploy/test/local-engine.sh stop [folder]
set -euo pipefail
folder=${2:-/var/tmp/ensemble-engine}

# plugin <name> <module> <package>: builds a part of the docker command that is missing.
plugin() {
    if docker "$1" version >/dev/null 2>&1 || ! command -v go >/dev/null; then return; fi
    local source copy
    source=$(go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    copy=$(mktemp -d)
    cp -r "$source/." "$copy" && chmod -R u+w "$copy" && mkdir -p ~/.docker/cli-plugins
    (cd "$copy" && go build -mod=mod -o ~/.docker/cli-plugins/docker-"$1" "$3") || echo "docker $1 was not built" >&2
    rm -rf "$copy"
}

case ${1:-} in
    start)
        [ "$(id -u)" = 0 ] || { echo "an engine of its own needs root" >&2; exit 1; }
        if ! command -v dockerd >/dev/null || ! command -v debootstrap >/dev/null; then
            DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends docker.io debootstrap iptables
        fi
        # Debian has Compose 1 and no buildx. The modules cannot be installed by name, because they replace some of their own.
        plugin compose github.com/docker/compose/v2@v2.40.3 ./cmd
        plugin buildx github.com/docker/buildx@v0.23.0 ./cmd/buildx
        mkdir -p "$folder"
        setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" \
            -H "unix://$folder/docker.sock" >"$folder/log" 2>&1 </dev/null &
        for _ in $(seq 100); do
            if DOCKER_HOST="unix://$folder/docker.sock" docker info >/dev/null 2>&1; then
                echo "export DOCKER_HOST=unix://$folder/docker.sock"
                exit 0
            fi
            sleep 0.2
        done
        tail -5 "$folder/log" >&2
        exit 1
        ;;
    stop)
        if [ -f "$folder/pid" ]; then
            pid=$(cat "$folder/pid")
            kill "$pid"
            while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
        fi
        ;;
    *)
        echo "local-engine.sh start|stop [folder]" >&2
        exit 64
        ;;
esac
