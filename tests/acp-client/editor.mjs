// An editor driven by commands: it starts the agent that its arguments name, and speaks to it by the official client library.
//
// In, one JSON object a line:
//   {"request": METHOD, "params": …, "tag": ANY}   {"notify": METHOD, "params": …}   {"answer": NUMBER, "result": …}   {"raw": TEXT}
// Out, one JSON object a line:
//   {"line": MESSAGE}                   every line of the agent, before the library reads it
//   {"tag": ANY, "result": …}           or "error"
//   {"update": PARAMS}                  session/update, as the library gives it
//   {"asked": NUMBER, "method": …, "params": …}, {"withdrawn": NUMBER}
//   {"stderr": LINE}, {"complaint": TEXT} of the library, {"exit": CODE}
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");
console.error = (...words) => say({ complaint: words.map(String).join(" ") });

const [program, ...args] = process.argv.slice(2);
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
createInterface({ input: agent.stderr }).on("line", (line) => say({ stderr: line }));
agent.on("exit", (code, signal) => {
    say({ exit: code ?? signal });
    process.exit(0);
});
agent.stdin.on("error", () => {});

// What the agent prints is shown as it is: the library leaves out what it does not know.
const seen = new TransformStream();
const taps = seen.writable.getWriter();
let rest = "";
agent.stdout.setEncoding("utf8");
agent.stdout.on("data", (chunk) => {
    rest += chunk;
    for (let end; (end = rest.indexOf("\n")) >= 0; rest = rest.slice(end + 1)) {
        let message;
        try {
            message = JSON.parse(rest.slice(0, end));
        } catch {
            say({ complaint: `not JSON: ${rest.slice(0, end)}` });
            continue;
        }
        say({ line: message });
    }
    taps.write(new TextEncoder().encode(chunk)).catch(() => {});
});
agent.stdout.on("end", () => taps.close().catch(() => {}));

let asked = 0;
const answers = new Map();
function ask(method) {
    return (context) =>
        new Promise((resolve, reject) => {
            const number = ++asked;
            answers.set(number, resolve);
            context.signal.addEventListener("abort", () => {
                say({ withdrawn: number });
                if (!process.env.STUBBORN) reject(context.signal.reason);
            });
            say({ asked: number, method, params: context.params });
        });
}

const { session, elicitation } = acp.methods.client;
const connection = acp
    .client({ name: "editor" })
    .onNotification(session.update, ({ params }) => say({ update: params }))
    .onRequest(session.requestPermission, ask("session/request_permission"))
    .onRequest(elicitation.create, ask("elicitation/create"))
    .connect(acp.ndJsonStream(Writable.toWeb(agent.stdin), seen.readable));

for await (const line of createInterface({ input: process.stdin })) {
    const { request, notify, answer, raw, params, result, tag } = JSON.parse(line);
    if (request) {
        connection.agent.request(request, params).then(
            (result) => say({ tag, result: result ?? null }),
            (error) => say({ tag, error: { code: error.code, message: error.message, data: error.data } }),
        );
    } else if (notify) {
        connection.agent.notify(notify, params);
    } else if (raw !== undefined) {
        agent.stdin.write(raw);
    } else {
        answers.get(answer)(result);
    }
}
agent.stdin.end();
