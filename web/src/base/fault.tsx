/** What is shown when the page itself fails. Without it the page would be empty. */
import { Component, type ReactNode } from "react";
import { forgetSeen } from "../data/kept.ts";

export class WhenFailed extends Component<{ children: ReactNode }, { hasFailed: boolean }> {
    override state = { hasFailed: false };

    static getDerivedStateFromError(): { hasFailed: boolean } {
        return { hasFailed: true };
    }

    override componentDidCatch(): void {
        // The cause may be something that an earlier version has kept.
        void forgetSeen();
    }

    override render(): ReactNode {
        if (!this.state.hasFailed) return this.props.children;
        return (
            <main className="missing">
                <h1>This page has failed</h1>
                <p role="alert">
                    What you typed is kept in this browser. Load the page again. If it fails again, the page and the server may
                    be different versions: contact the server's operator.
                </p>
                <div>
                    <button type="button" className="button primary" onClick={() => location.reload()}>
                        Load it again
                    </button>
                </div>
            </main>
        );
    }
}
