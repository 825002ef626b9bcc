/** A name for this browser that its owner will know again, as in "Firefox on Linux". */
export function suggestedName(): string {
  const agent = navigator.userAgent;
  const browser =
    [
      ["Edg/", "Edge"],
      ["OPR/", "Opera"],
      ["Firefox/", "Firefox"],
      ["Chrome/", "Chrome"],
      ["Safari/", "Safari"],
    ].find(([mark]) => agent.includes(mark ?? ""))?.[1] ?? "Browser";
  const system = [
    ["iPhone", "iPhone"],
    ["iPad", "iPad"],
    ["Android", "Android"],
    ["CrOS", "ChromeOS"],
    ["Windows", "Windows"],
    ["Mac OS", "Mac"],
    ["Linux", "Linux"],
  ].find(([mark]) => agent.includes(mark ?? ""))?.[1];
  return system ? `${browser} on ${system}` : browser;
}
