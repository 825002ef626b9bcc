// The reference voice agent, and a language model for it that does what it is told.
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";

/**
 * A server of OpenAI's chat completions. A user's message that is JSON `{tool, arguments}` becomes a call of this tool, and the tool's result
 * is said. Any other message is repeated. `results` has what tools returned; each is a `result` event.
 */
export async function actModel() {
  const model = Object.assign(new EventEmitter(), { results: [], address: "", close: () => server.closeAllConnections() || server.close() });
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    // The library asks once before it needs anything.
    if (pieces.length === 0) return void response.end();
    const { messages } = JSON.parse(Buffer.concat(pieces).toString());
    const last = messages.at(-1);
    const text = Array.isArray(last.content) ? last.content.map((part) => part.text ?? part).join("") : String(last.content ?? "");
    let delta, reason = "stop";
    if (last.role === "tool") {
      model.results.push(text);
      delta = { role: "assistant", content: text };
    } else if (text.startsWith("{")) {
      const { tool, arguments: given } = JSON.parse(text);
      reason = "tool_calls";
      delta = { role: "assistant", tool_calls: [{ index: 0, id: `call_${Date.now()}`, type: "function", function: { name: tool, arguments: JSON.stringify(given) } }] };
    } else {
      delta = { role: "assistant", content: `You said: ${text}` };
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (choice) => response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "acted", choices: [choice] })}\n\n`);
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

/** Starts the agent, and waits until it takes conversations. */
export async function startAgent(model) {
  const child = spawn(process.env.VOICE_AGENT_PYTHON, [join(import.meta.dirname, "../../../deploy/voice-agent/agent.py"), "start"], {
    // However busy the machine is, it takes each conversation.
    env: {
      ...process.env, LIVEKIT_AGENT_NAME: process.env.AGENT_NAME, VOICE_AGENT_MODE: "models", VOICE_LLM: "openai:acted", VOICE_LLM_BASE_URL: model,
      VOICE_LLM_API_KEY: "acted", VOICE_AGENT_PORT: "0", VOICE_AGENT_LOAD_MAX: "1",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
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
