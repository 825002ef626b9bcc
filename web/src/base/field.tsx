/** Controls with their names. The text below one is its description, not a part of its name: a screen reader reads it last. */
import { type ChangeEvent, type ReactNode, useId } from "react";

interface FieldProps {
    name: string;
    hint: ReactNode;
    /** Draws the control with the attributes that it gets. */
    children: (named: { id: string; "aria-describedby": string }) => ReactNode;
}

/** One that is filled in. Without a hint, a `label` around it does the same. */
export function Field({ name, hint, children }: FieldProps) {
    const id = useId();
    const described = `${id}-hint`;
    return (
        <div className="field">
            <label htmlFor={id}>{name}</label>
            {children({ id, "aria-describedby": described })}
            <small id={described}>{hint}</small>
        </div>
    );
}

interface ChoiceProps {
    className: "check" | "choice";
    label: ReactNode;
    hint: ReactNode;
    checked: boolean;
    disabled?: boolean;
    /** The name of a group of choices. Without it, any number of them can be chosen. */
    oneOf?: string | undefined;
    onChange: (event: ChangeEvent<HTMLInputElement>) => void;
}

/** One that is ticked. */
export function Choice({ className, label, hint, checked, disabled = false, oneOf, onChange }: ChoiceProps) {
    const id = useId();
    return (
        <label className={className}>
            <input
                type={oneOf === undefined ? "checkbox" : "radio"}
                name={oneOf}
                checked={checked}
                disabled={disabled}
                onChange={onChange}
                aria-labelledby={`${id}-name`}
                {...(hint && { "aria-describedby": `${id}-hint` })}
            />
            <span>
                <bdi id={`${id}-name`}>{label}</bdi>
                {hint && (
                    <>
                        {" "}
                        <small id={`${id}-hint`}>
                            <bdi>{hint}</bdi>
                        </small>
                    </>
                )}
            </span>
        </label>
    );
}
