import { useEffect } from "react";

/** Names the screen in the title of the tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Ensemble" : `${title} – Ensemble`;
  }, [title]);
}
