#!/usr/bin/env bash
# Restores a backup (what backup.sh or the profile `backup` wrote) into a compose installation whose PostgreSQL volume is empty;
# then `docker compose up`. Every file is checked to its end before anything is changed.
#
#   deploy/compose/restore.sh <folder>/<time>
#
#   BACKUP_IDENTITY=key.txt      the file with the private key, for a backup that is encrypted
#   BACKUP_SECRETS=secrets.tar   for a backup without secrets: the secrets.tar or secrets.tar.age of another one of this
#                                installation, or `keep` for those that are in this installation's volumes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../backup/backups.sh"
[ $# = 1 ] || { echo "deploy/compose/restore.sh <folder>/<time>" >&2; exit 64; }
[ -d "$1" ] || fail "there is no folder $1"
backup=$(cd "$1" && pwd)
identity=${BACKUP_IDENTITY:+$(realpath -m "$BACKUP_IDENTITY")}
secrets=${BACKUP_SECRETS:-}
[ "$secrets" = keep ] || secrets=${secrets:+$(realpath -m "$secrets")}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"
databases="identity machine_registry session_store orchestrator voice_gateway"

if [ ! -f "$backup/SHA256SUMS" ]; then
    newest=$(complete_backups "$backup" | tail -n 1)
    fail "$backup is no complete backup: it has no SHA256SUMS${newest:+; the newest in it is $backup/$newest}"
fi

# part <name>: the file of the backup that has it.
part() {
    local path
    for path in "$backup/$1.age" "$backup/$1"; do
        if [ -f "$path" ]; then
            grep -qxF "$(cd "$backup" && sha256sum "${path##*/}")" "$backup/SHA256SUMS" || fail "$path is damaged: it is not as SHA256SUMS has it"
            echo "$path"
            return
        fi
    done
}

# contents <file>: in clear, to standard output.
contents() {
    case $1 in
        *.age) age --decrypt --identity "$identity" "$1" ;;
        *) cat "$1" ;;
    esac
}

files=()
for database in $databases; do
    file=$(part "$database.dump")
    [ -n "$file" ] || fail "$backup has no dump of $database"
    files+=("$file")
done
if [ -z "$secrets" ]; then
    secrets=$(part secrets.tar)
    [ -n "$secrets" ] || fail "$backup has no secrets: set BACKUP_SECRETS to the secrets.tar (or .age) of this installation, or to keep"
fi
if [ "$secrets" != keep ]; then files+=("$secrets"); fi
if [[ " ${files[*]} " == *".age "* ]]; then
    command -v age >/dev/null || fail "the backup is encrypted, and there is no program age (Debian's package age)"
    [ -n "$identity" ] || fail "the backup is encrypted: set BACKUP_IDENTITY to the file with the private key"
    [ -r "$identity" ] || fail "BACKUP_IDENTITY: $identity cannot be read"
fi
for file in "${files[@]}"; do
    contents "$file" >/dev/null || fail "$file cannot be read to its end: see above; BACKUP_IDENTITY may be another key, or the file is damaged"
done
"${compose[@]}" run --rm --no-deps -T --entrypoint sh postgres -c 'test ! -s "$PGDATA/PG_VERSION"' ||
    fail "PostgreSQL's volume is not empty; \`docker compose down --volumes\` removes it, and everything in it"

if [ "$secrets" != keep ]; then
    contents "$secrets" | "${compose[@]}" run --rm --no-deps -T --entrypoint tar secrets -C /secrets -x
fi
"${compose[@]}" up -d postgres databases
for try in $(seq 120); do
    "${compose[@]}" exec -T postgres psql -qAt -U postgres -c "SELECT 1 FROM pg_database WHERE datname = 'voice_gateway'" 2>/dev/null | grep -q 1 && break
    [ "$try" -lt 120 ] || fail "PostgreSQL has no databases after a minute: see \`docker compose logs postgres databases\`"
    sleep 0.5
done
for database in $databases; do
    contents "$(part "$database.dump")" | "${compose[@]}" exec -T postgres pg_restore -U postgres --exit-on-error --single-transaction -d "$database"
    echo "$database: restored"
done
