#!/usr/bin/env bash
# `docker compose up` from this checkout, and then: the whole scenario through the published port, replicas, a rolling restart
# of every service under load, an upgrade and the way back with two builds, each secret rotated, the database killed for 20 s,
# telemetry without a collector, a backup that is restored.
#
#   KEEP=1        leaves everything running at the end
#   RATE=200      requests a second of the load
#   ONLY=scenario    stops after that step: scenario, rolling, upgrade, rotation, outage, restore
#   SKIP=rolling  leaves that step out (or several: SKIP="scenario rolling upgrade rotation")
#   NEXT_VERSION=next   the tag of the second build, made from this checkout where it is not there
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_compose "compose-test"
for image in postgres:17-bookworm livekit/livekit-server:v1.13.5; do
    has_image "$image" || skip "compose-test" "$image can be had from no registry; deploy/test/local-images.sh makes one"
done

port=${EDGE_PORT:-18080}
export COMPOSE_PROJECT_NAME=ensemble-test ENSEMBLE_VERSION=${ENSEMBLE_VERSION:-dev}
export EDGE_PORT=$port LIVEKIT_PORT=${LIVEKIT_PORT:-17880} LIVEKIT_TCP_PORT=${LIVEKIT_TCP_PORT:-17881} LIVEKIT_UDP_PORT=${LIVEKIT_UDP_PORT:-17882}
export PUBLIC_BASE_URL=http://127.0.0.1:$port PUBLIC_ORIGINS=http://127.0.0.1:$port
# The load comes from one address and few accounts.
export LIMIT_ACCOUNT=0 LIMIT_ADDRESS=0 LIMIT_MACHINE=0 LIMIT_SIGN_IN=0 LIMIT_PUBLIC_LINK=0 LIMIT_DEVICE_LINK=0 LIMIT_LOOK=0 LIMIT_NEW_ACCOUNTS=0
rate=${RATE:-200}
url=http://127.0.0.1:$port
work=$(mktemp -d)
services="identity machine-registry session-store orchestrator voice-gateway"

dc() { "${compose[@]}" "$@"; }
step() { printf '\n== %s\n' "$1"; }
done_after() { [ "${ONLY:-}" != "$1" ] || exit 0; }
finish() {
    status=$?
    if [ $status -ne 0 ]; then dc logs --tail 15 2>/dev/null | tail -80; fi
    [ -n "${KEEP:-}" ] || dc down --volumes --timeout 20 >/dev/null 2>&1 || true
    rm -rf "$work"
    exit $status
}
trap finish EXIT

skips() { [[ " ${SKIP:-} " == *" $1 "* ]]; }
# Asks the engine itself: compose takes a second for each question.
containers() {
    "$docker" ps -aq --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --filter "label=com.docker.compose.service=$1" --filter label=com.docker.compose.oneoff=False
}
# healthy <container>: waits until its own health check says so.
healthy() {
    for _ in $(seq 300); do
        [ "$("$docker" inspect --format '{{.State.Health.Status}}' "$1")" = healthy ] && return
        sleep 0.2
    done
    echo "$1 does not become healthy" >&2
    return 1
}
# address <container>: in the network that all services share.
address() { "$docker" inspect --format "{{(index .NetworkSettings.Networks \"${COMPOSE_PROJECT_NAME}_front\").IPAddress}}" "$1"; }
# The edges one by one, as a load balancer knows them.
edges() {
    local edge
    for edge in $(containers edge-proxy); do
        echo "$(address "$edge"):8080"
    done >"$work/edges.new"
    mv "$work/edges.new" "$work/edges"
}

for service in $services edge-proxy; do
    "$docker" image inspect "${IMAGE_PREFIX:-localhost/ensemble/}$service:$ENSEMBLE_VERSION" >/dev/null 2>&1 || dc build "$service"
done

step "up, and nothing else"
began=$SECONDS
dc up -d
healthy "$(containers edge-proxy)"
echo "ready after $((SECONDS - began)) s"

scenario() {
    step "the scenario, through the published port"
    VOICE_PUBLIC_KEY=$("$docker" exec "$(containers voice-gateway)" cat /secrets/voice-public-key) python3 deploy/test/scenario.py scenario "$url"

    step "no collector: nothing slower, nothing refused"
    lost=$(for service in $services edge-proxy; do "$docker" logs "$(containers "$service")" 2>&1 | grep '"level":"ERROR"' || true; done)
    [ -z "$lost" ] || { echo "FAILED errors in the logs: $lost"; exit 1; }
    echo "ok  no error in any log while spans go nowhere"
}
if ! skips scenario; then scenario; fi
done_after scenario

rolling() {
    step "three replicas of every service, restarted one after the other under $rate requests a second"
    scale=()
    for service in $services edge-proxy; do scale+=(--scale "$service=3"); done
    EDGE_PORTS=$port-$((port + 2)) dc up -d "${scale[@]}" >/dev/null 2>&1
    for service in $services edge-proxy; do for id in $(containers "$service"); do healthy "$id"; done; done
    edges
    python3 deploy/test/scenario.py load "$url" --rate "$rate" --seconds 600 --until "$work/done" --edges "$work/edges" \
        --out "$work/rolling.json" >"$work/rolling.log" 2>&1 &
    loader=$!
    until grep -q loading "$work/rolling.log" 2>/dev/null; do kill -0 $loader || { cat "$work/rolling.log"; exit 1; }; sleep 0.2; done
    for service in ${ROLLING:-$services edge-proxy}; do
        for id in $(containers "$service"); do
            "$docker" restart --time 40 "$id" >/dev/null
            healthy "$id"
            edges
            # As a Deployment waits (minReadySeconds), so that the edge has found the new one.
            sleep 3
            echo "$(date -u +%T) restarted $service $(echo "$id" | cut -c1-8)"
        done
    done
    touch "$work/done"
    wait $loader || { cat "$work/rolling.log"; exit 1; }
    cat "$work/rolling.log"
    dc up -d >/dev/null 2>&1
    healthy "$(containers edge-proxy)"
    python3 deploy/test/scenario.py check "$url" "$work/rolling.json"
}
if ! skips rolling; then rolling; fi
done_after rolling

source deploy/test/compose_upgrade.sh
if ! skips upgrade; then upgrade; fi
done_after upgrade

source deploy/test/compose_rotate.sh
if ! skips rotation; then rotation; fi
done_after rotation

step "PostgreSQL killed for 20 s under load"
database=$(containers postgres)
python3 deploy/test/scenario.py outage "$url" --rate "${OUTAGE_RATE:-50}" --seconds 60 --out "$work/outage.json" \
    --kill "$docker kill --signal KILL $database" --heal "$docker start $database" --ready "$docker logs -t $database"
python3 deploy/test/scenario.py check "$url" "$work/outage.json"
done_after outage

step "a backup, everything removed, the backup restored"
COMPOSE="${compose[*]}" deploy/compose/backup.sh "$work/backup"
dc down --volumes --timeout 20 >/dev/null 2>&1
COMPOSE="${compose[*]}" deploy/compose/restore.sh "$work"/backup/*
dc up -d >/dev/null 2>&1
healthy "$(containers edge-proxy)"
python3 deploy/test/scenario.py check "$url" "$work/outage.json"
done_after restore
echo
echo "compose-test: everything holds"
