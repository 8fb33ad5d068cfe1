"""What a person reads is as `messages.txt` shows it."""

import difflib

from tests.cli import messages


def test_each_message_is_as_the_file_of_all_shows_it() -> None:
    kept, new = messages.KEPT.read_text(), messages.written()
    lines = difflib.unified_diff(kept.splitlines(), new.splitlines(), "messages.txt", "now", lineterm="", n=2)
    assert kept == new, "\n".join(["read it, then `python -m tests.cli.messages`:", *lines])
