#!/bin/sh
# Makes every secret that is missing, each where only its reader finds it (one volume for each service). What is there is
# kept, so that a second start changes nothing.
#
#   secrets.sh rotate <secret>    takes a step of its rotation first; deploy/compose/rotate.sh calls it
#   secrets.sh step <secret>      says which step was taken last, and does nothing else
set -eu
umask 077
reader=10001 # the user and group of our images
roles="identity machine_registry session_store orchestrator voice_gateway"

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# secret <file> <value>: keeps what is there.
secret() {
    if [ ! -s "$1" ]; then
        printf '%s' "$2" > "$1.new"
        mv "$1.new" "$1"
        echo "made $1"
    fi
}

# give <from> <to>: another reader of the same secret.
give() {
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}

# give_other <from> <to>: what else is accepted while a secret is rotated, or nothing.
give_other() { if [ -s "$1" ]; then give "$1" "$2"; else rm -f "$2"; fi; }

cd /secrets
secret postgres/password "$(random)"
# Versions before kept these where PostgreSQL could read them.
for name in internal-token livekit-api-secret voice-public-key; do
    if [ -s "postgres/$name" ]; then mv "postgres/$name" "made/$name"; fi
done
# chosen <name> <value of .env>: that value, or what was made, or a new one.
chosen() {
    if [ -n "$2" ]; then printf '%s' "$2" > "made/$1"; else secret "made/$1" "$(random)"; fi
}
chosen internal-token "${INTERNAL_TOKEN:-}"
if [ -n "${LIVEKIT_API_KEY:-}" ]; then printf %s "$LIVEKIT_API_KEY" > made/livekit-api-key; else secret made/livekit-api-key ensemble; fi
chosen livekit-api-secret "${LIVEKIT_API_SECRET:-}"
chosen voice-public-key "${VOICE_PUBLIC_KEY:-}"

secret postgres/backup.role "$(random)"
for role in $roles; do
    secret "postgres/$role.role" "$(random)"
    secret "postgres/$role.login" "$role"
done
# The key that seals identity's signing keys. Lost, all signing keys are lost with it: put it into your backup.
if [ ! -s identity/key-encryption-key ]; then
    head -c 32 /dev/urandom | base64 | tr -d '\n' > identity/key-encryption-key
    echo "made identity/key-encryption-key"
fi

. /ensemble/rotation.sh
case ${1:-} in
    rotate) rotate "$2" ;;
    step) files_of "$2" > /dev/null; cat "made/rotating-$2" 2>/dev/null || true; exit ;;
esac

for service in edge-proxy identity machine-registry session-store orchestrator voice-gateway; do
    give made/internal-token "$service/internal-token"
    give_other made/internal-token-other "$service/internal-token-previous"
done
for service in identity machine-registry session-store orchestrator voice-gateway; do
    role=$(echo "$service" | tr - _)
    printf 'postgres://%s:%s@postgres:5432/%s' "$(cat "postgres/$role.login")" "$(cat "postgres/$role.role")" "$role" > "$service/database-url"
    printf 'postgres://backup:%s@postgres:5432/%s' "$(cat postgres/backup.role)" "$role" > "backup/$role.url"
done
give_other identity/key-encryption-key-other identity/key-encryption-key-previous
for name in key secret; do
    give "made/livekit-api-$name" "voice-gateway/livekit-api-$name"
    give "made/livekit-api-$name" "voice-agent/livekit-api-$name"
    give_other "made/livekit-api-$name-other" "voice-gateway/livekit-webhook-api-$name"
done
give made/voice-public-key voice-gateway/voice-public-key
if [ -s made/voice-public-key-other ]; then printf ',%s' "$(cat made/voice-public-key-other)" >> voice-gateway/voice-public-key; fi
# LiveKit has the key and the secret that the gateway and the agent use, and signs its webhooks with them.
key=$(cat made/livekit-api-key)
case $key in *[!A-Za-z0-9_-]*) echo "LIVEKIT_API_KEY may have letters, digits, _ and - only" >&2; exit 64 ;; esac
: > livekit/keys.yaml
for which in "" -other; do
    if [ -s "made/livekit-api-key$which" ]; then
        printf '%s: "%s"\n' "$(cat "made/livekit-api-key$which")" "$(sed 's/[\\"]/\\&/g' "made/livekit-api-secret$which")" >> livekit/keys.yaml
    fi
done
sed "s/^  api_key: .*/  api_key: $key/" /ensemble/livekit.yaml > livekit/livekit.yaml

for service in edge-proxy identity machine-registry session-store orchestrator voice-gateway voice-agent backup; do
    chown -R "$reader:$reader" "$service"
    chmod 0500 "$service"
    chmod 0400 "$service"/*
done
# PostgreSQL's image reads its password as the user `postgres` in some versions and as root in others.
chown -R postgres postgres
chmod 0400 livekit/keys.yaml livekit/livekit.yaml made/*
