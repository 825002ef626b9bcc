/** Asks about people who want to do more in a session than read it. They have claimed an invitation. */
import { useEffect, useState } from "react";
import { useAttempt } from "../base/attempt.ts";
import { useStore } from "../base/store.ts";
import { say } from "../base/toast.tsx";
import { textOf } from "../data/failure.ts";
import { allow, answerInvites, guests, refuse, type Waiting } from "../data/inviting.ts";
import { mayHeal } from "../data/keep-trying.ts";
import { inviteChanges, sessions } from "../data/sessions.ts";
import { oneLine } from "../text/visible.ts";

/** Another device that has begun to answer has no more turn by then. */
const OTHERS_TURN_MS = 61_000;

export function Joining() {
    const changes = useStore(inviteChanges);
    const waiting = useStore(guests);
    useEffect(() => {
        let timer: ReturnType<typeof setTimeout> | undefined;
        let isOver = false;
        const answer = (): void =>
            void answerInvites().then(
                (isOthers) => {
                    if (isOthers && !isOver) timer = setTimeout(answer, OTHERS_TURN_MS);
                },
                (error: unknown) => {
                    if (!mayHeal(error)) say(`An invitation could not be answered. ${textOf(error)}`);
                },
            );
        answer();
        return () => {
            isOver = true;
            clearTimeout(timer);
        };
    }, [changes]);
    return (
        <div role="status">
            {waiting.map((guest) => (
                <Guest key={guest.id} guest={guest} />
            ))}
        </div>
    );
}

function Guest({ guest }: { guest: Waiting }) {
    const row = useStore(sessions).rows.find(({ id }) => id === guest.session);
    const [isBusy, setBusy] = useState(false);
    const { error, run } = useAttempt(setBusy);
    return (
        <div className="banner">
            <span>
                <bdi>
                    <strong>{oneLine(guest.name, 60)}</strong>
                </bdi>{" "}
                (joined by your link) wants to write to <bdi>{row ? oneLine(row.title, 80) : "a session of yours"}</bdi>
                {row?.host && (
                    <>
                        {" "}
                        on <bdi>{oneLine(row.host, 40)}</bdi>
                    </>
                )}
                {guest.may === "approve" && ", and to allow what its agent does"}.
                {error !== undefined && <span className="error-text"> {error}</span>}
            </span>
            <span className="row">
                <button type="button" className="button primary" disabled={isBusy} onClick={() => run(() => allow(guest))}>
                    Let them in
                </button>
                <button type="button" className="button" disabled={isBusy} onClick={() => run(() => refuse(guest))}>
                    Refuse
                </button>
            </span>
        </div>
    );
}
