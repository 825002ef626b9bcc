#!/usr/bin/env bash
# deploy/compose/upgrade.sh with small stand-ins for the services (a shell and a web server that tells its version): what is
# replaced, in which order, how many stay, and what happens when the new one is broken. `make compose-test` has the real ones.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_compose "upgrade-test"
busybox=${BUSYBOX:-$(command -v busybox || true)}
[ -n "$busybox" ] || skip "upgrade-test" "no static busybox; Debian's package busybox-static has one"

port=${EDGE_PORT:-18180}
work=$(mktemp -d)
services="identity machine-registry session-store orchestrator voice-gateway edge-proxy"
cp "$busybox" "$work/busybox"
cat >"$work/run.sh" <<'RUN'
if [ "${1:-}" = migrate ]; then echo "$VERSION" >>/state/migrated; exit; fi
[ "$VERSION" != broken ] || exit 1
mkdir -p /tmp/www && echo "$VERSION" >/tmp/www/version
exec /bin/busybox httpd -f -p 8080 -h /tmp/www
RUN
cat >"$work/Dockerfile" <<'IMAGE'
FROM scratch
COPY busybox /bin/busybox
COPY run.sh /run.sh
ARG VERSION
ENV VERSION=$VERSION
HEALTHCHECK --interval=1s --timeout=3s --retries=3 CMD ["/bin/busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/version"]
ENTRYPOINT ["/bin/busybox", "sh", "/run.sh"]
IMAGE
{
    echo "services:"
    for once in secrets databases; do
        printf '  %s: { image: "localhost/upgrade-test/identity:one", entrypoint: ["/bin/busybox", "true"] }\n' $once
    done
    for service in $services; do
        printf '  %s:\n    image: localhost/upgrade-test/%s:${ENSEMBLE_VERSION:-one}\n    init: true\n    tmpfs: [/tmp]\n    volumes: ["state:/state"]\n' "$service" "$service"
        [ "$service" != edge-proxy ] || printf '    ports: ["127.0.0.1:${EDGE_PORTS:-%s}:8080"]\n' "$port"
    done
    printf '  backup: { image: "localhost/upgrade-test/backup:${ENSEMBLE_VERSION:-one}", profiles: [backup] }\n'
    echo "volumes: { state: }"
} >"$work/compose.yml"
export DOCKER="$docker" COMPOSE="${compose[*]} -f $work/compose.yml -p ensemble-upgrade-test" SETTLE_SECONDS=0
read -ra dc <<<"$COMPOSE"
finish() {
    status=$?
    "${dc[@]}" down --volumes --timeout 1 >/dev/null 2>&1 || true
    rm -rf "$work"
    exit $status
}
trap finish EXIT
build() { # <version>
    for service in $services backup; do
        "$docker" build --quiet --build-arg "VERSION=$1" -t "localhost/upgrade-test/$service:$1" "$work" >/dev/null 2>&1
    done
}
versions() { # <service>: of each of its containers, in one line
    for id in $("${dc[@]}" ps --quiet --status running "$1"); do "$docker" exec "$id" /bin/busybox cat /tmp/www/version; done | tr '\n' ' '
}
is() { # <what> <seen> <wanted>
    [ "$2" = "$3" ] || { echo "FAILED $1: $2 and not $3"; exit 1; }
    echo "ok  $1"
}

build one
build two
build broken
EDGE_PORTS=$port-$((port + 3)) "${dc[@]}" up -d --wait --scale session-store=3 --scale edge-proxy=2 $services >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# A request every moment, to the ports of both edges, as a load balancer sends it on when one refuses.
: >"$work/refused"
(while [ ! -e "$work/done" ]; do
    for p in $(seq "$port" $((port + 3))); do curl -fsS -m 5 "http://127.0.0.1:$p/version" >/dev/null 2>&1 && continue 2; done
    echo refused >>"$work/refused"
done) &
load=$!

export EDGE_PORTS=$port-$((port + 3)) ENSEMBLE_VERSION=two
deploy/compose/upgrade.sh >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
touch "$work/done" && wait $load
is "three replicas stay three" "$(versions session-store)" "two two two "
is "two edges stay two" "$(versions edge-proxy)" "two two "
is "one stays one" "$(versions identity)" "two "
is "no moment without an edge" "$(wc -l <"$work/refused")" 0
is "each database is migrated once" "$("$docker" exec "$("${dc[@]}" ps -q identity)" /bin/busybox cat /state/migrated | tr '\n' ' ')" "two two two two two "

before=$("${dc[@]}" ps --quiet --all | sort)
if ENSEMBLE_VERSION=broken HEALTHY_SECONDS=20 deploy/compose/upgrade.sh session-store >"$work/log" 2>&1; then echo "FAILED a broken version is installed"; exit 1; fi
is "a broken version takes nothing away" "$("${dc[@]}" ps --quiet --all | sort)" "$before"

ENSEMBLE_VERSION=two deploy/compose/upgrade.sh --back edge-proxy >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
is "back is the version before" "$(versions edge-proxy)" "one one "
id() { "$docker" image inspect --format '{{.Id}}' "localhost/upgrade-test/$1"; }
is "an image that was not replaced is found by the tag of before" "$(id backup:previous)" "$(id backup:two)"

# One port: the old edge has to end before the new one can listen.
"${dc[@]}" down --timeout 1 >/dev/null 2>&1
export EDGE_PORTS=$port
ENSEMBLE_VERSION=one "${dc[@]}" up -d --wait $services >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ENSEMBLE_VERSION=two deploy/compose/upgrade.sh edge-proxy >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
is "an edge with one port is replaced, too" "$(versions edge-proxy)$(curl -fsS "http://127.0.0.1:$port/version")" "two two"
if ENSEMBLE_VERSION=broken HEALTHY_SECONDS=20 deploy/compose/upgrade.sh edge-proxy >"$work/log" 2>&1; then echo "FAILED a broken edge is installed"; exit 1; fi
is "after a broken edge the old one serves again" "$(curl -fsS --retry 10 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$port/version")" two

# killed <what to wait for>: a call of upgrade.sh edge-proxy that is killed, with all that it has started, when that is so.
killed() {
    setsid deploy/compose/upgrade.sh "${@:2}" >"$work/log" 2>&1 &
    local call=$!
    for _ in $(seq 600); do
        if $1; then break; fi
        kill -0 $call 2>/dev/null || { cat "$work/log"; echo "FAILED the call ended before $1"; exit 1; }
        sleep 0.1
    done
    kill "-${signal:-9}" -- "-$call"
    wait $call 2>/dev/null && ended=0 || ended=$?
}
two_run() { [ "$("${dc[@]}" ps --quiet --status running identity | wc -l)" = 2 ]; }
SETTLE_SECONDS=60 ENSEMBLE_VERSION=one killed two_run identity
ENSEMBLE_VERSION=one deploy/compose/upgrade.sh identity >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
is "a call that was killed with two replicas leaves none too many" "$(versions identity)" "one "

signal=HUP SETTLE_SECONDS=5 ENSEMBLE_VERSION=two killed two_run identity session-store
is "a call whose terminal goes ends its step, and says so" "$ended $(versions identity)$(versions session-store)" "130 two one "
ENSEMBLE_VERSION=two deploy/compose/upgrade.sh >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
is "the next call continues" "$(versions identity)$(versions session-store)$(versions edge-proxy)" "two two two "

# The edge with one port is away when its new container does not start.
cat >"$work/docker" <<SLOW
#!/bin/sh
[ "\$1" != start ] || sleep 600
exec $(command -v "$docker") "\$@"
SLOW
chmod +x "$work/docker"
edge_is_away() { [ -z "$("${dc[@]}" ps --quiet --status running edge-proxy)" ]; }
DOCKER="$work/docker" ENSEMBLE_VERSION=one killed edge_is_away edge-proxy
ENSEMBLE_VERSION=one deploy/compose/upgrade.sh edge-proxy >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
is "a call that was killed without an edge is finished by the next" "$(versions edge-proxy)$(curl -fsS "http://127.0.0.1:$port/version")" "one one"
is "nothing is left of it" "$("${dc[@]}" ps --quiet --all edge-proxy | wc -l)" 1

"${dc[@]}" stop --timeout 1 orchestrator >/dev/null 2>&1
if ENSEMBLE_VERSION=two deploy/compose/upgrade.sh orchestrator machine-registry >"$work/log" 2>&1; then echo "FAILED a service that does not run is passed over"; exit 1; fi
is "a service that does not run is named, the others are replaced" "$(grep -c "orchestrator does not run" "$work/log") $(versions machine-registry)" "1 two "
echo "upgrade-test: everything holds"
