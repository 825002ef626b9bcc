# Sourced by compose.sh: deploy/compose/rotate.sh for each secret, under load. No request may fail, and afterwards the old one
# works nowhere.

# under_load <what> <command…>: the command while requests come; one load of at most LOAD_SECONDS follows another.
under_load() {
    local what=$1 loader
    shift
    rm -f "$work/done"
    (
        while [ ! -e "$work/done" ]; do
            VOICE_PUBLIC_KEY=$voice_key python3 deploy/test/scenario.py load "$url" --edges "$work/edges" --rate "$rate" \
                --seconds "${LOAD_SECONDS:-300}" --until "$work/done" --out "$work/rotate.json" || exit 1
        done
    ) >"$work/rotate.log" 2>&1 &
    loader=$!
    until grep -q loading "$work/rotate.log"; do kill -0 $loader || { cat "$work/rotate.log"; exit 1; }; sleep 0.2; done
    "$@" >"$work/rotate.out" 2>&1 || { cat "$work/rotate.out"; exit 1; }
    touch "$work/done"
    wait $loader || { echo "FAILED $what"; cat "$work/rotate.log"; exit 1; }
    echo "ok  $what: $(awk '/ requests in / { sent += $1 } END { print sent }' "$work/rotate.log") requests, none failed"
}
# made <file>: what the container of secrets has in it.
made() { dc run --rm --no-deps -T --entrypoint cat secrets "/secrets/$1" 2>/dev/null; }
# asked <token>: what identity's internal door says.
asked() { curl -sS -o /dev/null -w '%{http_code}' -X POST -H "Authorization: Bearer $1" "http://$(address "$(containers identity)"):9081/rpc/none/Get"; }
opens() { dc exec -T -e PGPASSWORD="$2" postgres psql -h 127.0.0.1 -U "$1" -d "$3" -qAtc 'SELECT 1' >/dev/null 2>&1; }
# Its sealed form, which stays as it is while the key-encryption key is not replaced.
push_key() { dc exec -T postgres psql -U postgres -d identity -qAtc "SELECT md5(sealed) FROM push_keys"; }
differs() { # <what> <before> <after>
    [ -n "$3" ] && [ "$2" != "$3" ] || { echo "FAILED $1 is as it was"; exit 1; }
}
# Behind a load balancer: the edges stand in a file that follows them.
follow_edges() { while [ ! -e "$work/followed" ]; do edges; sleep 0.3; done; }

rotation() {
    local old new login follower
    step "each secret rotated under $rate requests a second"
    voice_key=$(made made/voice-public-key)
    export EDGE_PORTS=$port-$((port + 2))
    quietly dc up -d
    healthy "$(containers edge-proxy)"
    edges
    follow_edges &
    follower=$!

    old=$(made made/internal-token)
    under_load internal-token deploy/compose/rotate.sh internal-token
    new=$(made made/internal-token)
    differs internal-token "$old" "$new"
    if [ "$(asked "$old") $(asked "$new")" != "401 404" ]; then echo "FAILED the internal door: $(asked "$old") $(asked "$new")"; exit 1; fi

    old=$(made identity/key-encryption-key)
    under_load key-encryption-key deploy/compose/rotate.sh key-encryption-key
    differs key-encryption-key "$old" "$(made identity/key-encryption-key)"

    old=$(made postgres/session_store.role) login=$(made postgres/session_store.login) new=$(made postgres/password)
    opens "$login" "$old" session_store || { echo "FAILED the check of passwords does not get in"; exit 1; }
    under_load database-passwords deploy/compose/rotate.sh database-passwords
    if opens "$login" "$old" session_store; then echo "FAILED the old password opens session_store"; exit 1; fi
    opens "$(made postgres/session_store.login)" "$(made postgres/session_store.role)" session_store || { echo "FAILED the new password does not"; exit 1; }
    if opens postgres "$new" postgres; then echo "FAILED the old password of postgres works"; exit 1; fi
    # A second time, because two logins take turns.
    under_load "database-passwords again" deploy/compose/rotate.sh database-passwords
    if [ "$(made postgres/session_store.login)" != "$login" ]; then echo "FAILED the logins do not take turns"; exit 1; fi

    old=$voice_key
    under_load "voice-public-key, both" deploy/compose/rotate.sh voice-public-key
    new=$(made made/voice-public-key-other)
    voice_key=$new
    under_load "voice-public-key, the new one" deploy/compose/rotate.sh voice-public-key --finish
    if [ "$(curl -sS -o /dev/null -w '%{http_code}' -X POST -H "X-Voice-Key: $old" -H 'Content-Type: application/json' \
        -d '{"userId":"me","sessionId":"s","language":"en"}' "http://$(head -n 1 "$work/edges")/v1/voice/session/start")" != 401 ]; then echo "FAILED the old voice key works"; exit 1; fi

    old=$(made made/livekit-api-key)
    # Without calls of voice, which end with LiveKit.
    voice_key='' under_load livekit-key deploy/compose/rotate.sh livekit-key
    differs livekit-key "$old" "$(made made/livekit-api-key)"
    VOICE_PUBLIC_KEY=$new python3 deploy/test/scenario.py scenario "$url" --edges "$work/edges" | grep "voice session"

    export TOOL_BRIDGE_BASE_URL=https://bridge.example.com TOOL_BRIDGE_API_KEY=first
    deploy/compose/upgrade.sh voice-gateway >/dev/null 2>&1
    TOOL_BRIDGE_API_KEY=second voice_key=$new under_load TOOL_BRIDGE_API_KEY deploy/compose/upgrade.sh voice-gateway
    unset TOOL_BRIDGE_BASE_URL TOOL_BRIDGE_API_KEY

    old=$(push_key)
    under_load push-key deploy/compose/rotate.sh push-key
    differs push-key "$old" "$(push_key)"

    touch "$work/followed"
    wait $follower
    # Back to the one port, which the steps after this one ask.
    unset EDGE_PORTS
    quietly dc up -d
    healthy "$(containers edge-proxy)"
}
