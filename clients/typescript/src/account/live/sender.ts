// Commands for the machine of a live session: signed by this device, and sent under the session's newest key.

import { purposes, sealContent } from "../../protocol/seal/ring.js";
import { writeCommand, type Command } from "../../protocol/transcript/body.js";
import { signBody } from "../../protocol/transcript/envelope.js";
import type { Context } from "../context.js";
import { FRESH } from "../lists.js";
import type { Session } from "../sessions/known.js";
import type { Opened } from "../sessions/read.js";
import { sendMessage } from "../sessions/write.js";

/** A command that was sent. */
export interface Sent {
  /** Its id. The same id again, after a failure, is never a second command. */
  localId: string;
  seq: number;
}

/** Signs and sends a command. */
export async function sendCommand(
  context: Context,
  { id, ownerId }: Session,
  command: Command,
  localId: string,
): Promise<Sent> {
  const { keys, userId, credential } = context;
  // The machine fetches what it does not know, so a server that hides a removal from it is noticed.
  const owner = await context.people.list(ownerId, FRESH);
  const list = { version: owner.version, digest: owner.digest };
  const body = writeCommand(command, { localId, at: new Date(credential.now()).toISOString(), list });
  const signed = await signBody(id, userId, body, keys.signer);
  const despiteRemoval = command.type === "control" && command.action === "access" && command.value.may === "none";
  const seal = ({ ring }: Opened): Promise<string> => sealContent(ring, purposes.message(id), signed);
  const { seq } = await sendMessage(context, id, localId, seal, { despiteRemoval });
  return { localId, seq };
}
