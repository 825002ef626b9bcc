#!/usr/bin/env bash
# Signs docker, helm and cosign in at the registry of `make publish`: REGISTRY, REGISTRY_USER, REGISTRY_PASSWORD.
set -euo pipefail
host=${REGISTRY%%/*}
for name in REGISTRY REGISTRY_USER REGISTRY_PASSWORD; do
    [ -n "${!name:-}" ] || { echo "$name is not set" >&2; exit 1; }
done
# cosign takes docker's.
printf %s "$REGISTRY_PASSWORD" | docker login --username "$REGISTRY_USER" --password-stdin "$host"
printf %s "$REGISTRY_PASSWORD" | "${HELM:-.cache/deploy/bin/helm}" registry login --username "$REGISTRY_USER" --password-stdin "$host"
