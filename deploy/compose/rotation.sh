# Sourced by secrets.sh, in its container: one step of the rotation of a secret. rotate.sh lets the services take each step.
#
#   accept   there is a new one in addition to the old one, which is still used
#   switch   the new one is used, and the old one is still accepted
#   finish   the old one is gone
#
# made/rotating-<secret> holds the step that was taken last, so that a rotation that was interrupted resumes there.

# files_of <secret>: each has a second one, <file>-other, while it is rotated.
files_of() {
    case $1 in
        internal-token) echo made/internal-token ;;
        key-encryption-key) echo identity/key-encryption-key ;;
        livekit-key) echo made/livekit-api-key made/livekit-api-secret ;;
        voice-public-key) echo made/voice-public-key ;;
        database-passwords) echo postgres/password postgres/backup.role; for role in $roles; do echo "postgres/$role.role" "postgres/$role.login"; done ;;
        *) echo "there is no secret $1 that can be rotated here" >&2; exit 64 ;;
    esac
}

# another <file>: a new value.
another() {
    case $1 in
        */key-encryption-key) head -c 32 /dev/urandom | base64 | tr -d '\n' ;;
        # Keys of LiveKit have names, which differ as long as both are there.
        */livekit-api-key) printf 'ensemble%s' "$(random | head -c 8)" ;;
        # A role with the same rights, so that both passwords work; each database has two, which take turns.
        *.login) role=$(basename "$1" .login); if [ "$(cat "$1")" = "$role" ]; then printf %s "${role}_2"; else printf %s "$role"; fi ;;
        *) random ;;
    esac
}

# rotate <secret>: takes the next step and says which it was.
rotate() {
    state=made/rotating-$1
    files=$(files_of "$1")
    case $(cat "$state" 2>/dev/null || true) in
        "")
            for file in $files; do another "$file" > "$file-other"; done
            step=accept ;;
        accept)
            for file in $files; do mv "$file" "$file-old"; mv "$file-other" "$file"; mv "$file-old" "$file-other"; done
            step=switch ;;
        switch)
            for file in $files; do rm -f "$file-other"; done
            step=finish ;;
    esac
    if [ $step = finish ]; then rm "$state"; else printf %s $step > "$state"; fi
    echo "step: $step"
}
