#!/usr/bin/env bash
# Brings what `make chart-test` uses into one folder: helm, kubernetes-validate, the resource definitions of the Gateway API,
# the Prometheus operator and CloudNativePG, promtool. What cannot be had is left out; the test says so.
set -euo pipefail
tools=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
missing() { echo "not installed: $1 ($2)"; }

if [ ! -x "$tools/venv/bin/kubernetes-validate" ]; then
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
fi

if [ ! -x "$tools/bin/helm" ]; then
    mkdir -p "$tools/bin"
    if command -v helm >/dev/null; then
        ln -s "$(command -v helm)" "$tools/bin/helm"
    elif command -v go >/dev/null; then
        GOBIN="$tools/bin" go install "helm.sh/helm/v3/cmd/helm@${HELM_VERSION:-latest}" || missing helm "go install failed"
    else
        missing helm "needs helm or go"
    fi
fi

if [ ! -x "$tools/bin/actionlint" ]; then
    if command -v go >/dev/null; then
        GOBIN="$tools/bin" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 || missing actionlint "go install failed"
    else
        missing actionlint "needs go"
    fi
fi

# name module version folder-of-definitions
definitions() {
    [ -d "$tools/definitions/$1" ] && return
    local folder
    if command -v go >/dev/null && folder=$(cd "$tools" && go mod download -json "$2@$3" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && [ -n "$folder" ]; then
        mkdir -p "$tools/definitions/$1"
        cp "$folder/$4"/*.yaml "$tools/definitions/$1/"
        chmod -R u+w "$tools/definitions/$1"
    else
        missing "definitions of $1" "needs go and a module proxy"
    fi
}
definitions gateway-api sigs.k8s.io/gateway-api v1.2.1 config/crd/standard
definitions prometheus-operator github.com/prometheus-operator/prometheus-operator v0.79.2 example/prometheus-operator-crd
definitions cloudnative-pg github.com/cloudnative-pg/cloudnative-pg v1.27.0 config/crd/bases

if [ ! -x "$tools/bin/promtool" ]; then
    if command -v promtool >/dev/null; then
        ln -s "$(command -v promtool)" "$tools/bin/promtool"
    elif command -v apt-get >/dev/null && (mkdir -p "$tools/apt" && cd "$tools/apt" && apt-get download -qq prometheus 2>/dev/null); then
        dpkg -x "$tools"/apt/prometheus_*.deb "$tools/apt/root"
        cp "$tools/apt/root/usr/bin/promtool" "$tools/bin/promtool"
        rm -rf "$tools/apt"
    else
        missing promtool "needs promtool or Debian's package prometheus"
    fi
fi
