/** Whether a person has seen all of something that scrolls. */
import { type RefObject, useCallback, useLayoutEffect, useRef, useState } from "react";

/** Allows for rounding by a part of a pixel. */
const SLACK = 2;

export interface Seen {
  /** The end was on the screen, as long as everything is now. */
  isAll: boolean;
  /** The lines below what is on the screen. */
  left: number;
  /** Scrolls to the next part. */
  further: () => void;
}

/** Watches an element that scrolls, whose only child is its contents. */
export function useSeen(element: RefObject<HTMLElement | null>): Seen {
  const [{ isAll, left }, setSeen] = useState({ isAll: false, left: 0 });
  const deepest = useRef(0);
  useLayoutEffect(() => {
    const one = element.current;
    const contents = one?.firstElementChild;
    if (!one || !contents) return undefined;
    const style = getComputedStyle(one);
    const [lineHeight, padding] = [Number.parseFloat(style.lineHeight) || 20, Number.parseFloat(style.paddingBottom) || 0];
    const look = () => {
      const bottom = one.scrollTop + one.clientHeight;
      const end = one.scrollHeight - padding - SLACK;
      deepest.current = Math.max(deepest.current, bottom);
      const next = { isAll: deepest.current >= end, left: Math.ceil(Math.max(0, end - bottom) / lineHeight) };
      setSeen((before) => (before.isAll === next.isAll && before.left === next.left ? before : next));
    };
    look();
    const sizes = new ResizeObserver(look);
    sizes.observe(one);
    sizes.observe(contents);
    one.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      one.removeEventListener("scroll", look);
    };
  }, [element]);
  const further = useCallback(() => {
    const one = element.current;
    one?.scrollBy({ top: Math.max(one.clientHeight * 0.9, 40) });
  }, [element]);
  return { isAll, left, further };
}
