/** One item of a transcript. */
import { memo, useRef, useState } from "react";
import { CopyButton } from "../base/copy.tsx";
import { clock, money, tokens } from "../base/words.ts";
import { Icon } from "../base/icons.tsx";
import { Markdown } from "../text/markdown.tsx";
import { oneLine, visible } from "../text/visible.ts";
import { nameOfFile } from "./attachments.ts";
import { AskedLine } from "./request.tsx";
import { Tool } from "./tool.tsx";
import type { Card, Item, Note, Taken, Turn } from "./types.ts";

export interface RowProps {
    item: Item;
    /** Names of people by user id; this account is "You". */
    nameOf: (user: string) => string;
    growing: string | undefined;
    /** The machine of the session is offline. */
    isAway: boolean;
    /** What a person has signed as the answer to its question. */
    answer: Answer | undefined;
    /** What was said to the request of this tool call. */
    mark: string | undefined;
}

type Answer = Extract<Item["shown"], { type: "answer" }>["answer"];

/** Draws one. What it does not show at all is left out before: see `isShown`. */
export const Row = memo(function Row({ item, nameOf, growing, isAway, answer, mark }: RowProps) {
    const { shown } = item;
    switch (shown.type) {
        case "prompt":
            return (
                <div className="prompt">
                    <h2 className="hidden-label">{who(item, nameOf)}</h2>
                    <div className="bubble" dir="auto">
                        <Images attachments={shown.prompt.attachments} />
                        <Prompt text={shown.prompt.text} />
                    </div>
                    <Byline item={item} taken={shown.taken} nameOf={nameOf} isAway={isAway} />
                </div>
            );
        case "text":
            return <Said text={shown.part.text} isCut={shown.part.interrupted ?? false} />;
        case "thought":
            return (
                <details className="thought">
                    <summary>
                        <Icon name="think" size={14} /> Thought
                    </summary>
                    <div className="body">
                        <Markdown text={shown.part.text} />
                    </div>
                </details>
            );
        case "tool":
            return <Tool call={shown.call} growing={growing} mark={mark} />;
        case "card":
            return <AskedLine title={titleOf(shown.card)} said={saidOf(shown.card, answer, nameOf)} />;
        case "error":
            return (
                <div className="failure" role="note">
                    <strong>
                        {FAILURES[shown.failure.code] ?? "The agent failed"}
                        {mark !== undefined && ` (${mark})`}
                    </strong>
                    <span>{visible(shown.failure.text.slice(0, 4_000))}</span>
                    {shown.failure.retryAt && <span>You can try again at {clock(shown.failure.retryAt)}.</span>}
                </div>
            );
        case "turn":
            return <TurnEnd turn={shown.turn} />;
        case "control":
            return (
                <p className="asked-line">
                    <span>
                        {who(item, nameOf)}: {shown.control.action.replaceAll("_", " ")}
                    </span>
                    <TakenNote taken={shown.taken} isAway={isAway} />
                </p>
            );
        case "answer":
            return (
                <p className="asked-line">
                    <span>{who(item, nameOf)} answered</span>
                    <TakenNote taken={shown.taken} isAway={isAway} />
                </p>
            );
        case "note":
            return (
                <p className="note-line">
                    <Icon name="ask" size={14} />
                    <span>{noteOf(shown.note, nameOf)}</span>
                </p>
            );
        default:
            return (
                <p className="note-line">
                    <span>This needs a newer version of the page.</span>
                </p>
            );
    }
});

/** A message of the agent, which can be copied as it was written. */
function Said({ text, isCut }: { text: string; isCut: boolean }) {
    const element = useRef<HTMLDivElement>(null);
    return (
        <div dir="auto">
            <div ref={element}>
                <Markdown text={text} />
            </div>
            <div className="byline said">
                {isCut && <span>interrupted</span>}
                <CopyButton text={visible(text)} of={element} className="button small plain">
                    Copy message
                </CopyButton>
            </div>
        </div>
    );
}

const MOST_PROMPT = 20_000;

/** A long one is drawn in pieces, as far as it is read. */
function Prompt({ text }: { text: string }) {
    const [most, setMost] = useState(MOST_PROMPT);
    const left = text.length - most;
    if (left <= 0) return visible(text);
    return (
        <>
            {visible(text.slice(0, most))}…
            <div>
                <button type="button" className="button small" onClick={() => setMost(most + 10 * MOST_PROMPT)}>
                    Show more ({left.toLocaleString()} characters are left)
                </button>
            </div>
        </>
    );
}

const FAILURES: Record<string, string> = {
    login: "The agent is not logged in",
    quota: "The agent has used up its quota",
    overloaded: "The model is overloaded",
    context: "The conversation is too long for the model",
    crashed: "The agent crashed",
};

/** What they do is shown where they do it. */
const QUIET = new Set(["access", "take_back"]);

/** Whether the item has a place on the screen: what only says that all went well has none. */
export function isShown(item: Item): boolean {
    const { shown } = item;
    if (shown.type === "turn") return shown.turn.state === "ended";
    if (shown.type === "answer" || (shown.type === "control" && QUIET.has(shown.control.action)))
        return shown.taken.is === "rejected";
    // What is open stands as a card over the field to write in.
    if (shown.type === "card") return shown.card.resolved !== undefined;
    if (shown.type === "text" || shown.type === "thought") return shown.part.text.trim() !== "";
    return true;
}

function who({ author, unconfirmed }: Item, nameOf: (user: string) => string): string {
    if (author.kind === "host") return "The machine";
    if (author.kind !== "person") return oneLine(author.why, 120);
    return oneLine(nameOf(author.user), 60) + (unconfirmed === undefined ? "" : " (not confirmed)");
}

interface BylineProps {
    item: Item;
    taken: Taken;
    nameOf: (user: string) => string;
    isAway: boolean;
}

/** Its name is that of the heading before the prompt, which leads a screen reader from prompt to prompt. */
function Byline({ item, taken, nameOf, isAway }: BylineProps) {
    return (
        <div className="byline">
            <bdi aria-hidden="true">{who(item, nameOf)}</bdi>
            {item.at && <time dateTime={item.at}>{clock(item.at)}</time>}
            <TakenNote taken={taken} isAway={isAway} />
        </div>
    );
}

function TakenNote({ taken, isAway }: { taken: Taken; isAway: boolean }) {
    switch (taken.is) {
        case "not_yet":
            return <span>· {isAway ? "The machine is offline and gets this when it is back" : "Waiting for the machine"}</span>;
        case "queued":
            return <span>· waits for its turn</span>;
        case "rejected":
            if (taken.code === "taken_back") return <span>· taken back</span>;
            return <span className="rejected">· not done: {oneLine(taken.text ?? taken.code ?? "rejected", 300)}</span>;
        default:
            return null;
    }
}

type Attachments = Extract<Item["shown"], { type: "prompt" }>["prompt"]["attachments"];

function Images({ attachments }: { attachments: Attachments }) {
    const images = attachments
        .filter((one) => one.type === "image")
        .filter((one) => /^image\/(png|jpeg|gif|webp)$/.test(one.mimeType) && /^[A-Za-z0-9+/=]*$/.test(one.data));
    const files = attachments.filter((one) => one.type === "resource");
    if (images.length === 0 && files.length === 0) return null;
    return (
        <div className="images">
            {images.map((one, at) => (
                <img key={at} src={`data:${one.mimeType};base64,${one.data}`} alt={`Image ${at + 1}`} />
            ))}
            {files.map((one, at) => (
                <span key={at} className="tag">
                    <bdi>{oneLine(nameOfFile(one.resource.uri), 80)}</bdi>
                </span>
            ))}
        </div>
    );
}

function titleOf(card: Card): string {
    if (card.asks.type === "permission") return card.asks.title;
    return card.asks.questions.map((one) => one.text).join(" · ");
}

export function saidOf(card: Card, answer: Answer | undefined, nameOf: (user: string) => string): string {
    const { resolved, asks } = card;
    if (!resolved) return "waits for an answer";
    if (resolved.outcome === "withdrawn") return `withdrawn${resolved.reason ? `: ${oneLine(resolved.reason, 120)}` : ""}`;
    const name = resolved.by === undefined ? "" : nameOf(resolved.by);
    const by = name === "" ? "" : ` by ${name === "You" ? "you" : oneLine(name, 60)}`;
    const option = asks.type === "permission" ? asks.options.find((one) => one.optionId === resolved.optionId) : undefined;
    if (asks.type === "question" && answer) {
        const texts = Object.values(answer.answers ?? {}).flat();
        return texts.length === 0 ? `not answered${by}` : `answered${by}: ${oneLine(texts.join(", "), 200)}`;
    }
    if (!option) return `answered${by}`;
    const how = option.kind === "allow_once" || option.kind === "reject_once" ? "" : `: ${oneLine(option.name, 120)}`;
    return `${option.kind.startsWith("reject") ? "denied" : "allowed"}${by}${how}`;
}

const STOPS: Record<string, string> = {
    cancelled: "Interrupted",
    max_tokens: "Stopped at its token limit",
    refusal: "The model refused",
    limit: "Stopped at a limit",
    error: "Ended with an error",
};

function TurnEnd({ turn }: { turn: Turn }) {
    const facts = [
        STOPS[turn.stopReason ?? ""] ?? "",
        turn.usage ? `${tokens(turn.usage.inputTokens)} in, ${tokens(turn.usage.outputTokens)} out` : "",
        turn.costUsd ? money(turn.costUsd) : "",
    ].filter(Boolean);
    return (
        <p className="turn-end">
            <span>{facts.join(" · ") || "Done"}</span>
        </p>
    );
}

function noteOf(note: Note, nameOf: (user: string) => string): string {
    switch (note.kind) {
        case "removed":
            return `${oneLine(nameOf(note.user), 60)} (a device that was removed): ${
                note.text === "" ? "a command that counts for nothing" : oneLine(note.text, 200)
            }`;
        case "not_signed":
            return `Not shown, because it is not signed as it must be: ${oneLine(note.why, 200)}`;
        case "missing":
            return note.from === note.to
                ? `A message of the machine is missing here (its number ${note.from}).`
                : `Messages of the machine are missing here (its numbers ${note.from} to ${note.to}).`;
        case "repeated":
            return `The server sent the machine's message ${note.n} once more. It is not shown again.`;
        case "repeated_command":
            return "The server sent a command once more. It is not shown again.";
        default:
            return `A message that cannot be read: ${oneLine(note.why, 200)}`;
    }
}
