#!/usr/bin/env python3
"""Reads docker-compose.yml as Compose does, with no .env and with one in which everything is set, and checks what each
container gets: its own variables and secrets and no others, limits, few rights, and images of no registry that is not ours.

    deploy/test/compose_file.py [folder of the programs, default target/debug]"""

import pathlib
import re
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = ["edge-proxy", "identity", "machine-registry", "session-store", "orchestrator", "voice-gateway"]
# Who may have a secret of .env in its environment. `secrets` writes the files of all.
SECRETS = {
    "INTERNAL_TOKEN": {*SERVICES, "secrets"},
    "INTERNAL_TOKEN_PREVIOUS": set(SERVICES),
    "VOICE_PUBLIC_KEY": {"voice-gateway", "secrets"},
    "LIVEKIT_API_SECRET": {"voice-gateway", "voice-agent", "voice-agent-local", "livekit", "secrets"},
    "LIVEKIT_WEBHOOK_API_SECRET": {"voice-gateway"},
    "TOOL_BRIDGE_API_KEY": {"voice-gateway"},
    "VOICE_WEBHOOKS": {"voice-gateway"},
}
FOREIGN_VOLUMES = {
    "postgres": {"secrets-postgres"}, "livekit": {"secrets-livekit"}, "databases": {"secrets-postgres"},
    "voice-agent-local": {"secrets-voice-agent"},
}
INNER = re.compile(r"\$\{([A-Z_]+)(:?-)([^{}]*)\}")


def filled(text, env):
    """Variables replaced, from the inside out; `:-` also replaces an empty value."""
    def value(match):
        name, kind, default = match.groups()
        return env[name] if name in env and (env[name] or kind == "-") else default
    while INNER.search(text):
        text = INNER.sub(value, text)
    return text


def composed(env):
    file = yaml.safe_load(filled((ROOT / "docker-compose.yml").read_text(), env))
    for service in file["services"].values():
        own = {name: "" if value is None else str(value) for name, value in service.get("environment", {}).items()}
        base = service.pop("extends", None)
        if base:
            passed = yaml.safe_load((ROOT / base["file"]).read_text())["services"][base["service"]]["environment"]
            own |= {name: env[name] for name in passed if name in env}
        service["environment"] = own
    return file["services"]


def example():
    """Every variable of .env.example, with a value that tells where it came from."""
    names = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.M)
    return {name: f"value-of-{name}" for name in names}


def reads(service, folder):
    output = subprocess.run([folder / f"ensemble-{service}", "config"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^([A-Z_]+)$", output, re.M))


def environments(folder):
    faults, env = [], example()
    for name, container in composed(env).items():
        holds = container["environment"]
        for secret, may in SECRETS.items():
            if name not in may and any(env[secret] in value for value in holds.values()):
                faults.append(f"{name} has {secret} in its environment")
        if name in SERVICES:
            known = reads(name, folder)
            foreign = {variable for variable in holds if variable.removesuffix("_FILE") not in known and variable not in known}
            if foreign:
                faults.append(f"{name} gets {sorted(foreign)}, which its program does not read")
            # The edge takes the address for browsers, which is always set.
            known.discard("LIVEKIT_URL" if name == "edge-proxy" else "")
            lost = {variable for variable in known & env.keys() if env[variable] not in holds.get(variable, "")}
            if lost:
                faults.append(f"{name} does not get {sorted(lost)} of .env")
    return faults


def changes():
    """A variable of another container recreates no service of ours."""
    faults, before = [], composed({})
    for name in ("GRAFANA_PORT", "JAEGER_PORT", "POSTGRES_SHARED_BUFFERS", "VOICE_AGENT_MODE", "LIMIT_ACCOUNT"):
        after = composed({name: "3001"})
        changed = {service for service in SERVICES if before[service] != after[service]}
        if changed != ({"edge-proxy"} if name == "LIMIT_ACCOUNT" else set()):
            faults.append(f"a change of {name} recreates {sorted(changed)}")
    port = composed({"EDGE_PORT": "9999"})["identity"]["environment"]
    if port["PUBLIC_ORIGINS"] != "http://localhost:9999,http://127.0.0.1:9999" or port["PUBLIC_BASE_URL"] != "http://localhost:9999":
        faults.append(f"EDGE_PORT=9999 makes origins {port['PUBLIC_ORIGINS']}")
    return faults


def without_voice():
    """Two lines of .env switch voice off, for every later `up` as well."""
    faults = []
    for env, wanted in [
        ({}, (1, "/secrets/voice-public-key")),
        ({"LIVEKIT_REPLICAS": "0"}, (0, "/secrets/voice-public-key")),
        ({"LIVEKIT_REPLICAS": "0", "VOICE_PUBLIC_KEY_FILE": ""}, (0, "")),
    ]:
        own = composed(env)
        found = (own["livekit"].get("scale"), own["voice-gateway"]["environment"]["VOICE_PUBLIC_KEY_FILE"])
        if found != wanted:
            faults.append(f"with {env} LiveKit and the voice key are {found}")
    return faults


def local_models():
    """The local voice talks to the local models in each role, unless .env says otherwise, and they reach nothing."""
    faults, own, file = [], composed({}), yaml.safe_load(filled((ROOT / "docker-compose.yml").read_text(), {}))
    agent, models = own["voice-agent-local"], own["voice-local"]
    holds = agent["environment"]
    for role in ("STT", "LLM", "TTS"):
        if not holds[f"VOICE_{role}"].startswith("openai:") or holds[f"VOICE_{role}_BASE_URL"] != "http://voice-local:8096/v1":
            faults.append(f"voice-agent-local has {holds[f'VOICE_{role}']} at {holds[f'VOICE_{role}_BASE_URL']}")
    if holds["VOICE_AGENT_MODE"] != "models" or agent["profiles"] != ["voice-local"] or models["profiles"] != ["voice-local"]:
        faults.append("the profile voice-local is not the agent and its models")
    if missing := own["voice-agent"]["environment"].keys() - holds.keys():
        faults.append(f"voice-agent-local does not get {sorted(missing)}")
    reached = {network for network in models["networks"] if not (file["networks"][network] or {}).get("internal")}
    if reached or "ports" in models or "models" not in agent["networks"]:
        faults.append("voice-local is reached by others than the agent, or reaches out")
    other = composed({"VOICE_LLM": "openai:other", "VOICE_LLM_BASE_URL": "http://elsewhere/v1"})["voice-agent-local"]["environment"]
    if (other["VOICE_LLM"], other["VOICE_LLM_BASE_URL"]) != ("openai:other", "http://elsewhere/v1"):
        faults.append("a language model of .env is not taken by voice-agent-local")
    return faults


def containers():
    faults = []
    for name, container in composed({}).items():
        for key, holds in {
            "mem_limit": "mem_limit" in container, "pids_limit": "pids_limit" in container, "cpu_shares": "cpu_shares" in container,
            "read_only": container.get("read_only") is True, "cap_drop": container.get("cap_drop") == ["ALL"],
            "no-new-privileges": "no-new-privileges:true" in container.get("security_opt", []),
        }.items():
            if not holds:
                faults.append(f"{name} has no {key}")
        ours = "build" in container
        if ours and not container["image"].startswith("localhost/"):
            faults.append(f"{name} would be pulled from a registry that is not named: {container['image']}")
        if ours and not composed({"IMAGE_PREFIX": "registry.example.com/e/"})[name]["image"].startswith("registry.example.com/e/"):
            faults.append(f"{name} ignores IMAGE_PREFIX")
        volumes = {volume.split(":")[0] for volume in container.get("volumes", []) if volume.startswith("secrets-")}
        if name != "secrets" and volumes - FOREIGN_VOLUMES.get(name, {f"secrets-{name}"}):
            faults.append(f"{name} can read {sorted(volumes)}")
    return faults


def main():
    folder = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "target/debug"
    faults = environments(folder) + changes() + without_voice() + local_models() + containers()
    for fault in faults:
        print(f"FAILED {fault}")
    if not faults:
        print("compose-file: everything holds")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
