#!/usr/bin/env bash
# Replaces the containers of the services one after the other by those of the images and settings that docker-compose.yml and
# .env name now: migrations first, and for each container a new one that is healthy before the old one drains. How many replicas
# there are stays as it is. If a new container does not become healthy, it is removed and the old ones go on. A call that is
# interrupted ends the step that it is in; one that is killed is finished by the next call.
#
#   docker compose build                             or: docker compose pull
#   deploy/compose/upgrade.sh [SERVICE…]             every service, or those
#   deploy/compose/upgrade.sh --back [SERVICE…]      to the images that ran before; the schema stays ahead, which they work with
#
# Where the edge publishes one port, a new one cannot listen next to the old one: connections are refused until it has started.
# Behind a proxy (profile tls), or with a range in EDGE_PORTS that has a free port, it is replaced as the others are.
#
#   HEALTHY_SECONDS=120   how long a new container may take
#   SETTLE_SECONDS=3      how long callers may take to find it (twice RESOLVE_INTERVAL_MS is enough)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra compose <<<"${COMPOSE:-docker compose}"
read -ra docker <<<"${DOCKER:-docker}"
# The step that is being done: its service, the old container, and those that were there before it.
step=.upgrade-step
all="identity machine-registry session-store orchestrator voice-gateway edge-proxy"

back=
if [ "${1:-}" = --help ]; then
    sed -n '2,/^set -/ { /^set -/d; s/^# \{0,1\}//; p }' "$0"
    exit 0
fi
if [ "${1:-}" = --back ]; then
    back=1
    shift
    before_back=$("${compose[@]}" --profile '*' config --images)
    # Wins over .env.
    export ENSEMBLE_VERSION=previous PULL_POLICY=never
fi
for service in "$@"; do
    [[ " $all " == *" $service "* ]] || { echo "there is no service $service; there are: $all" >&2; exit 64; }
done
services=${*:-$all}

compose() { command "${compose[@]}" "$@"; }
docker() { command "${docker[@]}" "$@"; }
# say <words…>, and pass: also when the terminal is gone.
say() { echo "$*" 2>/dev/null || true; }
pass() { while IFS= read -r line; do say "$line"; done; }
# containers <service>: those that run.
containers() { compose ps --quiet --status running "$1"; }
everything() { compose ps --quiet --all "$1"; }
inspect() { docker inspect --format "$1" "$2"; }

# healthy <container>: whether it becomes so in time.
healthy() {
    local deadline=$((SECONDS + ${HEALTHY_SECONDS:-120}))
    while [ $SECONDS -lt $deadline ]; do
        case $(inspect '{{.State.Status}} {{.State.Health.Status}}' "$1") in
            "running healthy") return 0 ;;
            exited* | dead*) break ;;
        esac
        sleep 0.2
    done
    return 1
}

give_up() { # <service> <new container>
    docker logs --tail 15 "$2" 2>&1 | pass >&2 || true
    docker rm --force "$2" >/dev/null
    rm -f $step
    say "the new $1 did not become healthy and was removed; its log is above, the others were left as they are" >&2
    exit 1
}

# end <container>: lets it finish what it has, for as long as its own grace period says.
end() {
    docker stop "$1" >/dev/null
    docker rm "$1" >/dev/null
}

# replace <service> <old container> <replicas>
replace() {
    local service=$1 old=$2 replicas=$3 before new started
    before=$(everything "$service")
    echo "$service $old" $before >$step
    started=1
    compose up --detach --no-deps --no-recreate --no-build --scale "$service=$((replicas + 1))" "$service" >/dev/null 2>"$log" || started=
    new=$(everything "$service" | grep -vxF "$before" || true)
    [ -n "$new" ] || { pass <"$log" >&2; exit 1; }
    if [ -n "$started" ]; then
        healthy "$new" || give_up "$service" "$new"
        sleep "${SETTLE_SECONDS:-3}"
        end "$old"
        return
    fi
    # The one port is taken until the old container has ended.
    if ! grep -q "port is already allocated\|address already in use" "$log"; then
        pass <"$log" >&2
        give_up "$service" "$new"
    fi
    docker stop "$old" >/dev/null
    docker start "$new" >/dev/null
    if ! healthy "$new"; then
        docker stop "$new" >/dev/null
        docker start "$old" >/dev/null
        give_up "$service" "$new"
    fi
    docker rm "$old" >/dev/null
}

# finish_step: finishes the step that was killed, if it left something to finish.
finish_step() {
    [ -e $step ] || return 0
    local service old before new
    read -r service old before <$step || true
    new=$(everything "${service:-none}" 2>/dev/null | grep -vxF "${before// /$'\n'}" || true)
    if [ -n "$new" ] && inspect '{{.Id}}' "$old" >/dev/null 2>&1; then
        say "$(date -u +%T) finishing a step of $service"
        # It holds the port, where there is one, if the new one has not begun to listen.
        [ "$(inspect '{{.State.Status}}' "$new")" = running ] || docker stop "$old" >/dev/null
        docker start "$new" >/dev/null || true
        if healthy "$new"; then
            end "$old"
        else
            docker stop "$new" >/dev/null || true
            docker start "$old" >/dev/null
            give_up "$service" "$new"
        fi
    fi
    rm -f $step
}

# is_wanted <service>: whether any is to run.
is_wanted() {
    ! compose config "$1" | awk -v of="  $1:" '$0 == of { on = 1; next } /^  [^ ]/ { on = 0 } on && /^ +(scale|replicas): 0$/ { none = 1 } END { exit !none }'
}

# go_on: ends here after an interrupt.
go_on() {
    [ ! -e "$work/interrupted" ] || { say "interrupted; call it again to go on" >&2; exit 130; }
}

# keep <service>: gives the image that runs the tag `previous`, by its id, because a build may have given its tag to another image.
# False when nothing runs, or when it is the one that would run now.
keep() {
    local running images image before
    running=$(containers "$1" 2>/dev/null)
    [ -n "$running" ] || return 1
    # Read to its end first: grep ends at its first line, and compose would fail on the closed pipe.
    images=$(compose config --images "$1") || exit 1
    image=$(grep -m1 "/$1:\|^$1:" <<<"$images") || exit 1
    before=$(inspect '{{.Image}}' "${running%%$'\n'*}") || exit 1
    [ "$before" != "$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null)" ] || return 1
    docker tag "$before" "${image%:*}:previous" || exit 1
}

# back_with_the_rest: gives the tag `previous` to our images that were not replaced, so that `docker compose up` finds all of them.
back_with_the_rest() {
    local image now
    for image in $(compose --profile '*' config --images | grep ':previous$'); do
        now=$(grep -m1 "^${image%:previous}:" <<<"$before_back" || true)
        docker image inspect "$image" >/dev/null 2>&1 || docker tag "$now" "$image" 2>/dev/null || true
    done
}

# upgrade: all of it.
upgrade() {
    local once service running absent= other replicas old
    finish_step

    if [ -z "$back" ]; then
        for once in secrets databases; do compose run --rm --no-deps -T "$once" 2>&1 </dev/null | pass; done
    fi
    for service in $services; do
        go_on
        running=$(containers "$service")
        if [ -z "$running" ]; then
            is_wanted "$service" || continue
            say "$service does not run; \`docker compose up -d $service\` starts it" >&2
            absent=1
            continue
        fi
        if [ -z "$back" ]; then
            # Only the settings have changed: the schema is as it should be, and what ran before does so now.
            keep "$service" || continue
            [ "$service" != edge-proxy ] || continue
            say "$(date -u +%T) migrating $service"
            compose run --rm --no-deps -T "$service" migrate 2>&1 </dev/null | pass
        fi
    done
    # What else has our version is left to `docker compose up`, which finds the image of before when the tag is set to it.
    for other in backup voice-agent; do
        [ -n "$back" ] || keep "$other" || true
    done
    for service in $services; do
        running=$(containers "$service")
        replicas=$(wc -w <<<"$running")
        for old in $running; do
            go_on
            replace "$service" "$old" "$replicas"
            rm -f $step
            say "$(date -u +%T) replaced $service ${old:0:12}"
        done
    done
    [ -z "$back" ] || back_with_the_rest
    [ -z "$absent" ] || exit 1
    [ -z "$back" ] || say "set ENSEMBLE_VERSION=previous in .env until the next upgrade, or the next \`docker compose up\` goes forward again"
}

work=$(mktemp -d)
log=$work/log
trap 'rm -rf "$work"' EXIT
# What is begun is done to the end of its step, whatever a terminal sends to all that runs in it.
(trap '' HUP INT TERM; upgrade) &
worker=$!
trap 'touch "$work/interrupted"' HUP INT TERM
while kill -0 $worker 2>/dev/null; do wait $worker || true; done
wait $worker
