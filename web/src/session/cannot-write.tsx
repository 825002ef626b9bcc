/** Why nothing comes from the session's machine though it is there, and what to do. The server's word is all that there is of it. */
import type { SessionRow } from "../data/row.ts";

type Why = NonNullable<SessionRow["cannotWrite"]>;

const WHY: Record<Why, string> = {
    key_refused: "a device was removed, and the server did not take the new key that the machine made",
    key_not_given: "the machine was not given the session’s newest key",
    key_of_stranger: "the session’s newest key was not made by a device of its owner",
    list_unread: "the machine cannot use the device list of its owner",
};

export function CannotWrite({ why, row }: { why: Why; row: SessionRow }) {
    return (
        <p className="reader-note" role="status">
            The server says that the machine keeps what the agent does and cannot send it: {WHY[why]}.{" "}
            {row.accessLevel !== "owner" ? (
                "Its owner has to make a new key for it."
            ) : why === "list_unread" ? (
                <>
                    Run <code>ensemble devices</code> on a primary device: it checks the list.
                </>
            ) : (
                <>
                    <code>ensemble session rekey {row.ref}</code> makes a new key for it.
                </>
            )}
        </p>
    );
}
