#!/usr/bin/env python3
"""Renders the chart with both example value files and some more, and checks what comes out: strictly against the schemas
of the last three Kubernetes minors, against the definitions of the Gateway API and the Prometheus operator, against Pod
Security "restricted", and against what the services promise (drain, secrets, who may call whom). Then the values' own
schema, the alert rules and the dashboards."""

import argparse
import copy
import json
import os
import pathlib
import re
import subprocess
import sys

import chart_backup
import chart_postgres
import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/ensemble"
SERVICES = {"edge-proxy": 8080, "identity": 8081, "machine-registry": 8082, "session-store": 8083, "orchestrator": 8084, "voice-gateway": 8085}
BASE = ["--set", "publicBaseUrl=https://ensemble.example.com", "--set", "image.registry=registry.example.com/"]
# What a service starts without, in addition to INTERNAL_TOKEN_PREVIOUS.
OPTIONAL = {"identity": {"KEY_ENCRYPTION_KEY_PREVIOUS"}, "voice-gateway": {"TOOL_BRIDGE_API_KEY", "LIVEKIT_WEBHOOK_API_KEY", "LIVEKIT_WEBHOOK_API_SECRET", "VOICE_WEBHOOKS"}}
# What the services read as files only.
SECRETS = {"INTERNAL_TOKEN", "INTERNAL_TOKEN_PREVIOUS", "DATABASE_URL", "KEY_ENCRYPTION_KEY", "VOICE_PUBLIC_KEY", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET",
           "TOOL_BRIDGE_API_KEY", "KEY_ENCRYPTION_KEY_PREVIOUS", "LIVEKIT_WEBHOOK_API_KEY", "LIVEKIT_WEBHOOK_API_SECRET", "VOICE_WEBHOOKS"}
DIGEST = "sha256:" + "a" * 64
# Where each pod runs, and what it has to carry.
SCHEDULED = ["--set", "defaults.nodeSelector.pool=ensemble", "--set-json", 'defaults.tolerations=[{"key":"ensemble","operator":"Exists"}]', "--set", "defaults.priorityClassName=high",
             "--set-json", 'defaults.affinity={"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}',
             "--set", "defaults.podLabels.team=blue", "--set-string", "defaults.podAnnotations.sidecar\\.istio\\.io/inject=false"]
RENDERINGS = {
    "small-team": ["-f", str(CHART / "values-small-team.yaml")],
    "10k-users": ["-f", str(CHART / "values-10k-users.yaml")],
    "cloudnativepg": ["-f", str(CHART / "values-cloudnativepg.yaml")],
    "managed-postgres": ["-f", str(CHART / "values-managed-postgres.yaml")],
    "external-secrets": BASE + ["-f", str(CHART / "values-external-secrets.yaml")],
    "bare": BASE,
    "own-name-server": BASE + ["--set-json", 'networkPolicy.dnsTo=[{"ipBlock":{"cidr":"10.0.0.10/32"}}]'],
    "ingress": BASE + ["--set", "ingress.enabled=true", "--set", "ingress.host=ensemble.example.com", "--set", "ingress.className=traefik"],
    # What the chart sets itself, set again; volumes, digests and objects of one's own; no voice.
    "own": BASE + ["--set", "services.identity.env.RUST_LOG=debug", "--set", "services.identity.env.REGISTRATION=closed", "--set", f"image.digests.identity={DIGEST}",
                   "--set", "voice.enabled=false", "--set", "monitoring.prometheusRule.enabled=true",
                   "--set", "monitoring.prometheusRule.runbookBaseUrl=https://runbooks.example.com/OPERATIONS.md", "--set", "defaults.serviceAccountAnnotations.example\\.com/role=ensemble",
                   "--set", "defaults.annotations.secret\\.reloader\\.stakater\\.com/reload=ensemble-secrets",
                   "--set-json", 'defaults.extraVolumes=[{"name":"ca","configMap":{"name":"database-ca"}}]',
                   "--set-json", 'defaults.extraVolumeMounts=[{"name":"ca","mountPath":"/etc/database-ca","readOnly":true}]',
                   *SCHEDULED,
                   "--set-json", 'extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ .Release.Name }}-mine"}}]'],
    "voice-agent": BASE + ["--set", "livekit.url=wss://livekit.example.com", "--set", "livekit.wsUrl=wss://livekit.example.com", "--set", "voiceAgent.enabled=true",
                           "--set", "voiceAgent.existingSecret=voice-agent", "--set", "voiceAgent.env.VOICE_AGENT_MAX_JOBS=3", "--set", "voiceAgent.env.VOICE_LLM=openai:gpt",
                           "--set", "voiceAgent.autoscaling.enabled=true", "--set", "monitoring.serviceMonitor.enabled=true"],
    "backup": BASE + chart_backup.VALUES,
    "no-policies-no-migrations": BASE + ["--set", "networkPolicy.enabled=false", "--set", "migrations.mode=off", "--set", "drain.preStopSeconds=0"],
}
WRONG_VALUES = [
    (["--set", "nonsense=1"], "nonsense"),
    (["--set", "services.edge-proxy.replica=3"], "replica"),
    (["--set", "services.no-service.replicas=3"], "no-service"),
    (["--set", "registration=maybe"], "registration"),
    (["--set", "gateway.enabled=true"], "parentRefs"),
    (["--set", "ingress.enabled=true"], "host"),
    (["--set", "telemetry.sampleRatio=2"], "sampleRatio"),
    (["--set", "publicBaseUrl=ensemble.example.com"], "publicBaseUrl"),
    (["--set", "voiceAgent.enabled=true"], "existingSecret"),
    (["--set", "voiceAgent.enabled=true", "--set", "voiceAgent.existingSecret=a"], "livekit.url"),
    (["--set", "voiceAgent.env.LIVEKIT_API_SECRET=x"], "LIVEKIT_API_SECRET"),
    (["--set", "image.registry="], "registry"),
    (["--set", "image.registry=registry.example.com"], "registry"),
    (["--set", "image.digests.identity=latest"], "digests"),
    (["--set", "services.identity.env.DRAIN_DELAY_MS=1"], "DRAIN_DELAY_MS"),
    (["--set", "monitoring.prometheusRule.enabled=true"], "runbookBaseUrl"),
] + chart_backup.WRONG


class Checks:
    def __init__(self):
        self.done, self.failed = 0, []

    def that(self, holds, what):
        self.done += 1
        if not holds:
            self.failed.append(what)

    def skip(self, what, why):
        print(f"skipped: {what} ({why})")


def template(tools, values, minor):
    command = [tools / "bin/helm", "template", "ensemble", CHART, "-n", "ensemble", "--kube-version", minor, *values]
    return subprocess.run(command, capture_output=True, text=True)


def minors(tools):
    import kubernetes_validate
    folder = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    found = {tuple(map(int, m.groups())) for m in (re.match(r"v(\d+)\.(\d+)\.\d+-local-strict$", f.name) for f in folder.iterdir()) if m}
    return [f"{major}.{minor}.0" for major, minor in sorted(found)[-3:]]


def against_kubernetes(checks, tools, name, text, minor):
    path = tools / f"rendered-{name}.yaml"
    path.write_text(text)
    ran = subprocess.run([tools / "venv/bin/kubernetes-validate", "-k", minor, "--strict", "--quiet", "--no-warn", path], capture_output=True, text=True)
    checks.that(ran.returncode == 0, f"{name} on {minor}: {ran.stdout}{ran.stderr}")


def strict(schema):
    """As the API server prunes: a field that the definition does not know is a mistake."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)
    return schema


def definitions(tools):
    known = {}
    # PyYAML has no opinion on a bare `=`, which YAML 1.1 gives a meaning and these files do not.
    yaml.SafeLoader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)
    paths = [path for path in (tools / "definitions").glob("*/*.yaml") if any(kind in path.name for kind in ("httproutes", "servicemonitor", "podmonitor", "prometheusrule", "cnpg.io"))]
    for path in sorted(paths):
        for document in yaml.safe_load_all(path.read_text()):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            for version in document["spec"]["versions"]:
                schema = strict(copy.deepcopy(version["schema"]["openAPIV3Schema"]))
                schema["properties"]["metadata"] = {"type": "object"}
                known[(f'{document["spec"]["group"]}/{version["name"]}', document["spec"]["names"]["kind"])] = schema
    return known


def against_definitions(checks, known, name, objects):
    for thing in objects:
        key = (thing["apiVersion"], thing["kind"])
        if key not in known:
            continue
        errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in jsonschema.Draft7Validator(known[key]).iter_errors(thing)]
        checks.that(not errors, f"{name}: {thing['kind']} {thing['metadata']['name']}: {errors}")


def pods(objects):
    for thing in objects:
        if thing["kind"] in ("Deployment", "Job"):
            yield thing, thing["spec"]["template"]
        elif thing["kind"] == "CronJob":
            yield thing, thing["spec"]["jobTemplate"]["spec"]["template"]
        elif thing["kind"] == "Pod":
            yield thing, thing


def is_restricted(checks, name, objects):
    """kubernetes.io/docs/concepts/security/pod-security-standards, and what we promise beyond it."""
    for thing, pod in pods(objects):
        spec, where = pod["spec"], f"{name}: {thing['kind']} {thing['metadata']['name']}"
        context = spec.get("securityContext", {})
        checks.that(context.get("runAsNonRoot") is True and context.get("runAsUser", 0) >= 10000, f"{where} runs as root or as a low user")
        checks.that(context.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{where} has no seccomp profile")
        checks.that(spec.get("automountServiceAccountToken") is False, f"{where} gets a token of the cluster")
        checks.that(not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), f"{where} shares the host")
        checks.that(all(set(v) & {"secret", "projected", "emptyDir", "configMap", "persistentVolumeClaim"} for v in spec.get("volumes", [])), f"{where} has other volumes")
        for container in spec["containers"]:
            own = container.get("securityContext", {})
            checks.that(own.get("allowPrivilegeEscalation") is False and own.get("readOnlyRootFilesystem") is True
                        and own.get("capabilities", {}).get("drop") == ["ALL"], f"{where} may too much")
            checks.that(container.get("resources", {}).get("limits", {}).get("memory") and container["resources"].get("requests"), f"{where} has no limits")
            names = [e["name"] for e in container.get("env", [])]
            checks.that(len(names) == len(set(names)), f"{where} has a variable twice, which a server-side apply refuses: {names}")
            checks.that(container["image"].startswith("registry.example.com/"), f"{where} has the image {container['image']}")
            secrets = [e["name"] for e in container.get("env", []) if e["name"] in SECRETS or "valueFrom" in e]
            checks.that(not secrets, f"{where} has secrets in its environment: {secrets}")


def keeps_promises(checks, name, objects, values):
    by_kind = {}
    for thing in objects:
        by_kind.setdefault(thing["kind"], {})[thing["metadata"]["name"]] = thing
    services = {service: port for service, port in SERVICES.items() if name != "own" or service != "voice-gateway"}
    for service, port in services.items():
        full = f"ensemble-{service}"
        deployment = by_kind["Deployment"][full]
        pod = deployment["spec"]["template"]
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        env = {e["name"]: e.get("value") for e in container["env"]}
        stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        needed = stop + (int(env["DRAIN_DELAY_MS"]) + int(env["DRAIN_GRACE_MS"])) / 1000 + 8
        checks.that(spec["terminationGracePeriodSeconds"] >= needed, f"{name}: {service} is killed before it has drained")
        checks.that({p["name"]: p["containerPort"] for p in container["ports"]} == {"http": port, "internal": port + 1000}, f"{name}: ports of {service}")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            checks.that(container[probe]["httpGet"]["port"] == "internal", f"{name}: {probe} of {service}")
        start = container["startupProbe"]
        checks.that(start["periodSeconds"] * start["failureThreshold"] > 60, f"{name}: {service} is killed while it waits for its database")
        checks.that(container["livenessProbe"]["httpGet"]["path"] == "/healthz" and container["readinessProbe"]["httpGet"]["path"] == "/readyz", f"{name}: probes of {service}")
        if service != "edge-proxy":
            checks.that(env.get("MIGRATE") == "check" and env.get("DATABASE_URL_FILE"), f"{name}: {service} migrates by itself")
        sources = [source["secret"] for volume in spec["volumes"] for source in volume.get("projected", {}).get("sources", [])]
        items = {item["key"] for source in sources for item in source["items"]}
        optional = {item["key"] for source in sources if source.get("optional") for item in source["items"]}
        checks.that(optional == {"INTERNAL_TOKEN_PREVIOUS"} | OPTIONAL.get(service, set()), f"{name}: {service} starts without {optional}")
        files = {f'/etc/ensemble/secrets/{item["path"]}' for source in sources for item in source["items"]}
        named = {value for key, value in env.items() if key.endswith("_FILE")}
        checks.that(named <= files, f"{name}: {service} looks for {named - files}, which no key makes")
        foreign = {item for item in items if item.endswith("_DATABASE_URL") and not item.startswith(service.upper().replace("-", "_"))}
        checks.that(not foreign and ("KEY_ENCRYPTION_KEY" not in items or service == "identity"), f"{name}: {service} can read {items}")
        labels, selector = pod["metadata"]["labels"], deployment["spec"]["selector"]["matchLabels"]
        checks.that(selector.items() <= labels.items(), f"{name}: {service} does not select its own pods")
        for kind in ("Service", "ServiceAccount", "PodDisruptionBudget") + (("NetworkPolicy",) if "NetworkPolicy" in by_kind else ()):
            checks.that(full in by_kind[kind], f"{name}: {service} has no {kind}")
        checks.that(by_kind["Service"][full]["spec"]["selector"].items() <= labels.items(), f"{name}: Service of {service}")
        if "HorizontalPodAutoscaler" in by_kind and name != "voice-agent":
            checks.that(full in by_kind["HorizontalPodAutoscaler"] and "replicas" not in deployment["spec"], f"{name}: autoscaling of {service}")
        if "ServiceMonitor" in by_kind:
            wanted = by_kind["ServiceMonitor"][full]["spec"]["selector"]["matchLabels"]
            matching = [s for s in by_kind["Service"].values() if wanted.items() <= s["metadata"]["labels"].items()]
            checks.that(len(matching) == 1 and any(p["name"] == "internal" for p in matching[0]["spec"]["ports"]), f"{name}: ServiceMonitor of {service} finds {len(matching)}")
        jobs = by_kind.get("Job", {})
        if jobs:
            checks.that((f"ensemble-migrate-{service}" in jobs) == (service != "edge-proxy"), f"{name}: migration of {service}")
    if name == "own":
        has_its_own(checks, by_kind)
    if name == "external-secrets":
        comes_first(checks, by_kind)
    chart_backup.check(checks, name, by_kind)
    chart_postgres.check(checks, name, by_kind, ROOT)
    if name == "voice-agent":
        talks(checks, by_kind)
    else:
        checks.that("ensemble-voice-agent" not in by_kind["Deployment"], f"{name}: a voice agent without a setting for it")
    if name == "10k-users":
        for rule in [rule for group in by_kind["PrometheusRule"]["ensemble"]["spec"]["groups"] for rule in group["rules"]]:
            asked = re.findall(r"ensemble_[a-z0-9_]+(.{0,22})", rule["expr"])
            checks.that(asked and all(a.startswith('{namespace="ensemble"') for a in asked), f"{rule['alert']} asks other installations: {rule['expr']}")
            checks.that(rule["labels"]["namespace"] == "ensemble" and rule["labels"]["severity"], f"labels of {rule['alert']}")
        edge = by_kind["NetworkPolicy"]["ensemble-edge-proxy"]["spec"]["ingress"][0]["from"]
        admitted = {p.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name") for p in edge}
        checks.that({"gateways", "livekit"} <= admitted, f"LiveKit's webhooks cannot reach the edge, which admits {admitted}")
    exposed = by_kind["Service"]["ensemble-edge-proxy"]["spec"]["ports"]
    checks.that([p["name"] for p in exposed] == ["http"], f"{name}: the edge publishes {exposed}")
    reaches_internal(checks, name, by_kind)
    reaches_out(checks, name, by_kind)


def comes_first(checks, by_kind):
    """What makes the secret is there before the migrations, which need it, and does not take it away when Helm replaces it."""
    maker = by_kind["ExternalSecret"]["ensemble-secrets"]
    weight = lambda thing: int(thing["metadata"]["annotations"]["helm.sh/hook-weight"])
    jobs = by_kind["Job"].values()
    checks.that(maker["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade", "the secret is made after the migrations")
    checks.that(len(jobs) == 5 and all(weight(maker) < weight(job) for job in jobs), "the secret is made too late for the migrations")
    checks.that(maker["spec"]["target"] == {"name": "ensemble-secrets", "creationPolicy": "Orphan"}, f"the secret goes with its maker: {maker['spec']['target']}")
    for job in jobs:
        account = by_kind["ServiceAccount"][job["spec"]["template"]["spec"]["serviceAccountName"]]
        checks.that(weight(account) < weight(job), f"{job['metadata']['name']} waits for its account")


def has_its_own(checks, by_kind):
    identity = by_kind["Deployment"]["ensemble-identity"]["spec"]["template"]["spec"]
    container, job = identity["containers"][0], by_kind["Job"]["ensemble-migrate-identity"]["spec"]["template"]["spec"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    checks.that(env["RUST_LOG"] == "debug" and env["REGISTRATION"] == "closed", f"identity does not take its own variables: {env}")
    for spec in (identity, job):
        checks.that(spec["containers"][0]["image"] == f"registry.example.com/ensemble/identity@{DIGEST}", f"digest of {spec['containers'][0]['image']}")
        checks.that(any(v["name"] == "ca" for v in spec["volumes"]) and any(m["name"] == "ca" for m in spec["containers"][0]["volumeMounts"]), "a volume of one's own")
    checks.that(by_kind["ServiceAccount"]["ensemble-identity"]["metadata"].get("annotations") == {"example.com/role": "ensemble"}, "annotations of a service account")
    annotations = by_kind["Deployment"]["ensemble-identity"]["metadata"].get("annotations")
    checks.that(annotations == {"secret.reloader.stakater.com/reload": "ensemble-secrets"}, f"annotations of a Deployment: {annotations}")
    checks.that("ensemble-mine" in by_kind["ConfigMap"], "an object of one's own")
    for thing, pod in pods([thing for kind in ("Deployment", "Job", "Pod") for thing in by_kind[kind].values()]):
        where, spec, metadata = f"{thing['kind']} {thing['metadata']['name']}", pod["spec"], pod["metadata"]
        checks.that(spec.get("nodeSelector") == {"pool": "ensemble"} and spec.get("tolerations") and spec.get("affinity") and spec.get("priorityClassName") == "high",
                    f"{where} runs anywhere: {spec}")
        checks.that(metadata["labels"].get("team") == "blue" and metadata.get("annotations", {}).get("sidecar.istio.io/inject") == "false", f"labels and annotations of {where}: {metadata}")
        account = by_kind["ServiceAccount"].get(spec.get("serviceAccountName"))
        checks.that(account is not None and account["metadata"]["annotations"].get("example.com/role") == "ensemble", f"{where} runs as {spec.get('serviceAccountName')}")
    absent = [rule["expr"] for group in by_kind["PrometheusRule"]["ensemble"]["spec"]["groups"] for rule in group["rules"] if rule["alert"] == "EnsembleServiceAbsent"]
    checks.that(len(absent) == 1 and "orchestrator" in absent[0] and "voice-gateway" not in absent[0], f"voice is off and its absence wakes: {absent}")
    voice = [f"{kind} {thing}" for kind, things in by_kind.items() for thing in things if "voice" in thing]
    edge = json.dumps(by_kind["Deployment"]["ensemble-edge-proxy"])
    checks.that(not voice and "VOICE_GATEWAY_URL" not in edge, f"voice is off and there is {voice}")


def talks(checks, by_kind):
    """The voice agent has a secret of its own and none of the services', and ends after its conversations."""
    spec = by_kind["Deployment"]["ensemble-voice-agent"]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    env = {e["name"]: e["value"] for e in container["env"]}
    checks.that(container["envFrom"] == [{"secretRef": {"name": "voice-agent"}}], f"secrets of the voice agent: {container['envFrom']}")
    checks.that("ensemble-secrets" not in json.dumps(spec), "the voice agent can read the services' secret")
    checks.that(spec["terminationGracePeriodSeconds"] == 3630, "the voice agent is killed in a conversation")
    checks.that(env["LIVEKIT_URL"] == "wss://livekit.example.com" and env["VOICE_AGENT_MAX_JOBS"] == "3" and env["VOICE_LLM"] == "openai:gpt", f"{env}")
    checks.that(container["image"].startswith("registry.example.com/ensemble/voice-agent:"), container["image"])
    checks.that(container["livenessProbe"].get("tcpSocket") is not None, "LiveKit's absence ends conversations")
    scaler = by_kind["HorizontalPodAutoscaler"]["ensemble-voice-agent"]["spec"]
    checks.that(scaler["metrics"][0]["resource"]["target"]["averageUtilization"] < 100 * float(env["VOICE_AGENT_LOAD_MAX"]), "more agents come when those there take nothing")
    ingress = by_kind["NetworkPolicy"]["ensemble-voice-agent"]["spec"]["ingress"]
    checks.that([p["port"] for rule in ingress for p in rule["ports"]] == [8095] and all(rule.get("from") for rule in ingress), f"who reaches the voice agent: {ingress}")
    reached = json.dumps([by_kind["NetworkPolicy"][f"ensemble-{service}"] for service in SERVICES if service != "edge-proxy"])
    checks.that("voice-agent" not in reached, "the voice agent reaches a service other than the edge")


def reaches_internal(checks, name, by_kind):
    """The edge never reaches an internal listener, and only the edge reaches a public one."""
    for service, port in SERVICES.items():
        policy = by_kind.get("NetworkPolicy", {}).get(f"ensemble-{service}")
        if not policy:
            continue
        for rule in policy["spec"]["ingress"]:
            callers = {p["podSelector"]["matchLabels"].get("app.kubernetes.io/component") for p in rule.get("from", []) if "podSelector" in p}
            ports = {p["port"] for p in rule["ports"]}
            if port + 1000 in ports:
                checks.that("edge-proxy" not in callers and rule.get("from"), f"{name}: the internal port of {service} is open to {callers}")
            if service != "edge-proxy" and port in ports:
                checks.that(callers == {"edge-proxy"}, f"{name}: the public port of {service} is open to {callers}")


def reaches_out(checks, name, by_kind):
    """Every pod may ask the name server; services with a database may reach it; voice alone may reach LiveKit, where there is one."""
    policies = by_kind.get("NetworkPolicy", {})
    if not policies:
        return
    ports = lambda policy: {p["port"] for rule in policies[policy]["spec"]["egress"] for p in rule.get("ports", [])}
    checks.that({53} <= ports("ensemble-deny"), f"{name}: no pod may ask the name server")
    voice = by_kind["Deployment"].get("ensemble-voice-gateway")
    env = {e["name"]: e.get("value") for e in voice["spec"]["template"]["spec"]["containers"][0]["env"]} if voice else {}
    for service in SERVICES:
        if f"ensemble-{service}" not in policies:
            continue
        checks.that((5432 in ports(f"ensemble-{service}")) == (service != "edge-proxy"), f"{name}: {service} and the database")
        may = 7880 in ports(f"ensemble-{service}")
        checks.that(may == (service == "voice-gateway" and "LIVEKIT_URL" in env), f"{name}: {service} and LiveKit")
    checks.that(ports("ensemble-migrate") == {5432}, f"{name}: the migration reaches {ports('ensemble-migrate')}")


def refuses(checks, tools, minor):
    for values, word in WRONG_VALUES:
        ran = template(tools, BASE + values, minor)
        checks.that(ran.returncode != 0 and word in ran.stderr, f"{values} is accepted")
    ran = template(tools, ["--set", "image.registry=registry.example.com/"], minor)
    checks.that(ran.returncode != 0 and "publicBaseUrl" in ran.stderr, "no publicBaseUrl is accepted")
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    checks.that(set(values) <= set(schema["properties"]), "values.yaml has values that the schema does not know")


def metrics_exist(checks):
    """Every metric that a dashboard or an alert asks for is one that some service, or the voice agent, writes."""
    written = [p for folder in ("crates", "services") for p in (ROOT / folder).rglob("*.rs") if "target" not in p.parts]
    sources = "\n".join(p.read_text() for p in [*written, ROOT / "deploy/voice-agent/health.py"])
    sources += "".join(f'"backup_{name}"' for name in re.findall(r"^    gauge (\w+)", (ROOT / "deploy/backup/run.sh").read_text(), re.M))
    asked = {}
    for path in [ROOT / "deploy/prometheus/alerts.yaml", *(ROOT / "deploy/grafana/dashboards").glob("*.json")]:
        for metric in re.findall(r"ensemble_[a-z0-9_]+", path.read_text()):
            asked.setdefault(re.sub(r"_(bucket|count|sum)$", "", metric), set()).add(path.name)
    for metric, where in sorted(asked.items()):
        bare = metric.removeprefix("ensemble_")
        checks.that(f'"{bare}"' in sources or f'"{bare}_count"' in sources, f"no service writes {metric}, which {sorted(where)} ask for")


def runbook(checks):
    text = (ROOT / "docs/OPERATIONS.md").read_text().lower() if (ROOT / "docs/OPERATIONS.md").exists() else ""
    for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            anchor = rule["annotations"]["runbook_url"].split("#")[-1]
            checks.that(anchor == rule["alert"].lower() and f"# {anchor}\n" in text, f"the runbook has nothing on {rule['alert']}")
            checks.that(rule["labels"]["severity"] in ("critical", "warning"), f"severity of {rule['alert']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    tools = parser.parse_args().tools.resolve()
    os.environ["PATH"] = f"{tools / 'bin'}:{os.environ['PATH']}"
    checks = Checks()
    metrics_exist(checks)
    runbook(checks)
    fresh = subprocess.run([sys.executable, ROOT / "deploy/grafana/dashboards.py", "--check"], capture_output=True, text=True)
    checks.that(fresh.returncode == 0, fresh.stderr.strip())
    fresh = subprocess.run([sys.executable, ROOT / "deploy/helm/readme.py", "--check"], capture_output=True, text=True)
    checks.that(fresh.returncode == 0, fresh.stderr.strip())
    if (tools / "bin/promtool").exists():
        ran = subprocess.run([tools / "bin/promtool", "check", "rules", ROOT / "deploy/prometheus/alerts.yaml"], capture_output=True, text=True)
        checks.that(ran.returncode == 0, ran.stdout + ran.stderr)
        ran = subprocess.run([tools / "bin/promtool", "test", "rules", ROOT / "deploy/test/alerts.yaml"], capture_output=True, text=True)
        checks.that(ran.returncode == 0, ran.stdout + ran.stderr)
    else:
        checks.skip("the language of the alert rules", "promtool is not installed")
    if (tools / "bin/helm").exists():
        rendered(checks, tools)
    else:
        checks.skip("the chart", "helm is not installed")
    for failure in checks.failed:
        print(f"FAILED {failure}")
    print(f"chart-test: {checks.done - len(checks.failed)} of {checks.done} checks hold")
    sys.exit(1 if checks.failed else 0)


def rendered(checks, tools):
    versions = minors(tools)
    known = definitions(tools)
    if not known:
        checks.skip("objects of the Gateway API, the Prometheus operator and CloudNativePG", "their definitions could not be fetched")
    against_definitions(checks, known, "cloudnativepg.yaml", chart_postgres.example(ROOT))
    ran = subprocess.run([tools / "bin/helm", "lint", CHART, "-f", CHART / "values-small-team.yaml", "--strict", "--kube-version", versions[-1]], capture_output=True, text=True)
    checks.that(ran.returncode == 0, ran.stdout + ran.stderr)
    for name, values in RENDERINGS.items():
        for minor in versions:
            ran = template(tools, values, minor)
            checks.that(ran.returncode == 0, f"{name} on {minor}: {ran.stderr}")
            if ran.returncode == 0:
                against_kubernetes(checks, tools, name, ran.stdout, minor)
        objects = [thing for thing in yaml.safe_load_all(ran.stdout) if thing]
        against_definitions(checks, known, name, objects)
        is_restricted(checks, name, objects)
        keeps_promises(checks, name, objects, values)
        print(f"rendered {name}: {len(objects)} objects on {', '.join(versions)}")
    refuses(checks, tools, versions[-1])


if __name__ == "__main__":
    main()
