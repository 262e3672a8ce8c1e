"""The agent's processes are made here, while there is little in memory to copy.

    watchdog            harness.agent.watchdog: ends what is left of the others, whatever happens
    +- recorder         harness.agent.service: serves plans
    |  +- zygote        harness.agent.zygote: forks supervisors, as children of the recorder
    +- relay            harness.agent.relay: only when far away, with the argument ``relayed``

Two processes at least, so that nothing outlives the harness (design law 8).  Watchdog and recorder
are both child-subreapers.  When the recorder is killed, its descendants fall to the watchdog, which
kills and reaps them; when the watchdog is killed, the recorder gets SIGTERM (its parent-death
signal) and cleans up; when the harness goes away, stdin hangs up, which the watchdog sees even
while the recorder is busy.

Hence what is imported where: nothing here, and in what this imports, that a supervisor has no use
for; each process imports the rest for itself, once it is one.  Hence also ``_signal`` and
``_socket``: the modules round these two are large, for what is used of them.
"""

from __future__ import annotations

import _signal
import os
import sys

from harness.agent import kernel
from harness.agent.scripted import ENDING
from harness.agent.zygote import start_zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

#: The argument of an agent whose answers go a long way: ``harness.agent.relay`` says why.
RELAYED = "relayed"
#: Two that nobody can set, and two that Python ignores for us: a write tells what they would.
_LEFT_AS_THEY_ARE = {_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGPIPE, _signal.SIGXFSZ}


def main() -> NoReturn:
    """Serve until stdin ends.  Exit status 0, 70 when the recorder died, or UNFIT."""
    # Until there is somebody to hear them: what comes in between would end us with all left behind.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, ENDING)
    kernel.set_child_subreaper()
    # The caller's would be a hidden part of every scenario: nohup(1) ignores SIGHUP, and a shell
    # without job control SIGINT and SIGQUIT in what it starts in the background.
    os.umask(0o022)
    for number in _signal.valid_signals() - _LEFT_AS_THEY_ARE:
        _signal.signal(number, _signal.SIG_DFL)
    watchdog_pid = os.getpid()
    answers = os.pipe() if RELAYED in sys.argv[1:] else None
    told_r, told_w = os.pipe()
    recorder = os.fork()
    if recorder == 0:
        try:
            if answers is not None:
                os.dup2(answers[1], 1)
            kernel.close_all_but({0, 1, 2, told_r})
            kernel.set_child_subreaper()
            zygote = start_zygote()
            from harness.agent.service import become_recorder

            become_recorder(watchdog_pid, told_r, zygote)
        finally:
            os._exit(70)
    os.close(told_r)
    if answers is not None:
        os.close(answers[1])
    from harness.agent.watchdog import watch

    watch(recorder, -1 if answers is None else answers[0], told_w)
