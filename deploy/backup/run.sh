#!/usr/bin/env bash
# The program of the image `backup`: dumps databases into a folder of backups.
#
#   run.sh once           one backup
#   run.sh schedule       one every BACKUP_EVERY hours, or each day at BACKUP_AT; the first at once
#   run.sh healthcheck    whether the newest is younger than twice that
#   run.sh metrics        the same for Prometheus; `schedule` gives it at http://…:9088/metrics.txt
#
#   BACKUP_RECIPIENT, BACKUP_KEEP   as in backups.sh
#   BACKUP_EVERY=24                 hours
#   BACKUP_AT=03:15                 a time of the day (UTC); empty: BACKUP_EVERY counts from the last backup
#   BACKUP_DATABASES                which; each has its address in the file <database>.url of the folder BACKUP_URLS
#   BACKUP_FOLDER=/backups
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/backups.sh"
folder=${BACKUP_FOLDER:-/backups}
every=${BACKUP_EVERY:-24}
at=${BACKUP_AT:-}
[[ $every =~ ^[1-9][0-9]{0,3}$ ]] || fail "BACKUP_EVERY is a number of hours, 1 to 9999"
if [ -n "$at" ]; then
    [[ $at =~ ^([01][0-9]|2[0-3]):[0-5][0-9]$ ]] || fail "BACKUP_AT is a time of the day in UTC, as in 03:15"
    [ "$every" = 24 ] || fail "BACKUP_AT is for a backup each day: leave BACKUP_EVERY out"
fi

# dump <database>: to standard output.
dump() {
    local url
    url=$(cat "${BACKUP_URLS:-/secrets}/$1.url")
    # The password goes by the environment, because other processes of the machine can read arguments.
    if [[ $url =~ ^(postgres(ql)?://[^:/@]+):([^@]*)@(.*)$ ]]; then
        url=${BASH_REMATCH[1]}@${BASH_REMATCH[4]}
        local encoded=${BASH_REMATCH[3]//\\/\\\\}
        PGPASSWORD=$(printf '%b' "${encoded//%/\\x}")
        export PGPASSWORD
    fi
    PGCONNECT_TIMEOUT=10 pg_dump --format custom --no-password --lock-wait-timeout 60s --dbname "$url"
}

once() {
    local database
    check_settings
    begin_backup "$folder"
    for database in ${BACKUP_DATABASES:-identity machine_registry session_store orchestrator voice_gateway}; do
        dump "$database" | keep_file "$database.dump"
    done
    complete_backup
}

# seconds_of <backup>: since 1970.
seconds_of() { date -u -d "${1:0:4}-${1:4:2}-${1:6:2} ${1:9:2}:${1:11:2}:${1:13:2}" +%s; }

# due: when the next is to be made, in seconds since 1970.
due() {
    local newest last next
    newest=$(complete_backups "$folder" | tail -n 1)
    if [ -z "$newest" ]; then
        echo 0
        return
    fi
    last=$(seconds_of "$newest")
    next=$((last + every * 3600))
    if [ -n "$at" ]; then
        next=$(date -u -d "$(date -u -d "@$last" +%F) $at" +%s)
        [ "$next" -gt "$last" ] || next=$((next + 86400))
    fi
    echo "$next"
}

# gauge <name> <help> <value>
gauge() { printf '# HELP ensemble_backup_%s %s\n# TYPE ensemble_backup_%s gauge\nensemble_backup_%s %s\n' "$1" "$2" "$1" "$1" "$3"; }

metrics() {
    local newest
    newest=$(complete_backups "$folder" | tail -n 1)
    gauge last_success_timestamp_seconds "When the newest complete backup was begun; 0 when there is none." "$([ -z "$newest" ] && echo 0 || seconds_of "$newest")"
    gauge interval_seconds "How often there is to be one." $((every * 3600))
    gauge size_bytes "The size of the newest complete backup." "$([ -z "$newest" ] && echo 0 || du -sb "$folder/$newest" | cut -f1)"
    gauge stored "How many complete backups there are." "$(complete_backups "$folder" | wc -l)"
}

# tell: writes them where the web server of `schedule` finds them.
tell() { metrics >"$served/new" && mv "$served/new" "$served/metrics.txt"; }

schedule() {
    check_settings
    served=$(mktemp -d)
    trap '[ -z "$child" ] || kill "$child" 2>/dev/null && wait "$child" || true; [ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$served"; exit 0' TERM INT
    server=
    if command -v busybox >/dev/null; then
        busybox httpd -f -p 9088 -h "$served" &
        server=$!
    fi
    while true; do
        child=
        tell
        if [ "$(date +%s)" -ge "$(due)" ]; then
            timeout --kill-after 30s "${every}h" "$0" once &
            child=$!
            if ! wait "$child"; then
                echo "the backup failed, see above; the next try is in 5 minutes" >&2
                sleep 300 &
                child=$!
                wait "$child"
            fi
        else
            # In short steps, because clocks are set and machines sleep.
            sleep 30 &
            child=$!
            wait "$child"
        fi
    done
}

healthcheck() {
    local newest age
    newest=$(complete_backups "$folder" | tail -n 1)
    [ -n "$newest" ] || fail "there is no backup yet"
    age=$(($(date +%s) - $(seconds_of "$newest")))
    [ "$age" -lt $((every * 7200)) ] || fail "the newest backup, $newest, is $((age / 3600)) hours old"
    echo "the newest backup is $newest"
}

case ${1:-} in
    once | schedule | healthcheck | metrics) "$1" ;;
    *) fail "run.sh once, schedule, healthcheck or metrics" ;;
esac
