/** The forms with which people begin. */
import type { FormEvent, ReactNode } from "react";
import { Field } from "../base/field.tsx";

interface Props {
    onSubmit: () => void;
    /** What the button says that sends it. */
    action: string;
    isReady: boolean;
    error: string | undefined;
    /** The button that leaves it, if there is one. */
    back?: { label: string; onBack: () => void };
    children: ReactNode;
}

export function BeginForm({ onSubmit, action, isReady, error, back, children }: Props) {
    const submitted = (event: FormEvent) => {
        event.preventDefault();
        onSubmit();
    };
    return (
        <form onSubmit={submitted}>
            {children}
            {error !== undefined && (
                <p className="error-text" role="alert">
                    {error}
                </p>
            )}
            <div className="actions">
                <button type="submit" className="button primary" disabled={!isReady}>
                    {action}
                </button>
                {back && (
                    <button type="button" className="button plain" onClick={back.onBack}>
                        {back.label}
                    </button>
                )}
            </div>
        </form>
    );
}

interface Typed {
    value: string;
    onChange: (value: string) => void;
}

export function PersonName({ value, onChange, hint, isRequired = false }: Typed & { hint: string; isRequired?: boolean }) {
    return (
        <Field name="Your name" hint={hint}>
            {(named) => (
                <input
                    {...named}
                    className="input"
                    value={value}
                    maxLength={100}
                    required={isRequired}
                    autoComplete="name"
                    onChange={(event) => onChange(event.target.value)}
                />
            )}
        </Field>
    );
}

/** An address with a secret in it. */
export function SecretAddress({ value, onChange, name, example }: Typed & { name: string; example: string }) {
    return (
        <label className="field">
            <span>{name}</span>
            <input
                className="input"
                value={value}
                required
                autoComplete="off"
                spellCheck={false}
                placeholder={example}
                onChange={(event) => onChange(event.target.value)}
            />
        </label>
    );
}
