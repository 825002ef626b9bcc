#!/usr/bin/env bash
# Replaces a secret while everything runs: the services first accept the new one and the old one, then use the new one, then forget
# the old one. A rotation that was interrupted resumes where it was when it is called again.
#
#   deploy/compose/rotate.sh internal-token         what the services show each other
#   deploy/compose/rotate.sh key-encryption-key     what seals identity's signing keys; back the secrets up afterwards
#   deploy/compose/rotate.sh database-passwords     of the services, of backups and of PostgreSQL's own user
#   deploy/compose/rotate.sh livekit-key            LiveKit restarts twice, which ends all conversations
#   deploy/compose/rotate.sh push-key               what push services know the server by; browsers have to switch notifications on again
#   deploy/compose/rotate.sh voice-public-key       prints the new one; both work until it is called again with --finish
#
# A secret that is set in .env is yours: take the line away first, which keeps its value, or change it there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"
secret=${1:-}
databases="identity machine-registry session-store orchestrator voice-gateway"

case $secret in
    internal-token) variables=INTERNAL_TOKEN ;;
    key-encryption-key | database-passwords | push-key) variables= ;;
    livekit-key) variables="LIVEKIT_API_KEY LIVEKIT_API_SECRET" ;;
    voice-public-key) variables=VOICE_PUBLIC_KEY ;;
    *) sed -n 's/^#   //p' "${BASH_SOURCE[0]}" >&2; exit 64 ;;
esac
for variable in $variables; do
    if grep -qs "^$variable=..*" .env || [ -n "${!variable:-}" ]; then
        echo "$variable is set in .env or the environment, which wins over what is made here: take it away, or change it there" >&2
        exit 1
    fi
done

within() { "${compose[@]}" run --rm --no-deps -T "$@"; }
livekit() { [ -z "$("${compose[@]}" ps --quiet livekit)" ] || "${compose[@]}" up --detach --no-deps --force-recreate --wait livekit; }

# take <step>: lets those that read the secret take it. upgrade.sh replaces one container after the other.
take() {
    case $secret/$1 in
        internal-token/*) deploy/compose/upgrade.sh ;;
        key-encryption-key/*) deploy/compose/upgrade.sh identity ;;
        # shellcheck disable=SC2086 # a list of words
        database-passwords/switch) deploy/compose/upgrade.sh $databases ;;
        database-passwords/*) within databases ;;
        livekit-key/accept) livekit ;;
        livekit-key/switch)
            deploy/compose/upgrade.sh voice-gateway
            [ -z "$("${compose[@]}" --profile voice-agent ps --quiet voice-agent)" ] ||
                "${compose[@]}" --profile voice-agent up --detach --no-deps --force-recreate voice-agent ;;
        livekit-key/finish) livekit && deploy/compose/upgrade.sh voice-gateway ;;
        # Their order says nothing.
        voice-public-key/switch) ;;
        voice-public-key/*) deploy/compose/upgrade.sh voice-gateway ;;
    esac
}

if [ "$secret" = push-key ]; then
    "${compose[@]}" exec -T postgres psql -q -U postgres -d identity -c 'DELETE FROM push_keys'
    exec deploy/compose/upgrade.sh identity
fi
step=$(within secrets step "$secret")
[ -z "$step" ] || { echo "$secret: resumes after $step" && take "$step"; }
while [ "$step" != finish ]; do
    if [ "$secret/$step" = voice-public-key/accept ] && [ "${2:-}" != --finish ]; then
        echo "the new key, which works together with the old one until $0 voice-public-key --finish:"
        within --entrypoint cat secrets /secrets/made/voice-public-key-other
        echo
        exit
    fi
    step=$(within secrets rotate "$secret" | sed -n 's/^step: //p')
    echo "$secret: $step"
    take "$step"
done
