"""The process of a node hook that is a Python callable: stands between what a hook program sees and an entry point.

The callable gets the moment and the document as a dict, and returns what the node is to add, or None. What it prints goes
to standard error, so that it cannot spoil the answer. An exception is a refusal: its text is the message.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback


def main(target: str, moment: str) -> int:
    """Call `module:attribute`; 0, or 1 when it raised."""
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    document = json.loads(sys.stdin.buffer.read())
    module, _, attributes = target.partition(":")
    try:
        found = importlib.import_module(module)
        for name in attributes.split("."):
            found = getattr(found, name)
        answer = found(moment, document)  # type: ignore[operator]
        text = json.dumps({} if answer is None else answer).encode()
    except Exception as error:
        traceback.print_exc()
        # The last line is what a person sees of it, and has the text alone.
        print(str(error).strip() or type(error).__name__, file=sys.stderr)
        return 1
    with open(answer_fd, "wb") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    sys.exit(main(sys.argv[2], sys.argv[3]))
