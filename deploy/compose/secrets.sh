#!/bin/sh
# Makes every secret that is missing, each where only its reader finds it (one volume for each service). What is there is
# kept, so that a second start changes nothing; to replace a secret, remove its file and start again.
set -eu
umask 077
reader=10001 # the user and group of our images

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

cd /secrets
secret postgres/password "$(random)"
secret postgres/internal-token "$(random)"
secret postgres/livekit-api-secret "$(random)"
secret postgres/voice-public-key "$(random)"
if [ -n "${VOICE_PUBLIC_KEY:-}" ]; then printf '%s' "$VOICE_PUBLIC_KEY" > postgres/voice-public-key; fi

for service in edge-proxy identity machine-registry session-store orchestrator voice-gateway; do
    give postgres/internal-token "$service/internal-token"
done
for service in identity machine-registry session-store orchestrator voice-gateway; do
    role=$(echo "$service" | tr - _)
    secret "postgres/$role.role" "$(random)"
    printf 'postgres://%s:%s@postgres:5432/%s' "$role" "$(cat "postgres/$role.role")" "$role" > "$service/database-url"
done
# The key that seals identity's signing keys. Lost, all signing keys are lost with it: put it into your backup.
if [ ! -s identity/key-encryption-key ]; then
    head -c 32 /dev/urandom | base64 | tr -d '\n' > identity/key-encryption-key
    echo "made identity/key-encryption-key"
fi
give postgres/livekit-api-secret voice-gateway/livekit-api-secret
give postgres/livekit-api-secret voice-agent/livekit-api-secret
give postgres/voice-public-key voice-gateway/voice-public-key
printf 'ensemble: %s\n' "$(cat postgres/livekit-api-secret)" > livekit/keys.yaml

for service in edge-proxy identity machine-registry session-store orchestrator voice-gateway voice-agent; do
    chown -R "$reader:$reader" "$service"
    chmod 0500 "$service"
    chmod 0400 "$service"/*
done
# PostgreSQL's image reads its password as the user `postgres` in some versions and as root in others.
chown -R postgres postgres
chmod 0400 livekit/keys.yaml
