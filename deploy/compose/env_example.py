#!/usr/bin/env python3
"""Writes .env.example: every variable, from docker-compose.yml and from what the services say of themselves. And
services.yml: which variables each service takes from .env in addition to those that docker-compose.yml gives it, so that a container
has those that its program reads and no others.

    deploy/compose/env_example.py [folder of the programs, default target/debug] [--check]"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = ["edge-proxy", "identity", "machine-registry", "session-store", "orchestrator", "voice-gateway"]
# Set by compose itself: other values would break it.
FIXED = re.compile(r"^(PUBLIC_LISTEN|INTERNAL_LISTEN|DATABASE_URL|KEY_ENCRYPTION_KEY_FILE|KEY_ENCRYPTION_KEY_PREVIOUS_FILE|.*_RPC_URL|(IDENTITY|MACHINE_REGISTRY|SESSION_STORE|ORCHESTRATOR|VOICE_GATEWAY)_URL)$")
MEANINGS = {
    "EDGE_PORT": "the one port that people use",
    "EDGE_PORTS": "a range (8080-8082) for several edges behind a load balancer; then PUBLIC_BASE_URL is the balancer's",
    "EDGE_BIND": "the address that it is published on; 0.0.0.0 for other machines, behind something that speaks TLS",
    "BUILD_PROFILE": "how images are built: dist (small, slow to build) or release",
    "ENSEMBLE_VERSION": "the tag of our images",
    "ENSEMBLE_REVISION": "the commit that our images are built from, which their programs tell",
    "IMAGE_PREFIX": "the registry and folder of our images, with a slash at the end; localhost/ is for images built here",
    "PULL_POLICY": "when an image of ours is pulled: missing, always or never",
    **{f"{service.upper().replace('-', '_')}_REPLICAS": f"how many of {service} run" for service in SERVICES},
    "LIVEKIT_REPLICAS": "0: LiveKit does not run here, because voice is off or LIVEKIT_URL names another one",
    "VOICE_PUBLIC_KEY_FILE": "where the made key is; empty: voice is off, as long as VOICE_PUBLIC_KEY is empty as well",
    "SERVICE_MEMORY": "the memory that one container of a service may use",
    "POSTGRES_MEMORY": "the memory that PostgreSQL may use, its shared buffers included",
    "LIVEKIT_MEMORY": "the memory that LiveKit may use",
    "POSTGRES_MAX_CONNECTIONS": "must hold the pools of all replicas",
    "POSTGRES_SHARED_BUFFERS": "a quarter of the memory that PostgreSQL may use",
    "LIVEKIT_BIND": "the address that LiveKit's ports are published on",
    "LIVEKIT_NODE_IP": "the address that LiveKit tells people to send media to",
    "LIVEKIT_PORT": "LiveKit's port for signalling",
    "LIVEKIT_TCP_PORT": "LiveKit's port for media over TCP",
    "LIVEKIT_UDP_PORT": "LiveKit's port for media over UDP",
    "LIVEKIT_AGENT_URL": "how the voice agent reaches LiveKit",
    "DOMAIN": "the name of this machine, for which the profile tls has a certificate",
    "CADDY_HTTP_PORT": "where Caddy's port 80 is published; something has to pass port 80 on to another one",
    "CADDY_HTTPS_PORT": "where its port 443 is published",
    "CADDY_ADDRESS": "Caddy's own address, which the edge trusts; in CADDY_SUBNET",
    "CADDY_SUBNET": "a range of addresses that nothing else on this machine uses",
    "JAEGER_PORT": "where Jaeger is, on this machine only",
    "PROMETHEUS_PORT": "where Prometheus is, on this machine only",
    "GRAFANA_PORT": "where Grafana is, on this machine only",
    "VOICE_AGENT_REQUIREMENTS": "requirements-models.txt builds the voice agent with model providers",
    "VOICE_AGENT_MODE": "echo, or models",
    "VOICE_AGENT_MAX_JOBS": "conversations at once of one voice agent; empty: four for each core",
    "VOICE_AGENT_LOAD_MAX": "the share of the processors above which the voice agent takes no conversation",
    "VOICE_AGENT_MEMORY": "the memory that the voice agent may use; a conversation needs some 150 MiB",
    "VOICE_AGENT_DRAIN_SECONDS": "how long a voice agent that ends waits for its conversations",
    "VOICE_AGENT_STOP_GRACE": "when one that has not ended is killed; more than VOICE_AGENT_DRAIN_SECONDS",
    "VOICE_STT": "the voice agent's speech recognition, as in openai:gpt-4o-transcribe",
    "VOICE_LLM": "its language model, as in openai:gpt-4o",
    "VOICE_TTS": "its speech, as in openai:gpt-4o-mini-tts",
    "VOICE_REALTIME": "a speech-to-speech model in place of the three, as in openai:gpt-realtime",
    "VOICE_VAD": "another voice activity detector than the one that comes with the agent, as in silero",
    "VOICE_TURN": "what decides that a person has finished speaking: model, vad (silence) or stt; empty: model",
    "VOICE_ENDPOINT_MIN": "seconds of silence after which it may decide so; empty: the agent's library's",
    "VOICE_ENDPOINT_MAX": "seconds of silence after which the person has finished; empty: 1.2",
    "VOICE_TTS_VOICE": "the voice, or one for each language, as in de=anna,en=alloy,marin",
    "VOICE_REALTIME_VOICE": "the same for the speech-to-speech model",
    "VOICE_INSTRUCTIONS": "the voice agent's prompt",
    "VOICE_TOOL_PATH": "where on the tool bridge a wish for the coding session is posted",
    "VOICE_LOCAL_MEMORY": "the memory that the local models may use",
    "VOICE_LOCAL_THREADS": "processor threads of a local model; empty: as it chooses",
    "VOICE_LOCAL_MODELS": "the folder of this machine with models of your own, which is /models for the local models",
    "VOICE_LOCAL_LLM": "another local language model: a GGUF file below /models, which gets the voice agent's tools",
    "VOICE_LOCAL_STT": "another local speech recognition: a folder below /models, in faster-whisper's form",
    "BACKUP_FOLDER": "the folder of this machine that the profile backup writes to; the folder is given to user 10001",
    "BACKUP_RECIPIENT": "the public key of age that backups are encrypted for; several are separated by commas",
    "BACKUP_KEEP": "how many backups stay; empty: all of them",
    "BACKUP_EVERY": "hours between two backups of the profile backup",
    "BACKUP_AT": "the time of the day (UTC) of the profile's backup, as in 03:15; empty: BACKUP_EVERY counts from the last one",
    "OPENAI_API_KEY": "of the voice agent's models; VOICE_STT_API_KEY and the like win over it",
    "OPENAI_BASE_URL": "where the voice agent's models are; VOICE_STT_BASE_URL and the like win over it",
    "VOICE_STT_BASE_URL": "where the voice agent's speech recognition is",
    "VOICE_STT_API_KEY": "its key",
    "VOICE_LLM_BASE_URL": "where the voice agent's language model is",
    "VOICE_LLM_API_KEY": "its key",
    "VOICE_TTS_BASE_URL": "where the voice agent's speech is",
    "VOICE_TTS_API_KEY": "its key",
    "VOICE_REALTIME_BASE_URL": "where the voice agent's speech-to-speech model is",
    "VOICE_REALTIME_API_KEY": "its key",
}


def from_compose():
    """In the order of the file; the first default counts. A default may have variables in it."""
    found, text = {}, (ROOT / "docker-compose.yml").read_text()
    for match in re.finditer(r"\$\{([A-Z_]+):?-((?:[^{}$]|\$\{[^{}]*\})*)\}", text):
        found.setdefault(match[1], match[2])
        for name, default in re.findall(r"\$\{([A-Z_]+):?-([^}]*)\}", match[2]):
            found.setdefault(name, default)
    return found


def passed_on(services):
    """services.yml: an empty value is that of .env, and without one there the variable is not set."""
    lines = ["# Which variables of .env reach which service, in addition to those of docker-compose.yml. An empty value here is that of .env.",
             "# Written by deploy/compose/env_example.py.", "services:"]
    compose = (ROOT / "docker-compose.yml").read_text()
    for service in SERVICES:
        lines += [f"  {service}:", "    environment:"]
        lines += [f"      {n}:" for n, (_, _, of) in services.items() if service in of and not FIXED.match(n) and not re.search(rf"\b{n}:", compose)]
    return "\n".join(lines) + "\n"


def from_services(folder):
    known = {}
    for service in SERVICES:
        output = subprocess.run([folder / f"ensemble-{service}", "config"], check=True, capture_output=True, text=True).stdout
        for name, meaning, default in re.findall(r"^([A-Z_]+)\n    (.*) \[(.*)\]$", output, re.M):
            meaning = re.sub(r" \(or [A-Z_]+_FILE: .*\)$", "", meaning)
            known.setdefault(name, (meaning, default, []))[2].append(service)
    return known


def text(services):
    compose = from_compose()
    lines = ["# Every variable, with its default. Copy this file to .env, take the # away from what you change.",
             "# Written by deploy/compose/env_example.py.", "",
             "# A variable reaches the services that read it, and a change of it restarts those and no others.",
             "", "", "# --- compose ---"]
    for name, default in compose.items():
        meaning = MEANINGS.get(name) or (services[name][0] if name in services else None)
        if meaning is None and name.endswith("_IMAGE"):
            meaning = "another image in its place"
        if meaning:
            lines.append(f"\n# {meaning}")
        if name in services and not default and services[name][1] == "none":
            made = name in ("INTERNAL_TOKEN", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET", "VOICE_PUBLIC_KEY")
            lines.append("# (made at the first start when it is empty)" if made else "# (none)")
        lines.append(f"#{name}={default}")
    for service in SERVICES + ["several services"]:
        own = [(n, m, d) for n, (m, d, of) in services.items() if n not in compose and not FIXED.match(n) and (of == [service] if service in SERVICES else len(of) > 1)]
        if own:
            lines += ["", "", f"# --- {service} ---"]
        for name, meaning, default in own:
            lines += [f"\n# {meaning}", f"#{name}={'' if default in ('none', 'required') else default}"]
    return "\n".join(lines) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    folder = pathlib.Path(arguments[0]).resolve() if arguments else ROOT / "target/debug"
    services = from_services(folder)
    # How many cores the machine has that this ran on is no default.
    example = re.sub(r"(?m)^#WORKERS=\d+$", "#WORKERS=", text(services))
    for path, wanted in ((ROOT / ".env.example", example), (ROOT / "deploy/compose/services.yml", passed_on(services))):
        if "--check" not in sys.argv:
            path.write_text(wanted)
        elif path.read_text() != wanted:
            sys.exit(f"{path.name} is stale: run deploy/compose/env_example.py")


if __name__ == "__main__":
    main()
