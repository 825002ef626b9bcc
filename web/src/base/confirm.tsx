/** A question that takes the place of the button that began it. */
import { type ReactNode, useEffect, useRef } from "react";

/** It is scrolled into view and gets the focus, so that a person sees the question and a screen reader reads it. */
export function Confirm({ label, children }: { label: string; children: ReactNode }) {
    const element = useRef<HTMLDivElement>(null);
    useEffect(() => {
        element.current?.focus({ preventScroll: true });
        element.current?.scrollIntoView({ block: "nearest" });
    }, []);
    return (
        <div ref={element} className="empty confirm" role="group" aria-label={label} tabIndex={-1}>
            {children}
        </div>
    );
}
