#!/usr/bin/env bash
# The scripts of deploy/compose and deploy/backup with a real PostgreSQL, which with-postgres starts and removes: what is in a
# backup, who can read it, what is refused, what a restore brings back, and how many stay. Compose itself is replaced by a
# program that runs the same commands here; with a container engine the profile `backup` runs as it is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
if [ -z "${TEST_DATABASE_URL:-}" ]; then
    with_postgres=${WITH_POSTGRES:-target/debug/with-postgres}
    [ -x "$with_postgres" ] || skip "backup-test" "no $with_postgres; cargo build builds it"
    exec "$with_postgres" "$0"
fi
for program in age psql pg_dump; do
    command -v $program >/dev/null || skip "backup-test" "no $program; Debian's packages age and postgresql have them"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
server=${TEST_DATABASE_URL%/*}
databases="identity machine_registry session_store orchestrator voice_gateway"
mkdir -p "$work/secrets/identity"
printf seal >"$work/secrets/identity/key-encryption-key"
cat >"$work/compose" <<'COMPOSE'
#!/usr/bin/env bash
# compose exec -T postgres <command>; compose run … --entrypoint <program> <service> <arguments>; compose up …
set -euo pipefail
case $1 in
    exec) shift 3 ;;
    run)
        while [ "$1" != --entrypoint ]; do shift; done
        [ "$3" != postgres ] || exit "${NOT_EMPTY:-0}"
        program=$2
        shift 3
        set -- "$program" "${@/\/secrets/$SECRETS}"
        ;;
    up) exit 0 ;;
esac
exec "$@"
COMPOSE
chmod +x "$work/compose"
export COMPOSE=$work/compose SECRETS=$work/secrets PGHOST PGPORT PGOPTIONS="-c client_min_messages=warning"
PGHOST=$(sed 's|.*@\([^:/]*\).*|\1|' <<<"$server")
PGPORT=${server##*:}

ok() { echo "ok  $1"; }
wrong() {
    echo "FAILED $1"
    [ ! -s "$work/log" ] || sed 's/^/    /' "$work/log"
    exit 1
}
is() { # <what> <seen> <wanted>
    [ "$2" = "$3" ] || wrong "$1: $2 and not $3"
    ok "$1"
}
# says <what> <words> <command…>: it fails and says those words.
says() {
    local what=$1 words=$2
    shift 2
    if "$@" >"$work/log" 2>&1; then wrong "$what: it is accepted"; fi
    grep -qF -- "$words" "$work/log" || wrong "$what: it does not say \"$words\""
    ok "$what"
}
# works <what> <command…>
works() {
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 || wrong "$what"
    ok "$what"
}
sql() { psql -qAt --no-psqlrc --set ON_ERROR_STOP=1 -U postgres -d "$@"; }
make_databases() {
    for database in $databases; do
        sql postgres -c "DROP DATABASE IF EXISTS $database" -c "CREATE DATABASE $database"
    done
}
make_rows() {
    for database in $databases; do
        sql "$database" -c "CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, words text, bytes bytea)" \
            -c "INSERT INTO kept (words, bytes) SELECT '$database says ' || n, sha256(n::text::bytea) FROM generate_series(1, 20000) n"
    done
}
# What is in all databases, and that a new row gets a new number.
rows() { for database in $databases; do sql "$database" -c "SELECT count(*), md5(string_agg(kept::text, ',' ORDER BY id)) FROM kept"; done; }
backups() { find "$1" -mindepth 1 -maxdepth 1 -name '2*' -printf '%f\n' | sort; }
newest() { echo "$1/$(backups "$1" | tail -n 1)"; }
clear_text() { grep -rqaF -e 'says 1' -e PGDMP -e key-encryption-key "$1"; }

age-keygen -o "$work/key" 2>/dev/null
age-keygen -o "$work/other-key" 2>/dev/null
export BACKUP_RECIPIENT
BACKUP_RECIPIENT=$(age-keygen -y "$work/key")
private=$(grep AGE-SECRET-KEY "$work/key")
make_databases
make_rows
before=$(rows)
# A copy, because the scripts read the .env next to docker-compose.yml.
mkdir -p "$work/repository/deploy"
cp -r deploy/compose deploy/backup "$work/repository/deploy/"
backup=$work/repository/deploy/compose/backup.sh
restore=$work/repository/deploy/compose/restore.sh

# --- what is written ----------------------------------------------------------------------------------------------------------
works "an encrypted backup" $backup "$work/backups"
first=$(newest "$work/backups")
is "five dumps, the secrets, their sums" "$(ls "$first" | tr '\n' ' ')" \
    "SHA256SUMS identity.dump.age machine_registry.dump.age orchestrator.dump.age secrets.tar.age session_store.dump.age voice_gateway.dump.age "
is "for its owner only" "$(stat -c %a "$work/backups" "$first" | tr '\n' ' ')$(find "$first" -type f -printf '%m\n' | sort -u)" "700 700 600"
if clear_text "$work/backups"; then wrong "clear text is in an encrypted backup"; fi
works "a backup in clear" env BACKUP_RECIPIENT= $backup "$work/clear"
grep -qF "warning: this backup is not encrypted" "$work/log" || wrong "no warning of a backup in clear"
clear_text "$work/clear" || wrong "the search for clear text finds none where there is some"
ok "no clear text in the encrypted one, and a warning with the other"
says "a private key is no recipient" "is a private key" env BACKUP_RECIPIENT="$private" $backup "$work/none"
if grep -qF "$private" "$work/log"; then wrong "the private key is printed"; fi
says "nor is a word" "age does not take BACKUP_RECIPIENT" env BACKUP_RECIPIENT=age1nonsense $backup "$work/none"
mkdir "$work/bin" && for program in bash sed dirname mkdir tail id; do ln -s "$(command -v $program)" "$work/bin/"; done
says "without age nothing is written" "no program age" env PATH="$work/bin" $backup "$work/none"
is "none of them left anything" "$(find "$work/none" -mindepth 1)" ""

printf "BACKUP_KEEP=5\nBACKUP_RECIPIENT='%s' # the key is in the safe\n" "$BACKUP_RECIPIENT" >"$work/repository/.env"
works "settings of .env" env -u BACKUP_RECIPIENT $backup "$work/from-env"
if clear_text "$work/from-env"; then wrong "BACKUP_RECIPIENT of .env is not read"; fi
rm "$work/repository/.env"

# --- what is no backup ----------------------------------------------------------------------------------------------------------
sql postgres -c "ALTER DATABASE orchestrator RENAME TO away"
says "a database that is down fails the backup" "orchestrator" $backup "$work/backups"
sql postgres -c "ALTER DATABASE away RENAME TO orchestrator"
is "and leaves nothing" "$(ls "$work/backups")" "$(basename "$first")"
mkdir "$work/backups/partial.killed"
cp "$first"/identity* "$work/backups/partial.killed/"
says "what was interrupted is no backup" "no complete backup" $restore "$work/backups/partial.killed"
says "nor is the folder of them" "the newest in it is $first" $restore "$work/backups"

# --- who can read it ----------------------------------------------------------------------------------------------------------
make_databases
says "without a key" "set BACKUP_IDENTITY" $restore "$first"
says "with a key that is not there" "cannot be read" env BACKUP_IDENTITY="$work/nothing" $restore "$first"
says "with another key" "no identity matched" env BACKUP_IDENTITY="$work/other-key" $restore "$first"
export BACKUP_IDENTITY=$work/key
cp -r "$first" "$work/cut"
truncate -s -100 "$work/cut/session_store.dump.age"
says "a file that is cut off" "is damaged" $restore "$work/cut"
(cd "$work/cut" && sha256sum -- *.age >SHA256SUMS)
says "also when the sums fit" "session_store.dump.age cannot be read to its end" $restore "$work/cut"
cp -r "$(newest "$work/clear")" "$work/cut-clear"
truncate -s -100 "$work/cut-clear/session_store.dump"
says "also in clear" "is damaged" $restore "$work/cut-clear"
cp -r "$first" "$work/less" && rm "$work/less/orchestrator.dump.age"
says "a file that is missing" "no dump of orchestrator" $restore "$work/less"
says "an installation that has data" "is not empty" env NOT_EMPTY=1 $restore "$first"
for database in $databases; do is "none of them wrote into $database" "$(sql "$database" -c "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")" 0; done

# --- what comes back ------------------------------------------------------------------------------------------------------------
rm -r "$work/secrets/identity"
works "the encrypted one is restored" $restore "$first"
is "with the same rows" "$(rows)" "$before"
is "with the secrets" "$(cat "$work/secrets/identity/key-encryption-key")" seal
sql identity -c "INSERT INTO kept (words) VALUES ('next')"
is "and continues to count" "$(sql identity -c "SELECT max(id) FROM kept")" 20001
make_databases
works "the clear one is restored" $restore "$(newest "$work/clear")"
is "with the same rows, too" "$(rows)" "$before"

make_databases
cp -r "$first" "$work/dumps" && rm "$work/dumps/secrets.tar.age"
says "one without secrets" "set BACKUP_SECRETS" $restore "$work/dumps"
says "secrets for another key" "no identity matched" env BACKUP_SECRETS="$work/foreign.tar.age" bash -c "age -R <(age-keygen -y '$work/other-key') -o '$work/foreign.tar.age' /dev/null; $restore '$work/dumps'"
printf other >"$work/secrets/identity/key-encryption-key"
works "the dumps alone" env BACKUP_SECRETS=keep $restore "$work/dumps"
is "leave the secrets as they are" "$(rows | md5sum) $(cat "$work/secrets/identity/key-encryption-key")" "$(md5sum <<<"$before") other"
make_databases
works "the dumps, and the secrets of another backup" env BACKUP_SECRETS="$first/secrets.tar.age" $restore "$work/dumps"
is "bring both" "$(rows | md5sum) $(cat "$work/secrets/identity/key-encryption-key")" "$(md5sum <<<"$before") seal"

# --- how many stay --------------------------------------------------------------------------------------------------------------
export BACKUP_KEEP
for BACKUP_KEEP in 0 -1 two 1.5; do says "BACKUP_KEEP=$BACKUP_KEEP" "1 or more" $backup "$work/backups"; done
mkdir "$work/backups/mine" && mv "$first" "$work/backups/20200101T000000Z"
for day in 02 03 04; do cp -r "$work/backups/20200101T000000Z" "$work/backups/202001${day}T000000Z"; done
sql postgres -c "ALTER DATABASE orchestrator RENAME TO away"
BACKUP_KEEP=1 says "a backup that fails" orchestrator $backup "$work/backups"
sql postgres -c "ALTER DATABASE away RENAME TO orchestrator"
is "removes none" "$(backups "$work/backups" | wc -l)" 4
BACKUP_KEEP=3 works "one that is complete" $backup "$work/backups"
is "removes the oldest" "$(backups "$work/backups" | head -n 2 | tr '\n' ' ')$(backups "$work/backups" | wc -l)" "20200103T000000Z 20200104T000000Z 3"
BACKUP_KEEP=1 works "keep one" $backup "$work/backups"
is "and what is not a backup" "$(ls "$work/backups" | wc -l) $(ls -d "$work/backups/mine")" "2 $work/backups/mine"
mv "$(newest "$work/backups")" "$work/backups/29990101T000000Z"
BACKUP_KEEP=1 works "a clock that went back" $backup "$work/backups"
is "does not cost the new one" "$(backups "$work/backups" | grep -c "^$(date -u +%Y)")" 1
BACKUP_KEEP=
(
    exec 9>"$work/backups/.lock"
    flock 9
    says "two at once" "another backup is being written" $backup "$work/backups"
)

# --- by itself ------------------------------------------------------------------------------------------------------------------
run=$work/repository/deploy/backup/run.sh
sql postgres -c "CREATE ROLE backup LOGIN" -c "GRANT pg_read_all_data TO backup"
export BACKUP_FOLDER=$work/by-itself BACKUP_URLS=$work/urls
mkdir "$BACKUP_FOLDER" "$BACKUP_URLS"
for database in $databases; do printf 'postgres://backup:a%%40%%25b\\@%s:%s/%s' "$PGHOST" "$PGPORT" "$database" >"$BACKUP_URLS/$database.url"; done
says "without a backup it is not healthy" "no backup yet" "$run" healthcheck
works "a role that only reads makes one" "$run" once
is "of the five databases" "$(ls "$(newest "$BACKUP_FOLDER")" | tr '\n' ' ')" \
    "SHA256SUMS identity.dump.age machine_registry.dump.age orchestrator.dump.age session_store.dump.age voice_gateway.dump.age "
works "with it, it is healthy" "$run" healthcheck
mv "$(newest "$BACKUP_FOLDER")" "$BACKUP_FOLDER/$(date -u -d '47 hours ago' +%Y%m%dT%H%M%SZ)"
works "after 47 hours still" "$run" healthcheck
mv "$(newest "$BACKUP_FOLDER")" "$BACKUP_FOLDER/$(date -u -d '49 hours ago' +%Y%m%dT%H%M%SZ)"
says "after 49 not" "is 49 hours old" "$run" healthcheck
works "unless one each week is wanted" env BACKUP_EVERY=168 "$run" healthcheck
says "an hour that is none" "BACKUP_AT is a time" env BACKUP_AT=24:00 "$run" once
says "a part of an hour" "BACKUP_EVERY is a number" env BACKUP_EVERY=0.5 "$run" once
mv "$BACKUP_URLS/orchestrator.url" "$work/"
says "a database without an address" "orchestrator.url" "$run" once
mv "$work/orchestrator.url" "$BACKUP_URLS/"
is "leaves nothing" "$(ls "$BACKUP_FOLDER" | wc -l)" 1

# until_ <what> <command…>: within a minute.
until_() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    until "$@"; do
        [ $SECONDS -lt $deadline ] || wrong "$what: not within a minute"
        sleep 0.1
    done
    ok "$what"
}
has_backups() { [ "$(backups "$BACKUP_FOLDER" | wc -l)" = "$1" ]; }
waits_for_lock() { [ "$(sql postgres -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'pg_dump'")" = 1 ]; }
# A time of the day that has passed since the backup of 49 hours ago, and one that is not.
for at in "$(date -u -d '1 hour ago' +%H:%M)" ""; do
    count=$(backups "$BACKUP_FOLDER" | wc -l)
    BACKUP_AT=$at "$run" schedule >"$work/log" 2>&1 &
    child=$!
    until_ "the schedule makes one that is due${at:+ at a time}" has_backups $((count + 1))
    kill "$child" && wait "$child"
    is "and ends on its signal" "$?" 0
    for name in $(backups "$BACKUP_FOLDER" | tail -n 1); do mv "$BACKUP_FOLDER/$name" "$BACKUP_FOLDER/$(date -u -d "$((50 + count)) hours ago" +%Y%m%dT%H%M%SZ)"; done
done
psql -qAt --no-psqlrc -U postgres -d session_store >/dev/null <<<"BEGIN; LOCK TABLE kept; SELECT pg_sleep(600);" 2>/dev/null &
locker=$!
setsid "$run" once >"$work/log" 2>&1 &
child=$!
until_ "a backup that waits for a lock" waits_for_lock
kill -TERM -- "-$child"
if wait "$child"; then wrong "a backup that was ended says that it is complete"; fi
sql postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()" >/dev/null
wait "$locker" || true
is "and is ended leaves nothing" "$(find "$BACKUP_FOLDER" -name 'partial*')" ""
echo "backup-test: everything holds without an engine"

# --- the profile, in containers -------------------------------------------------------------------------------------------------
need_compose "the profile backup"
image=${POSTGRES_IMAGE:-postgres:17-bookworm}
has_image "$image" || skip "the profile backup" "$image can be had from no registry; deploy/test/local-images.sh makes one"
export COMPOSE_PROJECT_NAME=ensemble-backup-test ENSEMBLE_VERSION=backup-test BACKUP_FOLDER=$work/profile BACKUP_KEEP=2 BACKUP_AT= PULL_POLICY=never
unset PGHOST PGPORT
export COMPOSE="${compose[*]}"
dc() { "${compose[@]}" --profile backup "$@"; }
finish() {
    status=$?
    if [ $status -ne 0 ]; then dc logs --tail 15 2>/dev/null || true; fi
    dc down --volumes --timeout 10 >/dev/null 2>&1 || true
    rm -rf "$work"
    exit $status
}
trap finish EXIT
DOCKER_BUILDKIT=$buildkit "$docker" build --quiet --network "${BUILD_NETWORK:-default}" --build-arg "POSTGRES_IMAGE=$image" \
    -t "${IMAGE_PREFIX:-localhost/ensemble/}backup:$ENSEMBLE_VERSION" deploy/backup >/dev/null
sql() { # <database> <psql's arguments…>
    local database=$1
    shift
    dc exec -T postgres psql -qAt --no-psqlrc --set ON_ERROR_STOP=1 -U postgres -d "$database" "$@"
}
within_backup() { dc exec -T backup sh -c "$1"; }
works "PostgreSQL and its databases" dc up -d postgres databases
has_databases() { sql postgres -c "SELECT 1 FROM pg_database WHERE datname = 'voice_gateway'" 2>/dev/null | grep -q 1; }
until_ "are there" has_databases
make_rows
before=$(rows)
# Without the services, which are not built for this.
works "the profile" dc run --rm backup-folder
works "and its container" dc up -d --no-deps backup
is_healthy() { [ "$("$docker" inspect --format '{{.State.Health.Status}}' "$(dc ps -q backup)")" = healthy ]; }
until_ "makes a backup at once" has_backups 1
until_ "and is healthy" is_healthy
is "as its own user, for it alone" "$(stat -c '%u %a' "$BACKUP_FOLDER")" "10001 700"
if clear_text "$BACKUP_FOLDER"; then wrong "clear text is in the profile's backup"; fi
is "it sees its own addresses only" "$(within_backup 'ls /secrets' | tr '\n' ' ')" "identity.url machine_registry.url orchestrator.url session_store.url voice_gateway.url "
says "and writes to no database" "permission denied" within_backup 'PGOPTIONS="-c default_transaction_read_only=off" psql "$(cat /secrets/identity.url)" -c "DELETE FROM kept"'
says "nor to its own root" "Read-only file system" within_backup 'touch /opt/ensemble/x'
works "the secrets, by the script" deploy/compose/backup.sh "$work/full"
profile=$(newest "$BACKUP_FOLDER")
full=$(newest "$work/full")
says "a volume with data is refused" "volume is not empty" deploy/compose/restore.sh "$full"
works "everything removed" dc down --volumes --timeout 10
works "the profile's backup with those secrets is restored" env BACKUP_SECRETS="$full/secrets.tar.age" deploy/compose/restore.sh "$profile"
is "with the same rows" "$(rows)" "$before"
works "everything removed again" dc down --volumes --timeout 10
works "the script's is restored" deploy/compose/restore.sh "$full"
is "with the same rows, too" "$(rows)" "$before"
echo "backup-test: everything holds"
