"""What ends conversations in practice: an agent that is killed, many starts at once, and no worker for a time. With their times."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from e2e_programs import INTERNAL, Agents, say, until

# Starts at once. VOICE_E2E_STARTS=60 is what an overloaded worker was once ended by.
STARTS = int(os.environ.get("VOICE_E2E_STARTS") or 20)
# Conversations that continue meanwhile.
TALKING = 3
# Seconds without a worker.
OUTAGE = 20


async def killed_agent(client: Any, person: Any, agents: Agents, http: aiohttp.ClientSession) -> None:
    say("6. an agent that is killed is replaced before LiveKit notices")
    await agents.start()
    started = await client.start("killed-agent")
    await person.join(started)
    await client.becomes(started, "active", lambda status: status["state"] == "active")
    await client.context(started, {"open": "lib.rs"})
    dead = await agents.at_work(http)
    # Its first heartbeat follows at once when it is ready.
    await until("heartbeats came", lambda: beats(http))
    agents.kill(dead)
    killed = time.monotonic()
    await client.becomes(started, "the agent's loss is seen", lambda status: not status["agent"]["ready"])
    lost = time.monotonic()
    answer = await client.text(started, "said while there was no agent")
    assert answer["delivery"] in ("queued", "delivered"), answer
    await client.becomes(started, "another agent is ready", lambda status: status["agent"]["ready"])
    ready = time.monotonic()
    say(f"   killed with kill -9: loss seen {lost - killed:.1f} s later, another one ready {ready - killed:.1f} s later")

    async def echoed() -> bool:
        return person.texts() == ["said while there was no agent"]

    await until("the new agent echoed the text", echoed)
    status = await client.becomes(started, "context known", lambda status: status["pending"]["deliveredContextVersion"] == 1)
    assert status["state"] == "active", status
    silent = await gateway_metric(http, "voice_agents_silent_total")
    assert silent == 1, f"LiveKit noticed before the gateway did ({silent})"
    await client.stop(started)


async def many_starts(client: Any, person: Callable[[], Any], agents: Agents, http: aiohttp.ClientSession) -> None:
    say(f"7. {STARTS} starts at once end no conversation")
    talks = []
    for number in range(TALKING):
        started, one = await client.start(f"lasting-{number}"), person()
        await one.join(started)
        await client.becomes(started, "active", lambda status: status["state"] == "active")
        talks.append((started, one))
    before = await gateway_metric(http, "voice_agent_redispatches_total")
    workers = [(worker, worker.program.process.pid) for worker in agents.running]
    begun = time.monotonic()

    async def start(number: int) -> tuple[dict[str, Any], float]:
        body = {"userId": f"e2e-user-{number}", "sessionId": f"at-once-{number}"}
        while True:
            status, answer = await client.call("POST", "/v1/voice/session/start", body)
            if status == 200:
                return answer, time.monotonic() - begun
            # An overloaded database says so, and callers come again.
            assert status == 503 and time.monotonic() - begun < 180, answer
            await asyncio.sleep(0.5)

    answers = await asyncio.gather(*(start(number) for number in range(STARTS)))
    allowed = [answer for answer, _ in answers if answer["allowed"]]
    say(f"   {len(allowed)} of {STARTS} allowed, the last answered after {max(took for _, took in answers) * 1000:.0f} ms")
    ready: dict[str, float] = {}
    over: dict[str, str] = {}

    async def settled() -> bool:
        for started in allowed:
            name = started["gatewaySessionId"]
            if name not in ready and name not in over:
                status = await client.status(started)
                if status["agent"]["ready"]:
                    ready[name] = time.monotonic() - begun
                elif status["endedAt"]:
                    over[name] = status["endReason"]
        return len(ready) + len(over) == len(allowed)

    await until("each of them has an agent or has ended", settled, 600)
    times = sorted(ready.values())
    shown = f"the first after {times[0]:.1f} s, the last after {times[-1]:.1f} s" if times else "none"
    redispatches = await gateway_metric(http, "voice_agent_redispatches_total") - before
    reasons = {reason: list(over.values()).count(reason) for reason in set(over.values())}
    say(f"   {len(ready)} got an agent ({shown}), {len(over)} none {reasons}; dispatched again {redispatches:.0f} times")
    assert ready, "no start got an agent"
    for worker, pid in workers:
        assert worker.program.process.poll() is None and worker.program.process.pid == pid, f"{worker.name} has ended"
    for number, (started, one) in enumerate(talks):
        status = await client.status(started)
        assert status["state"] == "active" and status["agent"]["ready"], status
        await client.text(started, f"still there {number}")

        async def echoed(one: Any = one, number: int = number) -> bool:
            return one.texts() == [f"still there {number}"]

        await until("a conversation that continued echoes", echoed)
    say(f"   the {TALKING} conversations continue with their agents, and both workers live")
    await asyncio.gather(*(client.stop(started) for started in allowed))
    for started, _ in talks:
        await client.stop(started)
    say(f"   the next start has an agent {await next_agent(client):.1f} s later")


async def outage(client: Any, agents: Agents) -> None:
    """While no worker is there, starts must not become a backlog that the first worker has to work off."""
    say(f"10. starts for {OUTAGE} s without a worker, and then one")
    assert not agents.running
    ends, answers = time.monotonic() + OUTAGE, []
    while time.monotonic() < ends:
        answers.append(await client.try_start(f"outage-{len(answers)}"))
        await asyncio.sleep(0.1)
    allowed = sum(answer["allowed"] for answer in answers)
    await agents.start()
    took = await next_agent(client)
    await asyncio.gather(*(client.stop(answer) for answer in answers if answer["allowed"]))
    say(f"   of {len(answers)} starts {allowed} were allowed; with a worker the next start has an agent {took:.1f} s later")


async def next_agent(client: Any) -> float:
    """Starts until one is allowed, and gives the seconds until it has an agent."""
    asked = time.monotonic()

    async def next_one() -> bool:
        answer = await client.try_start("the-next-one")
        if answer["allowed"]:
            await client.becomes(answer, "the next one has an agent", lambda status: status["agent"]["ready"])
            await client.stop(answer)
        return answer["allowed"]

    await until("the next start is allowed", next_one)
    return time.monotonic() - asked


async def beats(http: aiohttp.ClientSession) -> bool:
    return await gateway_metric(http, "voice_agent_events_total", 'type="heartbeat"') > 0


async def gateway_metric(http: aiohttp.ClientSession, name: str, label: str = "") -> float:
    async with http.get(f"{INTERNAL}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    ours = (line for line in lines if line.startswith(f"ensemble_{name}{{") and label in line)
    return sum(float(line.rpartition(" ")[2]) for line in ours)
