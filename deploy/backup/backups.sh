# Sourced: a folder of backups. A backup is a folder in it that is named by its time (UTC), and has that name only when it is
# complete; SHA256SUMS in it names its files. Each file is encrypted while it is written: no clear text is ever on the disk.
#
#   BACKUP_RECIPIENT   public keys of age, separated by commas; empty: nothing is encrypted
#   BACKUP_KEEP        how many backups stay, 1 or more; empty: all of them; not set: 14

fail() {
    echo "$*" >&2
    exit 1
}

# Before anything is read: whether the settings can be used.
check_settings() {
    local keys key
    BACKUP_KEEP=${BACKUP_KEEP-14}
    case ${BACKUP_KEEP:-} in
        0* | *[!0-9]*) fail "BACKUP_KEEP is how many backups stay: 1 or more, or empty for all" ;;
    esac
    recipients=()
    IFS=, read -ra keys <<<"${BACKUP_RECIPIENT:-}"
    for key in "${keys[@]}"; do
        case $key in
            AGE-SECRET-KEY-*) fail "BACKUP_RECIPIENT is a private key; it takes the public one, which begins with age1" ;;
        esac
        recipients+=(--recipient "$key")
    done
    if [ ${#recipients[@]} = 0 ]; then
        echo "warning: this backup is not encrypted, because BACKUP_RECIPIENT is empty (age-keygen -o key.txt makes a pair of keys)" >&2
        return
    fi
    command -v age >/dev/null || fail "BACKUP_RECIPIENT is set, and there is no program age to encrypt with (Debian's package age)"
    age "${recipients[@]}" </dev/null >/dev/null 2>&1 || fail "age does not take BACKUP_RECIPIENT: a public key looks like age1…, and several are separated by commas"
}

# begin_backup <folder>: a new one in it, which counts for nothing until it is complete.
begin_backup() {
    umask 077
    mkdir -p "$1"
    backups=$(cd "$1" && pwd)
    # A volume of a cluster belongs to another user, and its group may write.
    [ ! -O "$backups" ] || chmod 0700 "$backups"
    [ -w "$backups" ] || fail "$backups cannot be written by user $(id -u)"
    exec 9>"$backups/.lock"
    flock --nonblock 9 || fail "another backup is being written into $backups"
    # What one that was interrupted has left.
    rm -rf "$backups"/partial.*
    while written=$(date -u +%Y%m%dT%H%M%SZ) && [ -e "$backups/$written" ]; do sleep 1; done
    partial=$(mktemp -d "$backups/partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
}

# keep_file <name>: standard input as a file of the backup.
keep_file() {
    if [ ${#recipients[@]} -gt 0 ]; then
        age "${recipients[@]}" --output "$partial/$1.age"
        echo "$1.age: $(stat -c %s "$partial/$1.age") bytes"
    else
        cat >"$partial/$1"
        echo "$1: $(stat -c %s "$partial/$1") bytes"
    fi
}

# complete_backup: gives it its name. Older ones go only now, and this one never does.
complete_backup() {
    local sums old all
    sums=$(cd "$partial" && sha256sum -- *)
    printf '%s\n' "$sums" >"$partial/SHA256SUMS"
    sync "$partial"/* "$partial"
    mv -T "$partial" "$backups/$written"
    trap - EXIT
    sync "$backups"
    echo "$backups/$written is complete"
    mapfile -t all < <(complete_backups "$backups")
    for ((i = 0; i < ${#all[@]} - ${BACKUP_KEEP:-${#all[@]}}; i++)); do
        old=${all[i]}
        # Where a clock went back, the new one is not the last.
        [ "$old" != "$written" ] || continue
        # A backup that is half removed must not have the name of one.
        mv -T "$backups/$old" "$backups/partial.$old"
        rm -rf "$backups/partial.$old"
        echo "$backups/$old is removed, because $BACKUP_KEEP stay"
    done
}

# complete_backups <folder>: their names, the oldest first.
complete_backups() {
    local path
    for path in "$1"/*; do
        if [[ ${path##*/} =~ ^[0-9]{8}T[0-9]{6}Z$ && -f $path/SHA256SUMS ]]; then echo "${path##*/}"; fi
    done
}
