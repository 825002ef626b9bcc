#!/usr/bin/env bash
# Backs up a compose installation while it runs, into a new folder inside <folder>: one dump of each database, and the secrets
# (without them the dumps cannot be used: signing keys are sealed, roles have passwords).
#
#   deploy/compose/backup.sh <folder>
#
#   BACKUP_RECIPIENT=age1…   whom it is encrypted for (age-keygen); without it everything is in clear
#   BACKUP_KEEP=7            how many stay: 14 when it is not set, all when it is empty
#
# Both may be in .env. The program age has to be on this machine.
set -euo pipefail
[ $# = 1 ] || { echo "deploy/compose/backup.sh <folder>" >&2; exit 64; }
(umask 077 && mkdir -p "$1")
folder=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"
source deploy/backup/backups.sh

# What is not in the environment is taken from .env, without quotes and comments, as Compose does.
for name in BACKUP_RECIPIENT BACKUP_KEEP; do
    [ -n "${!name+set}" ] || ! grep -qs "^$name=" .env || printf -v "$name" %s \
        "$(sed -n "s/^$name=//p" .env | tail -n 1 | sed "s/[[:space:]]#.*//; s/[[:space:]]*\$//; s/^\([\"']\)\(.*\)\1\$/\2/")"
done

check_settings
begin_backup "$folder"
for database in identity machine_registry session_store orchestrator voice_gateway; do
    "${compose[@]}" exec -T postgres pg_dump -U postgres --format custom --lock-wait-timeout 60s "$database" | keep_file "$database.dump"
done
# Without the folder itself, which is read-only where it is restored.
"${compose[@]}" run --rm --no-deps -T --entrypoint sh secrets -c 'cd /secrets && exec tar -c *' | keep_file secrets.tar
complete_backup
[ ${#recipients[@]} -gt 0 ] || echo "keep secrets.tar where the dumps are not"
