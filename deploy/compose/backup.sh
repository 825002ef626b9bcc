#!/usr/bin/env bash
# Backs up a compose installation while it runs: one dump of each database, and the secrets (without them the dumps cannot
# be used: signing keys are sealed, roles have passwords).
#
#   deploy/compose/backup.sh <folder>
set -euo pipefail
umask 077
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"

for database in identity machine_registry session_store orchestrator voice_gateway; do
    "${compose[@]}" exec -T postgres pg_dump -U postgres --format custom "$database" >"$folder/$database.dump"
    echo "$database: $(stat -c %s "$folder/$database.dump") bytes"
done
"${compose[@]}" run --rm --no-deps -T --entrypoint tar secrets -C /secrets -c . >"$folder/secrets.tar"
echo "secrets: $folder/secrets.tar (keep it where the dumps are not)"
