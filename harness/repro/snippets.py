"""Support functions of a script that do things; each is emitted only when something names it.

The texts are Python 3.9 of the standard library.  They stand here as text, since they are never
run by the harness itself; the tests run them.  Other families: ``proc_snippets`` (what /proc says),
``check_snippets`` (how a rule is held against what was seen) and ``seeing`` (the one loop that
reads what comes).
"""

from __future__ import annotations

DESCRIBE_END = '''\
def describe_end(end):
    """What waitid(2) says, in words: a status and a signal are never the same number."""
    if end is None:
        return "it had not ended"
    if end.si_code == os.CLD_EXITED:
        return f"it exited {end.si_status}"
    return f"it was killed by {signal.Signals(end.si_status).name}"
'''

HOW_IT_ENDED = '''\
def how_it_ended(pid):
    """How a child of ours ended.  Its zombie stays: a number that is taken is never reused."""
    return describe_end(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
'''

HOW_ANY_ENDED = '''\
def how_any_ended(pid):
    """How somebody else's child ended: that it did, as long as it did not fall to us."""
    try:
        return how_it_ended(pid)
    except ChildProcessError:
        return "it ended" if state(pid) in "ZX" else "it had not ended"
'''

HOW_TOLD = '''\
def how_told(told, pid):
    """How bwrap ended.  Its parent has learnt it, and told it in its second line; when that parent
    is gone, bwrap is a child of ours."""
    words = text[told].splitlines()
    if len(words) > 1:
        return words[1]
    try:
        return how_it_ended(pid)
    except ChildProcessError:
        return "it had not ended"
'''

TAKE = '''\
taken = {}


def take(kind, channel, part):
    """Whether a line or object with this part came that was not waited for before: waits on one
    channel go forward, never back."""
    for number, each in enumerate(kind(channel)):
        if number >= taken.get((kind, channel), 0) and (not part or part in each):
            taken[kind, channel] = number + 1
            return True
    return False
'''

FORK = '''\
def fork(body, keep):
    """Run body() in a process of its own, which has none of our fds but those in keep."""
    pid = os.fork()
    if pid == 0:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            for fd in set(range(3, 256)) - set(keep):
                try:
                    os.close(fd)
                except OSError:
                    pass  # it was not open
            body()
        except Exception as fault:
            print(fault, file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    return pid
'''

HOLD_NUMBER = '''\
def hold_number(number):
    """Keep an fd number from being taken by anything else of ours."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null != number:
        os.dup2(null, number, inheritable=False)
        os.close(null)
'''

FILL = '''\
def fill(fd):
    """Write to a pipe until it takes nothing more: whole pages first, then bytes (pipe(7))."""
    os.set_blocking(fd, False)
    for size in (65536, 4096, 1):
        try:
            while True:
                os.write(fd, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(fd, True)
'''

WRITE = '''\
def write(fd, data, seconds):
    """Write all of it, while going on to read what comes: the reader may be slow."""
    os.set_blocking(fd, False)

    def is_written():
        nonlocal data
        try:
            while data:
                data = data[os.write(fd, data) :]
        except BlockingIOError:
            pass
        return not data

    need(is_written, seconds, "a reader took what was written")
'''

GREET = '''\
def greet(listener):
    """Say hello to everybody who connects."""
    while True:
        peer, _ = listener.accept()
        peer.sendall(b"hello\\n")
        peer.close()
'''

START_PROVIDER = '''\
def start_provider(name, command, pid):
    """Start slirp4netns for the network namespace of a process.

    That namespace is joined from the user namespace which owns it: with --dev bwrap puts its
    child into a second one, which has no power over the network.
    """
    netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    userns = fcntl.ioctl(netns, 0xB701)  # NS_GET_USERNS
    ready_r, ready_w = os.pipe()
    exit_r, exit_w = os.pipe()
    alive_r, alive_w = os.pipe()  # nobody writes to it: its end of file is the provider's
    process = subprocess.Popen(
        [*command, "--configure", "--mtu=65520", f"--ready-fd={ready_w}", f"--exit-fd={exit_r}"]
        + ["--netns-type=path", f"--userns-path=/proc/self/fd/{userns}"]
        + [f"/proc/self/fd/{netns}", "tap0"],
        pass_fds=[netns, userns, ready_w, exit_r, alive_w],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for fd in (netns, userns, ready_w, exit_r, alive_w):
        os.close(fd)
    watch_channel(name + " alive", alive_r)
    watch_channel(name + " ready", ready_r)
    need(lambda: text[name + " ready"].startswith("1"), 5, f"{name} is ready")
    return process, exit_w
'''

#: In the order in which they stand in a script.
ACTING = (
    TAKE,
    DESCRIBE_END, HOW_IT_ENDED, HOW_ANY_ENDED, HOW_TOLD, FORK, HOLD_NUMBER, FILL, WRITE, GREET,
    START_PROVIDER,
)  # fmt: skip
