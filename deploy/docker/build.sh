#!/bin/sh
# Compiles what the images contain. The same packages in both steps, so that both choose the same features of
# third-party crates.
#
#   build.sh dependencies <profile>
#   build.sh programs <profile> <where to>
set -eu
step=$1
profile=$2
# The dev profile's folder has another name.
folder=$profile
[ "$profile" != dev ] || folder=debug
programs="ensemble-edge-proxy ensemble-identity ensemble-machine-registry ensemble-session-store
          ensemble-orchestrator ensemble-voice-gateway ensemble-runner"
packages=
features=
for program in $programs; do
    packages="$packages -p $program"
    # The runner serves nothing and keeps the allocator of the system.
    [ "$program" = ensemble-runner ] || features="$features $program/jemalloc"
done
packages="$packages -p ensemble-cli"
features="$features ensemble-cli/jemalloc"

case $step in
    dependencies)
        # shellcheck disable=SC2086 # a list of words
        cargo build --locked --profile "$profile" --features "$features" $packages
        # What was compiled from the empty programs must not pass for the real ones.
        rm -rf "target/$folder/.fingerprint/ensemble-"*
        find "target/$folder" -maxdepth 1 -name 'ensemble*' -type f -delete
        ;;
    programs)
        # What the programs say of themselves; not in the step before, whose layer outlives a commit.
        if [ "${REVISION:-unknown}" != unknown ]; then export BUILD_COMMIT="$REVISION"; fi
        # shellcheck disable=SC2086
        cargo build --locked --profile "$profile" --features "$features" $packages --bins
        mkdir -p "$3"
        for program in $programs ensemble; do cp "target/$folder/$program" "$3/"; done
        ;;
    *)
        echo "build.sh: there is no step $step" >&2
        exit 64
        ;;
esac
