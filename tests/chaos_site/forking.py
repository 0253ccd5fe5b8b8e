"""A process that has imported everything and forks commands: each is a process of its own that is there at once.

Started as a program, it reads a line of JSON per command, `{"words": ..., "cwd": ..., "env": ..., "said": ...}`, and
answers with the number of the process that runs it; then with its exit code, as `subprocess` counts them, once it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback

import roadworthy.api
import roadworthy.cli
import roadworthy.stored_evidence


def work(order: dict) -> None:
    """Run a command in this process, which was just forked, and end."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 0)
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        import sitecustomize

        sitecustomize.prepare()
        sys.argv = ["roadworthy", *order["words"]]
        roadworthy.cli.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork one command after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert threading.active_count() == 1, "nothing can be forked safely beside other threads"
    for line in sys.stdin:
        child = os.fork()
        if not child:
            work(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
