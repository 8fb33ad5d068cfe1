"""`xdplab`, `python -m xdplab`: the command line, and what the Tab key may put into it."""

import gc
import os


def main() -> None:
    """Answer the shell if it asks what can follow; else carry the command out."""
    gc.set_threshold(100_000, 10, 10)  # an import makes many objects that stay
    from xdplab import completion

    if request := os.environ.get(completion.ASKED):
        completion.answer(request)
        return
    from xdplab.cli import main as carry_out

    carry_out()


if __name__ == "__main__":
    main()
