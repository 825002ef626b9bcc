/** Says what a demo is, and deletes it when its screen is left. */
import { useEffect } from "react";
import { hold, isOurs, leave } from "../data/demo.ts";

export default function DemoNote({ id }: { id: string }) {
    const isHere = isOurs(id);
    useEffect(() => {
        if (!isHere) return undefined;
        hold(id);
        return () => leave(id);
    }, [id, isHere]);
    return (
        <p className="reader-note" role="status">
            This is a demo: a script plays the agent.{" "}
            {isHere ? "It is deleted when you leave this page." : "It is deleted when the terminal that shows it ends."}
        </p>
    );
}
