"""A pseudo-terminal for commands."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time


def terminal(*arguments: str, typed: str = "", columns: int = 100) -> tuple[int, str]:
    """Runs `redbox` on a pseudo-terminal; returns the exit code and the output."""
    pid, screen = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.environ.pop("COLUMNS", None)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "redbox", *arguments])
    os.write(screen, typed.encode())
    shown, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([screen], [], [], 1)[0]:
            continue
        try:
            part = os.read(screen, 65536)
        except OSError:  # the end of the output, on Linux
            break
        if not part:
            break
        shown += part
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()
