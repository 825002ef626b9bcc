// A small MCP server over standard input and output (modelcontextprotocol.io, "Transports"): its tool `add` writes a note, and the
// variable NOTES_KEY, to the end of the file that its argument names.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [file] = process.argv.slice(2);
const input = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const tools = [{ name: "add", description: "Adds a note.", inputSchema: input }];

function answer(method, params) {
    switch (method) {
        case "initialize":
            return {
                protocolVersion: params.protocolVersion,
                capabilities: { tools: {} },
                serverInfo: { name: "notes", version: "1" },
            };
        case "tools/list":
            return { tools };
        case "tools/call":
            appendFileSync(file, `${params.arguments.text} ${process.env.NOTES_KEY}\n`);
            return { content: [{ type: "text", text: "The note is added." }] };
        case "ping":
            return {};
    }
}

for await (const line of createInterface({ input: process.stdin })) {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined || !method) continue;
    const result = answer(method, params);
    const said = result ? { result } : { error: { code: -32601, message: "no such method" } };
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...said }) + "\n");
}
