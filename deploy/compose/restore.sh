#!/usr/bin/env bash
# Restores what backup.sh wrote into a compose installation whose volumes are empty; then `docker compose up`.
#
#   deploy/compose/restore.sh <folder>
set -euo pipefail
folder=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"

"${compose[@]}" run --rm --no-deps -T --entrypoint tar secrets -C /secrets -x <"$folder/secrets.tar"
"${compose[@]}" up -d postgres databases
for _ in $(seq 120); do
    "${compose[@]}" exec -T postgres psql -qAt -U postgres -c "SELECT 1 FROM pg_database WHERE datname = 'voice_gateway'" 2>/dev/null | grep -q 1 && break
    sleep 0.5
done
for database in identity machine_registry session_store orchestrator voice_gateway; do
    "${compose[@]}" exec -T postgres pg_restore -U postgres --exit-on-error --single-transaction -d "$database" <"$folder/$database.dump"
    echo "$database: restored"
done
