/** A native dialog of the browser: it keeps the focus, closes with Escape, and gives the focus back. */
import { type ReactNode, useEffect, useId, useRef } from "react";
import { Icon } from "./icons.tsx";

interface Props {
    title: string;
    onClose: () => void;
    children: ReactNode;
}

export function Dialog({ title, onClose, children }: Props) {
    const element = useRef<HTMLDialogElement>(null);
    const name = useId();
    useEffect(() => {
        const dialog = element.current;
        if (dialog && !dialog.open) dialog.showModal();
        return () => dialog?.close();
    }, []);
    return (
        <dialog
            ref={element}
            className="dialog"
            aria-labelledby={name}
            onClose={onClose}
            onClick={(event) => {
                // The backdrop belongs to the dialog.
                if (event.target === element.current) element.current?.close();
            }}
        >
            <div className="inside">
                <header>
                    <h2 id={name}>{title}</h2>
                    <button type="button" className="icon-button" aria-label="Close" onClick={() => element.current?.close()}>
                        <Icon name="cross" />
                    </button>
                </header>
                {children}
            </div>
        </dialog>
    );
}
