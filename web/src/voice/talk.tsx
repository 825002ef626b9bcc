/** Talking about a session: over the requests and the field to write in, which stay as they are. */
import { type FormEvent, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { look } from "../base/look.ts";
import { useStore } from "../base/store.ts";
import type { SessionFeed } from "../data/feed.ts";
import { textOf } from "../data/failure.ts";
import { askForVoice, voiceKey } from "../data/voice.ts";
import { paths } from "../shell/route.ts";
import { oneLine, visible } from "../text/visible.ts";
import { Conversation, type TalkView } from "./conversation.ts";
import type { Call, Held } from "./tools.ts";

const AGENT: Record<string, string> = {
    initializing: "The voice is getting ready",
    idle: "The voice waits",
    listening: "The voice listens",
    thinking: "The voice thinks",
    speaking: "The voice speaks",
};

const METHOD: Record<string, string> = {
    "session.send": "Message",
    "session.read": "Read the session",
    "permission.deny": "Deny",
    "permission.show": "Bring up",
    "runs.list": "List the runs",
    "runs.show": "Read a run",
    "sessions.list": "List the sessions",
};

interface Props {
    feed: SessionFeed;
    /** Brings a request up. */
    show: (requestId: string) => void;
}

export default function Talk({ feed, show }: Props) {
    const [talk] = useState(() => new Conversation(feed, show));
    const view = useStore(talk.view);
    const hasVoice = useStore(voiceKey) !== undefined;
    const { language } = useStore(look);
    useEffect(askForVoice, []);
    // Leaving the screen ends the conversation.
    useEffect(() => () => void talk.end(), [talk]);
    const begin = (isWritten = false) => void talk.begin(language || navigator.language, isWritten);
    return (
        <section className="talk" aria-label="Talk">
            <div className="inner">
                {view.phase === "asking" && (
                    <Ask hasVoice={hasVoice} onAgree={() => begin()} onWrite={() => begin(true)} sessionId={feed.id} />
                )}
                {(view.phase === "starting" || view.phase === "talking") && <Talking view={view} talk={talk} />}
                {view.phase === "over" && (
                    <Over view={view} talk={talk} onAgain={() => begin()} onWrite={() => begin(true)} sessionId={feed.id} />
                )}
                {view.held && <Shown held={view.held} />}
                <Words view={view} />
                {view.calls.length > 0 && <Calls calls={view.calls} />}
            </div>
        </section>
    );
}

function Ask({
    hasVoice,
    onAgree,
    onWrite,
    sessionId,
}: {
    hasVoice: boolean;
    onAgree: () => void;
    onWrite: () => void;
    sessionId: string;
}) {
    return (
        <>
            <h2>Talk about this session</h2>
            <p>
                <strong>The voice service will hear and read this session.</strong> What you say goes to the server and to the
                makers of its models, and so does what the voice reads out of the session. It can send messages, which you can
                take back for 3 seconds, read, deny requests and bring them up. On the server it reads your runs, and which of
                your sessions work. The server keeps the words until ten minutes after the end. It cannot allow anything: only
                you can, by hand.
            </p>
            {!hasVoice && <p role="status">This server does not offer voice.</p>}
            <div className="actions">
                <button type="button" className="button primary" disabled={!hasVoice} onClick={onAgree}>
                    Agree and talk
                </button>
                <button type="button" className="button" disabled={!hasVoice} onClick={onWrite}>
                    Agree and write
                </button>
                <Link href={paths.session(sessionId)} className="button plain">
                    Not now
                </Link>
            </div>
        </>
    );
}

function Talking({ view, talk }: { view: TalkView; talk: Conversation }) {
    const agent =
        view.agent === undefined
            ? "No voice agent is here yet"
            : view.speaking.agent
              ? AGENT["speaking"]
              : (AGENT[view.agent] ?? "The voice is here");
    return (
        <>
            <div className="who" role="status">
                {view.phase === "starting" ? (
                    <span>Connecting…</span>
                ) : (
                    <>
                        <span className={view.speaking.me ? "speaks" : ""}>
                            {!view.hasMicrophone
                                ? "You write"
                                : view.isMuted
                                  ? "You are muted"
                                  : view.speaking.me
                                    ? "You speak"
                                    : "Your microphone is on"}
                        </span>
                        <span className={view.speaking.agent ? "speaks" : ""}>{agent}</span>
                    </>
                )}
            </div>
            {view.notice !== undefined && (
                <p className="banner" role="alert">
                    {visible(view.notice)}
                </p>
            )}
            <div className="actions">
                {view.phase === "talking" && view.hasMicrophone && (
                    <button
                        type="button"
                        className="button"
                        aria-pressed={view.isMuted}
                        onClick={() => void talk.mute(!view.isMuted)}
                    >
                        Mute
                    </button>
                )}
                {!view.mayPlay && (
                    <button type="button" className="button primary" onClick={() => talk.play()}>
                        Switch sound on
                    </button>
                )}
                <button type="button" className="button danger" onClick={() => void talk.end()}>
                    End
                </button>
            </div>
            {view.phase === "talking" && <Write talk={talk} />}
            <label className="check">
                <input
                    type="checkbox"
                    checked={view.tellsNews}
                    onChange={(event) => talk.tellNews(event.currentTarget.checked)}
                />
                The voice says when the agent asks or ends
            </label>
        </>
    );
}

/** The most that the server takes at once is 8 KiB of UTF-8. */
const MOST_WRITTEN = 2_000;

function Write({ talk }: { talk: Conversation }) {
    const [text, setText] = useState("");
    const [error, setError] = useState<string>();
    const send = (event: FormEvent) => {
        event.preventDefault();
        const said = text.trim();
        if (said === "") return;
        setText("");
        setError(undefined);
        talk.write(said).catch((caught: unknown) => {
            setText((now) => now || said);
            setError(textOf(caught));
        });
    };
    return (
        <form className="actions" onSubmit={send}>
            <input
                className="input"
                aria-label="Write to the voice"
                placeholder="Write to the voice"
                value={text}
                maxLength={MOST_WRITTEN}
                autoComplete="off"
                onChange={(event) => setText(event.target.value)}
            />
            <button type="submit" className="button" disabled={text.trim() === ""}>
                Send
            </button>
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
        </form>
    );
}

interface OverProps {
    view: TalkView;
    talk: Conversation;
    onAgain: () => void;
    onWrite: () => void;
    sessionId: string;
}

function Over({ view, talk, onAgain, onWrite, sessionId }: OverProps) {
    return (
        <>
            <h2>The conversation is over</h2>
            {view.trouble !== undefined && (
                <p className="banner bad" role="alert">
                    {visible(view.trouble)}
                </p>
            )}
            {view.notice !== undefined && (
                <p className="banner" role="alert">
                    {visible(view.notice)}
                </p>
            )}
            {view.lines.length > 0 && (
                <p>
                    {view.kept === "kept"
                        ? "The words are kept in the session."
                        : "The words are on this screen only. To keep them, they are sealed into the session as a message of yours, which its agent reads too."}
                </p>
            )}
            <div className="actions">
                <button type="button" className="button primary" onClick={onAgain}>
                    Agree and talk again
                </button>
                {!view.hasMicrophone && (
                    <button type="button" className="button" onClick={onWrite}>
                        Agree and write
                    </button>
                )}
                {view.lines.length > 0 && view.kept !== "kept" && (
                    <button
                        type="button"
                        className="button"
                        disabled={view.kept === "being kept"}
                        onClick={() => void talk.keep()}
                    >
                        Keep the words in the session
                    </button>
                )}
                <Link href={paths.session(sessionId)} className="button plain">
                    Close
                </Link>
            </div>
        </>
    );
}

/** A message of the voice that is sent in a moment. Escape takes it back as well. */
function Shown({ held }: { held: Held }) {
    const element = useRef<HTMLDivElement>(null);
    useEffect(() => {
        element.current?.scrollIntoView({ block: "nearest" });
    }, [held]);
    useEffect(() => {
        const keyed = (event: KeyboardEvent) => {
            if (event.key !== "Escape") return;
            event.preventDefault();
            held.undo();
        };
        addEventListener("keydown", keyed, { capture: true });
        return () => removeEventListener("keydown", keyed, { capture: true });
    }, [held]);
    return (
        <div className="banner held" role="alert" ref={element}>
            <p>Is sent in your name in 3 seconds:</p>
            <p className="text" tabIndex={0} role="group" aria-label="The message">
                <bdi>{visible(held.text)}</bdi>
            </p>
            <button type="button" className="button" onClick={held.undo}>
                Undo (Esc)
            </button>
        </div>
    );
}

function Words({ view }: { view: TalkView }) {
    const end = useRef<HTMLOListElement>(null);
    const newest = view.lines.at(-1);
    useEffect(() => {
        end.current?.scrollTo({ top: end.current.scrollHeight });
    }, [newest]);
    if (view.lines.length === 0) return null;
    return (
        <ol className="spoken" ref={end} tabIndex={0} aria-label="Words">
            {view.lines.map(({ segment, isMe, text, isFinal }) => (
                <li key={`${isMe} ${segment}`} className={isFinal ? "" : "grows"}>
                    <span className="whose">{isMe ? "You" : "Voice"}</span> <bdi>{visible(text)}</bdi>
                </li>
            ))}
        </ol>
    );
}

function Calls({ calls }: { calls: readonly Call[] }) {
    return (
        <details className="calls" open>
            <summary>What the voice did ({calls.length})</summary>
            <div role="log" aria-label="What the voice did" tabIndex={0}>
                <ul>
                    {calls.map(({ id, method, about, outcome }) => (
                        <li key={id}>
                            {METHOD[method] ?? oneLine(method, 40)}
                            {about !== "" && (
                                <>
                                    : <bdi>{oneLine(about, 120)}</bdi>
                                </>
                            )}{" "}
                            <span className="outcome">{oneLine(outcome, 120)}</span>
                        </li>
                    ))}
                </ul>
            </div>
        </details>
    );
}
