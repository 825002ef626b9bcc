/** Keeps a tap that was meant for something else from an answer: buttons take none just after they appeared or moved. */
import { type RefObject, useEffect, useRef, useState } from "react";

/** How long no tap counts, in milliseconds. A double tap and a tap that was under way take less. */
const GUARD_MS = 500;
/** The share of an element that is seen, in steps: each step that it moves is noticed. */
const STEPS = Array.from({ length: 101 }, (_, at) => at / 100);

/** Whether an answer may be taken now: the element has been at its place for a while, with the `contents` that it has now. */
export function useGuard(element: RefObject<HTMLElement | null>, contents?: unknown): boolean {
  const [ready, setReady] = useState<{ contents: unknown }>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    const begin = () => {
      clearTimeout(timer.current);
      setReady(undefined);
      timer.current = setTimeout(() => setReady({ contents }), GUARD_MS);
    };
    begin();
    const stop = element.current ? whenMoved(element.current, begin) : undefined;
    return () => {
      clearTimeout(timer.current);
      stop?.();
    };
  }, [element, contents]);
  // Other contents are guarded as soon as they are drawn.
  return ready !== undefined && Object.is(ready.contents, contents);
}

/** Calls back when the element has another place in the window. Returns a function that stops it. */
function whenMoved(element: HTMLElement, moved: () => void): () => void {
  let observer: IntersectionObserver | undefined;
  const observe = () => {
    observer?.disconnect();
    const { top, left, right, bottom } = element.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    // The element fills the root exactly, so each pixel that it moves changes the share of it that is inside.
    const sides = [top, clientWidth - right, clientHeight - bottom, left];
    let isFirst = true;
    observer = new IntersectionObserver(
      ([seen]) => {
        const isSame = seen?.boundingClientRect.top === top && seen.boundingClientRect.left === left;
        const isBegin = isFirst && isSame;
        isFirst = false;
        if (isBegin) return;
        moved();
        observe();
      },
      { rootMargin: sides.map((side) => `${-Math.floor(side)}px`).join(" "), threshold: STEPS },
    );
    observer.observe(element);
  };
  observe();
  window.addEventListener("resize", observe);
  return () => {
    observer?.disconnect();
    window.removeEventListener("resize", observe);
  };
}
