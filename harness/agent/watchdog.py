"""The watchdog: whatever becomes of the harness and of the recorder, nothing is left behind."""

from __future__ import annotations

import marshal
import os
import select
import signal
import stat
import tempfile
from typing import NoReturn

from harness.agent import kernel
from harness.agent.clearing import SWEEP_DEADLINE_S, end_descendants, remove_tree
from harness.agent.journal import write_all
from harness.agent.relay import COMPLETE, start_relay
from harness.agent.scripted import ENDING

#: How long a recorder may go on after stdin hung up, to finish what it does in good order.
GRACE_S = 0.3
#: Exit status when there is no room to work in; the reason is on stderr.
UNFIT = 4


def watch(recorder: int, answers_fd: int, told_w: int) -> NoReturn:
    """Give the recorder a folder, and sweep it and everything else away when it has ended.

    What it writes to ``answers_fd`` is relayed to stdout, unless that is -1.  It is told where its
    folder is, and the pid of the relay, through ``told_w``.
    """
    try:
        base = tempfile.mkdtemp(prefix="harness-", dir=_temporary_folder())
        os.chmod(base, 0o755)
    except OSError as fault:
        write_all(2, f"no temporary folder can be made: {fault.strerror}\n".encode())
        os.close(told_w)  # told nothing, the recorder ends
        end_descendants(SWEEP_DEADLINE_S)
        os._exit(UNFIT)
    status = 70
    try:
        relay = 0
        if answers_fd >= 0:
            relay = start_relay(answers_fd, 1)
            os.close(answers_fd)  # its writers are to notice when it is gone
        os.write(told_w, marshal.dumps((base, relay)))
        os.close(told_w)
        status = 0 if _guard(recorder) == 0 else 70
        if relay:
            _await_relay(relay)
    finally:
        end_descendants(SWEEP_DEADLINE_S)
        remove_tree(base)
        os._exit(status)


def _temporary_folder() -> str | None:
    """Where sandboxes of another user can reach their scratch; None: where they are anyway.

    pam_tmpdir(8) gives root a TMPDIR that nobody else can enter.
    """
    given = tempfile.gettempdir()
    if os.geteuid() != 0 or _is_open_to_all(given):
        return None
    return next((path for path in ("/tmp", "/var/tmp") if _is_open_to_all(path)), None)


def _is_open_to_all(path: str) -> bool:
    """Whether every folder on the way to ``path``, and itself, may be entered by everybody."""
    path = os.path.realpath(path)
    while True:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return False
        if not mode & stat.S_IXOTH:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _guard(recorder: int) -> int:
    """Wait for the recorder, or for the harness to go away; the recorder is dead on return."""
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    for number in ENDING:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    pidfd = kernel.pidfd_open(recorder)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(0, 0)  # only hang-ups and errors: what is written there is the recorder's
    poll.register(wake_r, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    if pidfd not in ready:
        if wake_r in ready:  # we were told to end: so is the recorder, which cleans up
            os.kill(recorder, signal.SIGTERM)
        select.select([pidfd], [], [], GRACE_S)
        os.kill(recorder, signal.SIGKILL)
    _, status = os.waitpid(recorder, 0)
    return status


def _await_relay(relay: int) -> None:
    """Let the relay hand on what a dead recorder wrote last, before it is swept up with the rest.

    It does not end while an orphan holds its pipe, so it is told as well.
    """
    pidfd = kernel.pidfd_open(relay)
    os.kill(relay, COMPLETE)
    select.select([pidfd], [], [], GRACE_S)
    os.close(pidfd)
