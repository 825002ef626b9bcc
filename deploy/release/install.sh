#!/bin/sh
# Installs the program `ensemble` for Linux and macOS into ~/.local/bin. `make dist` fills in the names.
#
#   sh install.sh [--version 1.2.3] [--dir DIR] [--releases URL]
#   sh install.sh --uninstall [--dir DIR]
#   sh install.sh --newest                   prints the newest version and installs nothing
#
# Everything is in one function, which does nothing without the last word of the last line: half a script does nothing.
ensemble_install() (
    set -eu
    version='@VERSION@'
    releases='@RELEASES@'
    : "${HOME:=}" "${SHELL:=}"
    # They would say whom cosign trusts, and what else tar does.
    for variable in TAR_OPTIONS $(env | sed -n -e 's/^\(SIGSTORE_[A-Z0-9_]*\)=.*/\1/p' -e 's/^\(TUF_[A-Z0-9_]*\)=.*/\1/p'); do
        unset "$variable"
    done
    # The workflow that signs releases, and who vouches for it.
    signer='@SIGNER@'
    issuer='https://token.actions.githubusercontent.com'
    oldest_glibc='2.36'

    fail() {
        printf 'install.sh: %s\n' "$*" >&2
        exit 1
    }
    say() { printf '%s\n' "$@"; }

    is_version() {
        case $1 in *[!0-9A-Za-z.-]*) return 1 ;; esac
        printf '%s\n' "$1" | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$'
    }

    is_loopback() {
        host=${1#http://}
        [ "$host" != "$1" ] || return 1
        host=${host%%/*}
        case $host in
            127.0.0.1 | localhost | '[::1]') ;;
            127.0.0.1:* | localhost:* | '[::1]':*)
                case ${host##*:} in '' | *[!0-9]*) return 1 ;; esac
                ;;
            *) return 1 ;;
        esac
    }

    # An address, the file for it, and its largest size in blocks. The settings of curl's own file could switch checks off.
    fetch() (
        ulimit -f "$3"
        exec curl -q --proto "$protocols" --proto-redir =https --tlsv1.2 --globoff --location --max-redirs 5 --fail --silent --show-error \
            --retry 2 --connect-timeout 20 --max-time 600 --output "$2" --url "$1" </dev/null
    )

    sha256() {
        if command -v sha256sum >/dev/null; then
            sha256sum "$1"
        elif command -v shasum >/dev/null; then
            shasum -a 256 "$1"
        else
            openssl dgst -sha256 -r "$1"
        fi | cut -d ' ' -f 1
    }

    # As one word of a shell.
    quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

    choose_platform() {
        case $(uname -s) in
            Linux) system=unknown-linux-gnu ;;
            Darwin) system=apple-darwin ;;
            MINGW* | MSYS* | CYGWIN* | Windows*)
                fail "on Windows Ensemble needs WSL 2: type \`wsl --install\` in PowerShell, then this command in the Linux that it installs"
                ;;
            *) fail "no program is made for $(uname -s); README.md says how to build it" ;;
        esac
        case $(uname -m) in
            x86_64 | amd64) processor=x86_64 ;;
            aarch64 | arm64) processor=aarch64 ;;
            *) fail "no program is made for the processor $(uname -m); README.md says how to build it" ;;
        esac
        if [ "$system" = apple-darwin ]; then
            # A shell that is itself translated sees another processor.
            [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" != 1 ] || processor=aarch64
        else
            [ "$(getconf LONG_BIT 2>/dev/null || echo 64)" = 64 ] || fail "no program is made for a system of 32 bits"
            libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 || true)
            case $libc in
                *musl*) fail "the program needs glibc, and this system has musl (Alpine); README.md says how to build it" ;;
                'glibc '*)
                    libc=${libc#glibc }
                    first=$(printf '%s\n' "$libc" "$oldest_glibc" | sort -t . -k 1,1n -k 2,2n | head -n 1)
                    [ "$first" = "$oldest_glibc" ] ||
                        fail "the program needs glibc $oldest_glibc or newer (as in Debian 12), and this system has $libc; README.md says how to build it"
                    ;;
            esac
        fi
        platform=$processor-$system
    }

    # What was downloaded is signed, or at least complete.
    check() {
        checked="only the checksum, from the same place: this does not show who made it"
        if [ -n "$signer" ] && command -v cosign >/dev/null; then
            bundle=$work/$name.sha256.sigstore.json
            fetch "$from/$name.sha256.sigstore.json" "$bundle" 2048 || fail "$from has no signature of $version, so nothing was installed"
            case $(cosign verify-blob --help </dev/null 2>&1) in
                *--new-bundle-format*) format=--new-bundle-format ;;
                *) format= ;;
            esac
            identity=$signer@refs/tags/v$version
            # shellcheck disable=SC2086 # none, or one word
            cosign verify-blob $format --bundle "$bundle" --certificate-identity "$identity" --certificate-oidc-issuer "$issuer" \
                "$work/$name.sha256" </dev/null >"$work/cosign" 2>&1 || {
                cat "$work/cosign" >&2
                fail "the signature is not of $identity, so nothing was installed"
            }
            checked="the checksum, and the signature of $identity"
        fi
        expected=$(awk -v name="$name.tar.gz" '$2 == name { print $1 }' "$work/$name.sha256")
        [ ${#expected} = 64 ] && [ "$(sha256 "$work/$name.tar.gz")" = "$expected" ] ||
            fail "the checksum of $name.tar.gz is not the one in $name.sha256, so nothing was installed: call this again"
    }

    install() {
        choose_platform
        name=ensemble-$version-$platform
        from=$releases/download/v$version
        if [ -e "$dir/ensemble" ] || [ -L "$dir/ensemble" ]; then
            [ -f "$mark" ] || fail "$dir/ensemble was installed in another way: remove it, or name another folder with --dir"
        fi
        fetch "$from/$name.sha256" "$work/$name.sha256" 2048 || fail "$from has no release $version for $platform"
        fetch "$from/$name.tar.gz" "$work/$name.tar.gz" 400000 || fail "$from/$name.tar.gz could not be downloaded: call this again"
        check
        say "Ensemble $version for $platform" "from    $from/$name.tar.gz" "checked $checked" "into    $dir/ensemble"

        mkdir -p "$dir" 2>/dev/null && new=$(mktemp "$dir/.ensemble.XXXXXX" 2>/dev/null) ||
            fail "$dir cannot be written to; --dir DIR names another folder"
        tar -xzOf "$work/$name.tar.gz" "$name/ensemble" >"$new" && chmod 0755 "$new" || fail "$name.tar.gz could not be unpacked into $dir"
        said=$("$new" --version </dev/null 2>&1) || fail "the program does not start here: $said"
        [ "$said" = "ensemble $version" ] || fail "the program says that it is $said, and not version $version"
        say install.sh >"$mark"
        # A program that runs keeps its file.
        mv -f "$new" "$dir/ensemble"
        say "" "ensemble $version is installed. What runs already is the old version until it is started again."
        name_path
    }

    name_path() {
        case :$PATH: in
            *:"$dir":*)
                found=$(command -v ensemble || true)
                [ "$found" = "$dir/ensemble" ] || say "The first \`ensemble\` in your PATH is another one: $found"
                return
                ;;
        esac
        case ${SHELL##*/} in
            fish) line="fish_add_path $(quoted "$dir")" file= ;;
            zsh) line="export PATH=$(quoted "$dir"):\"\$PATH\"" file=" and in ~/.zshrc" ;;
            bash) line="export PATH=$(quoted "$dir"):\"\$PATH\"" file=" and in ~/.bashrc" ;;
            *) line="export PATH=$(quoted "$dir"):\"\$PATH\"" file=" and in ~/.profile" ;;
        esac
        say "$dir is not in your PATH. Type this here$file:" "" "    $line"
    }

    uninstall() {
        [ -e "$dir/ensemble" ] || [ -f "$mark" ] || fail "there is no $dir/ensemble; --dir DIR names another folder"
        [ -f "$mark" ] || fail "$dir/ensemble was installed in another way, so this does not remove it"
        config=${XDG_CONFIG_HOME:-$HOME/.config}
        for unit in up runner; do
            for service in "$config/systemd/user/ensemble-$unit.service" "$HOME"/Library/LaunchAgents/*ensemble*"$unit".plist; do
                command="ensemble $unit uninstall"
                [ "$unit" = runner ] || command="ensemble up --uninstall"
                ! grep -qF "$dir/ensemble" "$service" 2>/dev/null || fail "a service starts this program: type \`$command\` first"
            done
        done
        rm -f "$dir/ensemble" "$mark"
        say "$dir/ensemble is removed."
        for kept in "${ENSEMBLE_HOME:-$config/ensemble}" "${XDG_DATA_HOME:-$HOME/.local/share}/ensemble" "$HOME/Library/Application Support/ensemble"; do
            [ ! -d "$kept" ] || say "This stays, with keys and data: $kept"
        done
        say "Without another primary device and without recovery words, a lost key cannot be brought back."
    }

    dir=${HOME:+$HOME/.local/bin}
    action=install
    given= ended=
    while [ $# -gt 0 ]; do
        case $1 in
            --version | --dir | --releases)
                [ "${2:---end}" != --end ] || fail "$1 needs a value"
                case $1 in
                    --version) version=$2 ;;
                    --dir) dir=$2 ;;
                    *) given=$2 ;;
                esac
                shift
                ;;
            --uninstall) action=uninstall ;;
            --newest) action=newest ;;
            --end) ended=yes ;;
            *) fail "there is no option $1; --version, --dir, --releases, --uninstall and --newest are" ;;
        esac
        shift
    done
    [ -n "$ended" ] || fail "this script was not read to its end: call it again"
    [ -n "$dir" ] || fail "HOME is not set; --dir DIR names a folder"
    case $dir in /*) ;; *) dir=$PWD/$dir ;; esac
    # How this program was installed, for `ensemble update`.
    mark=$dir/.ensemble-install
    if [ "$action" = uninstall ]; then
        uninstall
        exit
    fi

    if [ -n "$given" ]; then
        releases=$given
    elif [ -n "${ENSEMBLE_RELEASES:-}" ]; then
        is_loopback "$ENSEMBLE_RELEASES" || fail "ENSEMBLE_RELEASES is for tests, with a loopback address: use --releases URL"
        releases=$ENSEMBLE_RELEASES
    fi
    releases=${releases%/}
    case $releases in
        '') fail "this script has no address of releases; --releases URL names one" ;;
        https://?*) protocols==https ;;
        *) is_loopback "$releases" && protocols==http || fail "$releases is not an https address" ;;
    esac
    command -v curl >/dev/null || fail "the program curl is needed: install it, and call this again"

    work=$(mktemp -d)
    new=
    trap 'rm -rf "$work" ${new:+"$new"}' EXIT
    trap 'exit 130' INT TERM HUP
    if [ "$action" = newest ]; then
        fetch "$releases/latest/download/VERSION" "$work/VERSION" 8 || fail "the newest version could not be read from $releases"
        version=$(head -n 1 "$work/VERSION")
        is_version "$version" || fail "$releases names no version"
        say "$version"
    else
        is_version "$version" || fail "--version is a version of three numbers, as in 1.2.3"
        install
    fi
)
ensemble_install "$@" --end
