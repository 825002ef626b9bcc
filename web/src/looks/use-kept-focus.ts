/** Keeps the focus inside an element whose parts come and go: it would be lost to the page with the button that had it. */
import { type RefObject, useEffect } from "react";

export function useKeptFocus(root: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const element = root.current;
    if (!element) return undefined;
    let last: EventTarget | null = null;
    const over = new AbortController();
    const { signal } = over;
    element.addEventListener("focusin", ({ target }) => (last = target), { signal });
    const left = ({ target }: FocusEvent): void =>
      // Some browsers say it of what is about to be removed, too.
      queueMicrotask(() => {
        if (last === target && (target as Element).isConnected) last = null;
      });
    element.addEventListener("focusout", left, { signal });
    const observer = new MutationObserver(() => {
      if (last && !(last as Element).isConnected && document.activeElement === document.body)
        element.focus({ preventScroll: true });
    });
    observer.observe(element, { childList: true, subtree: true });
    return () => {
      over.abort();
      observer.disconnect();
    };
  }, [root]);
}
