"""What is spoken of an answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator

# A line that begins or ends a block of code in Markdown.
FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")


async def without_code(text: AsyncIterable[str]) -> AsyncIterator[str]:
    """The text, which comes in pieces, without its blocks of code. The beginning of a line waits until it is clear that it is no fence."""
    # `spoken`: what becomes of the current line. None: that is not clear yet.
    line, fence, spoken = "", "", None
    async for piece in text:
        for part in piece.splitlines(keepends=True):
            line += part
            is_whole = line.endswith("\n")
            if spoken is None and (is_whole or not (fence or may_be_fence(line))):
                found = FENCE.match(line)
                spoken = not fence and not found
                if found and not fence:
                    fence = found[1]
                elif found and is_closing(line, fence):
                    fence = ""
            if spoken:
                yield line
            if spoken or is_whole:
                line = ""
            if is_whole:
                spoken = None
    if line and spoken is None and not fence and not FENCE.match(line):
        yield line


def is_closing(line: str, fence: str) -> bool:
    marks = line.strip()
    return marks.startswith(fence) and marks == fence[0] * len(marks)


def may_be_fence(line: str) -> bool:
    """Whether more of the line could make it a fence, or a longer one."""
    marks = line.lstrip(" ")
    return len(line) - len(marks) <= 3 and marks[:1] in ("", "`", "~") and marks == marks[:1] * len(marks)
