// The reference voice agent, and models for it that stories control.
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { synthesized } from "./speech.mjs";

/**
 * A server of OpenAI's protocol: language model, recognition and speech. `model.answer`, when there is one, says what comes of a message:
 * one `{tool, arguments}` or several at once, words, or nothing. Without an answer a user's message that is JSON `{tool, arguments}` becomes a call of this tool, the
 * tool's result is said, and any other message is repeated. Recognition understands what stands first in `hears`.
 *
 * With their times: `calls` of tools, `results` of them (each is a `result` event), `utterances` (how long each was) and `spoken`.
 */
export async function actModel() {
  const model = Object.assign(new EventEmitter(), {
    calls: [],
    results: [],
    hears: [],
    utterances: [],
    spoken: [],
    answer: undefined,
    address: "",
    close: () => server.closeAllConnections() || server.close(),
  });
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    // The library asks once before it needs anything.
    if (pieces.length === 0) return void response.end();
    const body = Buffer.concat(pieces);
    if (request.url.endsWith("/audio/transcriptions")) {
      model.utterances.push({ seconds: secondsOf(body), at: Date.now() });
      return void response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ text: model.hears.shift() ?? "" }));
    }
    if (request.url.endsWith("/audio/speech")) {
      const { input } = JSON.parse(body.toString());
      model.spoken.push({ text: input, at: Date.now() });
      return void response.writeHead(200, { "content-type": "audio/wav" }).end(await synthesized(input));
    }
    const { messages } = JSON.parse(body.toString());
    const last = messages.at(-1);
    const text = Array.isArray(last.content)
      ? last.content.map((part) => part.text ?? part).join("")
      : String(last.content ?? "");
    let delta,
      reason = "stop";
    if (last.role === "tool") model.results.push(text);
    const answer =
      model.answer?.({ role: last.role, text }) ??
      (text.startsWith("{") && last.role !== "tool" ? JSON.parse(text) : undefined);
    if (typeof answer === "string" || (last.role === "tool" && !answer)) {
      delta = { role: "assistant", content: answer ?? text };
    } else if (answer) {
      const all = [answer].flat();
      reason = "tool_calls";
      for (const { tool } of all) model.calls.push({ tool, at: Date.now() });
      const called = ({ tool: name, arguments: given }, index) => ({
        index,
        id: `call_${Date.now()}_${index}`,
        type: "function",
        function: { name, arguments: JSON.stringify(given) },
      });
      delta = { role: "assistant", tool_calls: all.map(called) };
    } else {
      delta = { role: "assistant", content: `You said: ${text}` };
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (choice) =>
      response.write(
        `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "acted", choices: [choice] })}\n\n`,
      );
    send({ index: 0, delta, finish_reason: null });
    send({ index: 0, delta: {}, finish_reason: reason });
    response.end("data: [DONE]\n\n");
    if (last.role === "tool") model.emit("result");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  model.address = `http://127.0.0.1:${server.address().port}/v1`;
  return model;
}

/** Of the wave file in a form that was sent. */
function secondsOf(form) {
  const at = form.indexOf("RIFF");
  return at < 0 ? 0 : (form.length - at - 44) / form.readUInt32LE(at + 28);
}

/** Starts the agent, and waits until it takes conversations. `more` is for its environment. */
export async function startAgent(model, more = {}) {
  const child = spawn(
    process.env.VOICE_AGENT_PYTHON,
    [join(import.meta.dirname, "../../../deploy/voice-agent/agent.py"), "start"],
    {
      // However busy the machine is, it takes each conversation.
      env: {
        ...process.env,
        LIVEKIT_AGENT_NAME: process.env.AGENT_NAME,
        VOICE_AGENT_MODE: "models",
        VOICE_LLM: "openai:acted",
        VOICE_LLM_BASE_URL: model,
        VOICE_LLM_API_KEY: "acted",
        VOICE_AGENT_PORT: "0",
        VOICE_AGENT_LOAD_MAX: "1",
        ...more,
      },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  let said = "";
  await new Promise((resolve, reject) => {
    const read = (piece) => {
      said = (said + piece).slice(-100_000);
      if (said.includes("registered worker")) resolve();
      if (process.env.VOICE_AGENT_LOG) process.stderr.write(piece);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("error", reject);
    child.on("close", (code) => reject(new Error(`the voice agent ended with ${code}: ${said}`)));
  });
  return { stop: () => child.kill("SIGTERM") };
}
