/** The oldest open request of a session as a card, or the one that was brought up, with how many wait behind it. */
import { useEffect, useRef, useState } from "react";
import { useStore } from "../base/store.ts";
import { textOf } from "../data/failure.ts";
import type { SessionFeed } from "../data/feed.ts";
import { type Pending, PermissionCard, QuestionCard } from "./request.tsx";
import type { Answers } from "./types.ts";
import { hasAnswered } from "./use-digits.ts";

interface Props {
    feed: SessionFeed;
    /** A request that was brought up, for as long as it is open. */
    wanted?: string | undefined;
    isAlone: boolean;
    isEmpty: boolean;
}

export function Requests({ feed, wanted, isAlone, isEmpty }: Props) {
    const { open, may, rejected, row } = useStore(feed.view);
    const [pending, setPending] = useState<{ requestId: string } & Pending>();
    const card = open.find(({ requestId }) => requestId === wanted) ?? open[0];
    useEffect(() => {
        // The machine did not take it: the card can be answered again.
        if (rejected && pending && rejected.requestId === pending.requestId && pending.error === undefined) {
            setPending({ ...pending, error: rejected.text });
        }
    }, [rejected, pending]);
    // A request that is asked again is another card: nothing that was seen or chosen counts for it.
    const key = card && `${card.requestId} ${card.digest}`;
    const answered = useRef<string>(undefined);
    useEffect(() => {
        // The buttons that had the focus are gone.
        if (answered.current === undefined || answered.current === key) return;
        answered.current = undefined;
        const isTouched = matchMedia("(pointer: coarse)").matches;
        document.querySelector<HTMLElement>(isTouched ? ".request" : ".request, .composer textarea")?.focus();
    }, [key]);
    if (!card) return null;
    const { requestId } = card;
    const send = (label: string, answer: { optionId: string } | { answers?: Answers | undefined }) => {
        setPending({ requestId, label });
        hasAnswered();
        answered.current = key;
        feed.answer(card, answer).catch((error: unknown) => {
            setPending({ requestId, label, error: textOf(error) });
        });
    };
    const shared = {
        isAlone,
        isEmpty,
        behind: open.length - 1,
        mayAnswer: may.approve,
        pending: pending?.requestId === requestId ? pending : undefined,
    };
    if (card.asks.type === "permission") {
        return (
            <PermissionCard
                key={key}
                {...shared}
                mayReach={may.own}
                permission={card.asks}
                sessionRef={row?.ref ?? feed.id}
                onOption={(option) => send(option.name, { optionId: option.optionId })}
            />
        );
    }
    return (
        <QuestionCard
            key={key}
            {...shared}
            question={card.asks}
            onAnswers={(answers) => send(answers ? "Answer" : "Do not answer", { answers })}
        />
    );
}
