"""Code in an answer is not spoken. Needs no library."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from speech import without_code  # noqa: E402

ANSWERS = {
    "no code at all, `name` stays": "no code at all, `name` stays",
    "Run this:\n```python3\nprint(1)\n```\nThen look.": "Run this:\nThen look.",
    "~~~\na\n```\nb\n~~~\nafter": "after",
    "````\n```\nb\n````\nafter": "after",
    "never closed\n  ```sh\nrm x": "never closed\n",
    "a ``` in a line\n``two``\n~ about 3\n    ```": "a ``` in a line\n``two``\n~ about 3\n    ```",
    "```": "",
    "": "",
}


class TestSpeech(unittest.IsolatedAsyncioTestCase):
    async def test_blocks_of_code_are_left_out_however_the_text_is_cut(self):
        for text, wanted in ANSWERS.items():
            for size in (1, 2, 3, 7, 1_000):
                async def pieces(text=text, size=size):
                    for at in range(0, len(text), size):
                        yield text[at:at + size]

                said = "".join([piece async for piece in without_code(pieces())])
                self.assertEqual(said, wanted, size)

    async def test_words_do_not_wait_for_the_end_of_their_line(self):
        async def pieces():
            yield "Hel"
            said.append("the second is asked for")
            yield "lo"

        said = []
        async for piece in without_code(pieces()):
            said.append(piece)
        self.assertEqual(said, ["Hel", "the second is asked for", "lo"])


if __name__ == "__main__":
    unittest.main()
