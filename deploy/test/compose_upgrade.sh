# Sourced by compose.sh: deploy/compose/upgrade.sh with the services themselves and two builds of them, under load. First two
# replicas of everything with the edges behind Caddy, then one replica; and back, so that each service is replaced three times.
# Writes a table of what the client saw.

next=${NEXT_VERSION:-next}
tls_port=${CADDY_HTTPS_PORT:-18443}
tls_url=https://localhost:$tls_port
declare -A internal=([edge-proxy]=9080 [identity]=9081 [machine-registry]=9082 [session-store]=9083 [orchestrator]=9084 [voice-gateway]=9085)

# quietly <command…>: its output only when it fails.
quietly() { "$@" >"$work/quietly" 2>&1 || { cat "$work/quietly"; return 1; }; }

# build_of <service>: what the programs in its containers say of themselves, each once.
build_of() {
    local id
    for id in $(containers "$1"); do
        curl -fsS "http://$(address "$id"):${internal[$1]}/metrics" | sed -n 's/^ensemble_build_info{commit="\([^"]*\)".*/\1/p'
    done | sort | uniq -c | xargs
}

# replaced <row> <url> <seconds that may fail> <service>: upgrade.sh of one service to ENSEMBLE_VERSION under load.
replaced() {
    local row=$1 target=$2 bound=$3 service=$4 loader
    rm -f "$work/done"
    VOICE_PUBLIC_KEY=$voice_key python3 deploy/test/scenario.py load "$target" --rate "$rate" --seconds "${LOAD_SECONDS:-300}" --until "$work/done" \
        --ca "$work/ca.crt" --may-fail --out "$work/upgrade.json" >"$work/upgrade.log" 2>&1 &
    loader=$!
    until grep -q loading "$work/upgrade.log"; do kill -0 $loader || { cat "$work/upgrade.log"; exit 1; }; sleep 0.2; done
    deploy/compose/upgrade.sh "$service" >"$work/upgrade.out" 2>&1 || { cat "$work/upgrade.out"; exit 1; }
    kill -0 $loader 2>/dev/null || { echo "FAILED the load of $row ended before the upgrade did: LOAD_SECONDS"; cat "$work/upgrade.log"; exit 1; }
    touch "$work/done"
    wait $loader || { cat "$work/upgrade.log"; exit 1; }
    grep '^failed:' "$work/upgrade.log" || true
    python3 - "$work/upgrade.json" "$row" "$bound" >>"$work/table" <<'ROW' || { tail -n 1 "$work/table"; exit 1; }
import json, sys
path, row, bound = sys.argv[1:]
f = json.load(open(path))["figures"]
print(f"| {row} | {f['requests']} | {f['failed']} | {f['failing']:.1f} s | {f['p99'] * 1000:.0f} ms | {f['slowest']:.1f} s |")
if f["requests"] == 0 or (f["failed"] and f["failing"] > float(bound)):
    sys.exit(f"FAILED {row}: {f['failed']} requests failed within {f['failing']:.1f} s")
ROW
    tail -n 1 "$work/table"
    python3 deploy/test/scenario.py check "$target" "$work/upgrade.json" --ca "$work/ca.crt" >/dev/null
}

# to <version> <replicas> <url> <seconds that may fail> <what is said of the edge>: all services, one after the other.
to() {
    local service before after
    export ENSEMBLE_VERSION=$1
    for service in ${UPGRADE:-$services edge-proxy}; do
        before=$(build_of "$service")
        replaced "$service$([ "$service" != edge-proxy ] || echo "$5"), $2" "$3" "$4" "$service"
        after=$(build_of "$service")
        if [ "$before" = "$after" ] || [ "${after%% *}" != "$2" ]; then echo "FAILED $service is \"$after\" after \"$before\""; exit 1; fi
    done
}

upgrade() {
    local first=$ENSEMBLE_VERSION scale=() service
    local image=${IMAGE_PREFIX:-localhost/ensemble/}session-store:$next
    step "upgrade.sh with two builds under $rate requests a second"
    if ! has_image "${CADDY_IMAGE:-caddy:2.11-alpine}"; then echo "skipped: the upgrade (no image of Caddy)"; return; fi
    if ! "$docker" image inspect "$image" >/dev/null 2>&1; then
        ENSEMBLE_VERSION=$next ENSEMBLE_REVISION=$next dc build
    fi
    voice_key=$("$docker" exec "$(containers voice-gateway | head -n 1)" cat /secrets/voice-public-key)
    export CADDY_HTTPS_PORT=$tls_port CADDY_HTTP_PORT=${CADDY_HTTP_PORT:-18444} COMPOSE_PROFILES=tls EDGE_PORTS=$port-$((port + 2))
    export PUBLIC_ORIGINS=$url,$tls_url
    for service in $services edge-proxy; do scale+=(--scale "$service=2"); done
    quietly dc up -d "${scale[@]}"
    for service in $services edge-proxy; do for id in $(containers "$service"); do healthy "$id"; done; done
    # Caddy makes an authority of its own for localhost.
    for _ in $(seq 150); do
        "$docker" cp "$(containers caddy)":/data/caddy/pki/authorities/local/root.crt "$work/ca.crt" 2>/dev/null && break
        sleep 0.2
    done
    echo "| Service, replicas | Requests | Failed | Within | p99 | Slowest |" >"$work/table"
    echo "|---|---|---|---|---|---|" >>"$work/table"
    to "$next" 2 "$tls_url" 0 " behind Caddy"
    # Scaled with the settings that the containers have: only the second of each goes.
    scale=()
    for service in $services edge-proxy; do scale+=(--scale "$service=1"); done
    quietly dc up -d --no-recreate "${scale[@]}"
    to "$first" 1 "$tls_url" 1 " behind Caddy"
    # The edge's one port, without a proxy.
    export EDGE_PORTS=$port
    unset COMPOSE_PROFILES
    dc --profile tls rm --stop --force caddy >/dev/null 2>&1
    quietly dc up -d --no-deps edge-proxy
    healthy "$(containers edge-proxy)"
    # Its port is free when the old one has ended, so this is how long that and a start take.
    UPGRADE=edge-proxy to "$next" 1 "$url" 6 " with one port"
    export ENSEMBLE_VERSION=$first
    echo && cat "$work/table"
}
