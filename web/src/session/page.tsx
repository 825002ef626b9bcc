/** The page of one session. */
import type { Attachment } from "@ensemble/client/transcript";
import { lazy, type RefObject, Suspense, useCallback, useEffect, useId, useRef, useState } from "react";
import { Link } from "wouter";
import { Icon } from "../base/icons.tsx";
import { useStore } from "../base/store.ts";
import { useTitle } from "../base/title.ts";
import { folder } from "../base/words.ts";
import { account } from "../data/account.ts";
import { draftOf, keptDraft, saveDraft } from "../data/drafts.ts";
import { textOf } from "../data/failure.ts";
import type { SessionFeed } from "../data/feed.ts";
import { notKept } from "../data/kept.ts";
import { nameOf } from "../data/people.ts";
import { noteModels } from "../data/models.ts";
import { useLink } from "../data/shares.ts";
import { useFeed, useMarkSeen } from "../data/use-feed.ts";
import { askForVoice, voiceKey } from "../data/voice.ts";
import { KeptNote } from "../shell/kept-note.tsx";
import { paths } from "../shell/route.ts";
import { oneLine, visible } from "../text/visible.ts";
import type { Tab } from "../looks/words.ts";
import { MOST_FILES } from "./attachments.ts";
import { Composer } from "./composer.tsx";
import { hasLost, lastMessages } from "./last-messages.ts";
import { Phase } from "./phase.tsx";
import { Directory } from "./paths.ts";
import { Plan } from "./plan.tsx";
import { Requests } from "./requests.tsx";
import { StillRunning } from "./still-running.tsx";
import { Transcript } from "./transcript.tsx";
import type { Item, Prompt } from "./types.ts";
import { sendPrompt, Unsent } from "./unsent.tsx";
import { useTyping } from "./use-digits.ts";

/** Loaded when a conversation begins. */
const Talk = lazy(() => import("../voice/talk.tsx"));
const DemoNote = lazy(() => import("./demo-note.tsx"));
const ShareDialog = lazy(() => import("../share/dialog.tsx").then((found) => ({ default: found.ShareDialog })));
const RareNotes = lazy(() => import("./rare-notes.tsx"));
const Details = lazy(() => import("./details.tsx").then((found) => ({ default: found.Details })));
const TakeBack = lazy(() => import("./take-back.tsx"));
const Tabs = lazy(() => import("../looks/tabs.tsx"));
const Looked = lazy(() => import("../looks/looked.tsx"));

export function SessionPage({ id, isTalking = false }: { id: string; isTalking?: boolean }) {
    const feed = useFeed(id);
    useMarkSeen(id);
    useEffect(askForVoice, []);
    return <Session key={feed.id} feed={feed} isTalking={isTalking} />;
}

interface SessionProps {
    feed: SessionFeed;
    isPublic?: boolean;
    isTalking?: boolean;
}

export function Session({ feed, isPublic = false, isTalking = false }: SessionProps) {
    const view = useStore(feed.view);
    const { row, state } = view;
    const title = row ? oneLine(row.title, 200) : "Session";
    useTitle(title);
    const [shown, setShown] = useState<"details" | "share">();
    const close = () => setShown(undefined);
    const panel = useId();
    const [wish, setTab] = useState<Tab>("chat");
    const does =
        feed.looks && state?.does?.some((word) => word === "look.git" || word === "look.file") ? state.does : undefined;
    const tab = does ? wish : "chat";
    const hasLink = Boolean(useLink(feed.id, view.may.own && !isPublic));
    const hasVoice = useStore(voiceKey) !== undefined;
    const [wanted, setWanted] = useState<string>();
    const [machine, agent, models] = [row?.machineId, state?.agent, state?.models];
    useEffect(() => {
        if (view.may.own && machine && agent && models) void noteModels(machine, agent, models);
    }, [view.may.own, machine, agent, models]);
    const me = useStore(account);
    const userId = me.state === "ready" ? me.userId : undefined;
    const isAway = row?.online === false && view.isHosted;
    const mayTakeBack = feed.takeBack !== undefined && state?.does?.includes("take_back") === true && view.may.prompt;
    /** Puts a text into the field to write in. */
    const editRef = useRef<(prompt: Prompt) => void>(undefined);
    const below = useCallback(
        ({ id, localId, author, shown }: Item) => {
            if (author.kind !== "person" || (author.user !== userId && !view.may.own)) return null;
            // The machine would forget to take it back before it gets the prompt.
            if (isAway && shown.type === "prompt" && shown.taken.is === "not_yet") return null;
            const named = { localId, key: author.key };
            return (
                <Suspense>
                    <TakeBack feed={feed} id={id} named={named} onEdit={(prompt) => editRef.current?.(prompt)} />
                </Suspense>
            );
        },
        [feed, userId, isAway, view.may.own],
    );
    const loadOlder = useCallback(() => feed.loadOlder(), [feed]);
    const about = [
        state?.agent,
        state ? folder(state.directory) : row?.directory && folder(row.directory),
        state?.branch,
        row?.host,
    ].filter((text) => text !== undefined && text !== "");
    const stuck = row?.online === true && row.cannotWrite && view.keptAt === undefined ? row : undefined;
    return (
        <Directory value={state?.directory}>
            <div className="session">
                <header className="session-head">
                    {!isPublic && (
                        <Link href={paths.home} className="icon-button back" aria-label="Back to all sessions">
                            <Icon name="back" />
                        </Link>
                    )}
                    <div className="what">
                        <h1>
                            <bdi>{title}</bdi>
                        </h1>
                        <span className="about" title={visible(state?.directory ?? "")}>
                            <bdi>{oneLine(about.join(" · "), 200)}</bdi>
                        </span>
                    </div>
                    <span className="how">
                        {hasLink && (
                            <button
                                type="button"
                                className="as-tag"
                                title="A public link opens this session"
                                onClick={() => setShown("share")}
                            >
                                <span className="tag accent">Public</span>
                            </button>
                        )}
                        {view.keptAt === undefined && view.isHosted && view.isGone !== true && (
                            <Phase row={row} state={state} mayAnswer={view.may.approve} />
                        )}
                    </span>
                    {row && !isPublic && !isTalking && hasVoice && view.isHosted && (
                        <Link href={paths.talk(feed.id)} className="icon-button" aria-label="Talk" title="Talk">
                            <Icon name="voice" />
                        </Link>
                    )}
                    {row && view.may.own && row.agent !== "demo" && (
                        <button
                            type="button"
                            className="icon-button"
                            aria-label="Share"
                            title="Share"
                            onClick={() => setShown("share")}
                        >
                            <Icon name="share" />
                        </button>
                    )}
                    {row && !isPublic && (
                        <button
                            type="button"
                            className="icon-button"
                            aria-label="Details"
                            title="Details"
                            onClick={() => setShown("details")}
                        >
                            <Icon name="more" />
                        </button>
                    )}
                </header>
                {view.error !== undefined && (
                    <div className="banner bad" role="alert">
                        <span>{view.error}</span>
                        {!isPublic && !view.isOpen && (
                            <Link href={paths.home} className="button small">
                                Home
                            </Link>
                        )}
                    </div>
                )}
                {view.error === undefined && !view.isOpen && (
                    <div className="session-panel">
                        <Opening />
                    </div>
                )}
                {view.keptAt !== undefined && <KeptNote at={view.keptAt} />}
                {does && (
                    <Suspense fallback={<div className="session-tabs" />}>
                        <Tabs does={does} tab={tab} onTab={setTab} panel={panel} />
                    </Suspense>
                )}
                {view.isOpen && (
                    <div
                        className="session-panel"
                        id={panel}
                        {...(does && { role: "tabpanel", "aria-labelledby": `${panel}-${tab}` })}
                    >
                        {tab === "chat" ? (
                            <Transcript
                                items={view.items}
                                growing={view.growing}
                                turnId={view.turnId}
                                hasOlder={view.hasOlder}
                                loadOlder={loadOlder}
                                isWorking={state?.phase === "working"}
                                nameOf={nameOf}
                                isAway={isAway}
                                below={mayTakeBack ? below : undefined}
                            />
                        ) : (
                            <Suspense fallback={<Opening />}>
                                <Looked feed={feed} tab={tab} />
                            </Suspense>
                        )}
                    </div>
                )}
                {isTalking && (
                    <Suspense fallback={<Opening />}>
                        <Talk feed={feed} show={setWanted} />
                    </Suspense>
                )}
                {view.hasLater && (
                    <p className="reader-note" role="status">
                        This link cannot show what was written after the session got a new key. Ask the person who sent it for a
                        new link.
                    </p>
                )}
                {row?.agent === "demo" && view.may.own && (
                    <Suspense>
                        <DemoNote id={feed.id} />
                    </Suspense>
                )}
                {(view.lacksKey || stuck || view.withheld !== undefined) && (
                    <Suspense>
                        <RareNotes row={stuck} lacksKey={view.lacksKey} withheld={view.withheld} />
                    </Suspense>
                )}
                {view.isOpen && !isPublic && view.isGone !== true && <Dock feed={feed} wanted={wanted} editRef={editRef} />}
                {row && shown === "share" && (
                    <Suspense>
                        <ShareDialog row={row} access={state?.access ?? []} onClose={close} />
                    </Suspense>
                )}
                {row && shown === "details" && (
                    <Suspense>
                        <Details row={row} state={state} isOwner={view.may.own} onClose={close} />
                    </Suspense>
                )}
            </div>
        </Directory>
    );
}

function Opening() {
    return (
        <p className="older" role="status">
            Opening…
        </p>
    );
}

interface DockProps {
    feed: SessionFeed;
    wanted: string | undefined;
    editRef: RefObject<((prompt: Prompt) => void) | undefined>;
}

function Dock({ feed, wanted, editRef }: DockProps) {
    const { plan, state, may, isHosted, items, row, keptAt } = useStore(feed.view);
    const [attachments, setAttachments] = useState<readonly Attachment[]>([]);
    const me = useStore(account);
    const [draft, setDraft] = useState(() => draftOf(feed.id) ?? "");
    useEffect(() => {
        if (draftOf(feed.id) === undefined) void keptDraft(feed.id).then((kept) => setDraft((typed) => typed || kept));
    }, [feed.id]);
    const [error, setError] = useState<string>();
    const isNotKept = useStore(notKept);
    useTyping();
    const write = (text: string) => {
        setDraft(text);
        saveDraft(feed.id, text);
    };
    const attempt = (sending: Promise<void>) => {
        setError(undefined);
        sending.catch((caught: unknown) => setError(textOf(caught)));
    };
    const prompt = (when: "now" | "next") => {
        setError(undefined);
        sendPrompt(feed, { text: draft, when, localId: crypto.randomUUID(), attachments: [...attachments] });
        write("");
        setAttachments([]);
    };
    const put = ({ text, attachments: earlier = [] }: { text: string; attachments?: readonly Attachment[] | undefined }) => {
        write(draft === "" ? text : `${text}\n${draft}`);
        setAttachments((before) => [...earlier, ...before].slice(0, MOST_FILES));
    };
    useEffect(() => {
        editRef.current = put;
    });
    return (
        <div className="dock">
            <div className="inner">
                <Requests feed={feed} wanted={wanted} isAlone isEmpty={draft === "" && attachments.length === 0} />
                {plan.length > 0 && (state?.phase === "working" || state?.phase === "waiting") && <Plan entries={plan} />}
                {/* A machine that is offline may have ended them. */}
                {state && keptAt === undefined && row?.online !== false && (
                    <StillRunning
                        commands={state.stillRunning}
                        onEnd={
                            may.prompt && (state.phase === "idle" || state.phase === "parked")
                                ? () => attempt(feed.interrupt())
                                : undefined
                        }
                    />
                )}
                {error !== undefined && (
                    <p className="banner bad" role="alert">
                        {error}
                    </p>
                )}
                {isNotKept && (
                    <p className="banner" role="status">
                        This browser has no storage left for what you type. Send it before you leave the page.
                    </p>
                )}
                <Unsent feed={feed} onEdit={put} />
                {may.prompt && isHosted && draft === "" && hasLost(items) && (
                    <p className="banner">
                        <span>The agent does not remember what was said above.</span>
                        <button type="button" className="button small" onClick={() => write(lastMessages(items))}>
                            Insert the last messages
                        </button>
                    </p>
                )}
                {may.own && state?.phase === "ended" && (
                    <p className="banner">
                        <span>The agent has ended.</span>
                        <button type="button" className="button small" onClick={() => attempt(feed.resume())}>
                            Resume it
                        </button>
                    </p>
                )}
                {may.prompt && state?.phase === "ended" ? null : may.prompt ? (
                    <Composer
                        state={state}
                        draft={draft}
                        isHosted={isHosted}
                        attachments={attachments}
                        onAttachments={setAttachments}
                        onDraft={write}
                        onPrompt={prompt}
                        onInterrupt={() => attempt(feed.interrupt())}
                        onMode={(mode) => attempt(feed.setMode(mode))}
                        onModel={(model) => attempt(feed.setModel(model))}
                        isOwner={may.own}
                        mayChangeModel={may.approve}
                        mayBypass={may.own && me.state === "ready" && me.role === "primary"}
                    />
                ) : (
                    <p className="reader-note">You can read this session, but you cannot write in it.</p>
                )}
            </div>
        </div>
    );
}
