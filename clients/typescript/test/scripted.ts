// A server that answers as a test says, request by request.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Request {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export type Handler = (request: Request, response: ServerResponse) => void | Promise<void>;

export interface Scripted {
  url: string;
  /** What came, in order. */
  requests: Request[];
  close(): Promise<void>;
}

export async function scripted(handler: Handler): Promise<Scripted> {
  const requests: Request[] = [];
  const server = createServer(async (message, response) => {
    let body = "";
    for await (const chunk of message) body += chunk;
    const request = { method: message.method ?? "", path: message.url ?? "", headers: message.headers, body };
    requests.push(request);
    await handler(request, response);
  });
  await new Promise<void>((listens) => server.listen(0, "127.0.0.1", listens));
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, close };
}

export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function problem(
  response: ServerResponse,
  status: number,
  code: string,
  headers: Record<string, string> = {},
  more = {},
): void {
  const body = { type: "urn:x", title: "A title.", status, detail: "What happened and what to do.", code, ...more };
  json(response, status, body, { "content-type": "application/problem+json", ...headers });
}

/** A token that is good for an hour. */
export function token(name: string): string {
  const now = Math.floor(Date.now() / 1_000);
  const claims = Buffer.from(JSON.stringify({ iat: now, exp: now + 3_600, jti: name })).toString("base64url");
  return `e30.${claims}.${name}`;
}
