#!/usr/bin/env bash
# Stand-ins for the images that the files name, for engines that reach no registry: a Debian by debootstrap, this machine's
# Rust with what cargo has downloaded, Debian's PostgreSQL, Caddy made by Go, a Python 3.12 of this machine (PYTHON_PREFIX=/its/folder), and a
# LiveKit server that was built before (LIVEKIT_SERVER=/path/to/livekit-server). They carry the names of the real ones, so
# keep them out of engines that are used for anything else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
need_engine "local images"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build() { DOCKER_BUILDKIT=$buildkit "$docker" build --quiet --network host -t "$1" -f - "$2" >/dev/null && echo "made $1"; }

if ! "$docker" image inspect debian:bookworm-slim >/dev/null 2>&1; then
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/debian" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >/dev/null
    rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work"/debian/var/lib/apt/lists/* "$work"/debian/usr/share/{doc,man,locale,info}/*
    tar -C "$work/debian" -c . | "$docker" import --change 'CMD ["bash"]' - debian:bookworm-slim >/dev/null
    echo "made debian:bookworm-slim"
fi

if ! "$docker" image inspect rust:1.95-slim-bookworm >/dev/null 2>&1; then
    toolchain=$(rustc --print sysroot)
    mkdir -p "$work/rust/registry"
    cp -a "$toolchain" "$work/rust/toolchain"
    rm -rf "$work"/rust/toolchain/share "$work"/rust/toolchain/lib/rustlib/src
    cp -a "${CARGO_HOME:-$HOME/.cargo}"/registry/{index,cache} "$work/rust/registry/"
    build rust:1.95-slim-bookworm "$work/rust" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev ca-certificates && rm -rf /var/lib/apt/lists/*
COPY toolchain /usr/local/rust
COPY registry /usr/local/cargo/registry
ENV PATH=/usr/local/rust/bin:$PATH CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true
DOCKERFILE
fi

if ! "$docker" image inspect postgres:17-bookworm >/dev/null 2>&1; then
    mkdir -p "$work/postgres"
    cat >"$work/postgres/entrypoint" <<'SH'
#!/bin/bash
# As the real image starts: as root, a cluster in PGDATA, the password from a file, then the server as `postgres`.
set -e
[ "$1" = postgres ] || exec "$@"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -d -o postgres -g postgres -m 0700 "$PGDATA"
    cat "$POSTGRES_PASSWORD_FILE" >/tmp/pw && chown postgres /tmp/pw
    setpriv --reuid=postgres --regid=postgres --init-groups initdb -D "$PGDATA" -U postgres --pwfile=/tmp/pw --auth-host=scram-sha-256 --auth-local=trust >/dev/null
    rm /tmp/pw
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
SH
    chmod +x "$work/postgres/entrypoint"
    build postgres:17-bookworm "$work/postgres" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN groupadd --gid 999 postgres && useradd --uid 999 --gid 999 postgres \
 && apt-get update && apt-get install -y --no-install-recommends postgresql-15 && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15 \
 && install -d -o postgres -g postgres -m 3777 /var/run/postgresql && install -d -o postgres -g postgres /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
COPY entrypoint /usr/local/bin/entrypoint
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/entrypoint"]
CMD ["postgres"]
DOCKERFILE
fi

if ! "$docker" image inspect caddy:2.11-alpine >/dev/null 2>&1; then
    # Before 2.11 it cannot send a request with a body to another server when the first does not answer; Debian's is of 2022.
    mkdir -p "$work/caddy"
    GOBIN="$work/caddy" CGO_ENABLED=0 go install github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9
    build caddy:2.11-alpine "$work/caddy" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
COPY caddy /usr/bin/caddy
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
DOCKERFILE
fi

if ! "$docker" image inspect python:3.12-slim-bookworm >/dev/null 2>&1; then
    if [ -n "${PYTHON_PREFIX:-}" ]; then
        mkdir -p "$work/python" && cp -a "$PYTHON_PREFIX"/{bin,lib} "$work/python/"
        rm -rf "$work"/python/lib/python3.12/{test,idlelib,tkinter} && find "$work/python" -name __pycache__ -exec rm -rf {} +
        # This machine's certificates, in case it trusts others than Debian does.
        cp -L /etc/ssl/certs/ca-certificates.crt "$work/python/"
        build python:3.12-slim-bookworm "$work/python" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libbz2-1.0 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 libuuid1 zlib1g && rm -rf /var/lib/apt/lists/*
COPY bin /usr/local/bin
COPY lib /usr/local/lib
COPY ca-certificates.crt /etc/ssl/certs/
RUN ldconfig && sed -i '1s|^#!.*python3.*|#!/usr/local/bin/python3.12|' /usr/local/bin/pip*
CMD ["python3"]
DOCKERFILE
    else
        echo "skipped: python (set PYTHON_PREFIX to the folder of a Python 3.12)"
    fi
fi

if ! "$docker" image inspect livekit/livekit-server:v1.13.5 >/dev/null 2>&1; then
    if [ -n "${LIVEKIT_SERVER:-}" ]; then
        mkdir -p "$work/livekit" && cp "$LIVEKIT_SERVER" "$work/livekit/livekit-server"
        build livekit/livekit-server:v1.13.5 "$work/livekit" <<'DOCKERFILE'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
COPY livekit-server /livekit-server
ENTRYPOINT ["/livekit-server"]
DOCKERFILE
    else
        echo "skipped: livekit/livekit-server (set LIVEKIT_SERVER to a livekit-server program)"
    fi
fi
