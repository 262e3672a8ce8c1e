"""The fixed parts of a script, round the scenario itself.  Templates for str.format."""

from __future__ import annotations

START = '''\
BWRAP = sys.argv[1] if len(sys.argv) > 1 else {bwrap}
libc = ctypes.CDLL(None, use_errno=True)


class Inconclusive(Exception):
    """What this is about could not be tried, so nothing can be said about it."""
'''

PREPARE = '''\
def prepare():
    """Become who is needed, and see that this bwrap makes sandboxes here; or else say why not."""
    global BWRAP{version}
    if sys.platform != "linux" or sys.version_info < (3, 9):
        raise Inconclusive("this needs Linux, and Python 3.9 or later")
    if shutil.which(BWRAP) is None:
        raise Inconclusive(f"there is no program {{BWRAP}}: install bubblewrap, or name another")
    BWRAP = os.path.abspath(shutil.which(BWRAP))
{identity}    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans fall to us
    tried = [BWRAP, "--dev-bind", "/", "/", "--unshare-pid"{options}]
    tried += ["/bin/sh", "-c", "echo $$"]
    asked = subprocess.run([BWRAP, "--version"], capture_output=True, text=True, timeout=10)
    trial = subprocess.run(tried, capture_output=True, text=True, timeout=10)
    if trial.stdout != "2\\n":  # 1 is bwrap's init
        why = trial.stderr.strip() or "it is no bwrap"
        raise Inconclusive(f"{{BWRAP}} makes no sandbox for uid {{os.getuid()}} here: {{why}}")
    end_everything()  # of the trial
    print(f"{{BWRAP}}: {{asked.stdout.strip()}}, as uid {{os.getuid()}}", flush=True)
{extra}'''

TRY = '''\
def end_everything():
    """Kill and reap all that was started; a dying parent hands its children up to us."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # nobody is left
        time.sleep(0.001)
    print("some of what was started cannot be killed:", descendants(), file=sys.stderr)


def one_try():
    """Carry it out once, and leave nothing behind."""
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with tempfile.TemporaryDirectory(prefix="bwrap-repro-") as scratch:
        os.chdir(scratch)
        try:
            attempt(scratch)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, caught)
            end_everything()
            os.chdir("/")
{forget}    signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
'''

MAIN = """\
def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        print(__doc__.partition("\\n\\nUsage: ")[0], end="\\n\\n")
        prepare()
        one_try()
    except KeyboardInterrupt:
        return 130
    except Exception as fault:  # whatever it is: it must not be taken for a deviation
        print(f"It cannot be said: {fault}")
        return 2
    finally:
        end_everything()
    return 1 if False in answers else 2 if None in answers or not answers else 0


if __name__ == "__main__":
    sys.exit(main())
"""

MAIN_REPEATED = """\
def main():
    tries, failed, unknown = {tries}, 0, 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        print(__doc__.partition("\\n\\nUsage: ")[0], end="\\n\\n")
        tries = int(sys.argv[2]) if len(sys.argv) > 2 else tries
        prepare()
        for number in range(1, tries + 1):
            print(f"Try {{number}} of {{tries}}", flush=True)
            answers.clear()
            one_try()
            failed += False in answers
            unknown += False not in answers and (None in answers or not answers)
    except KeyboardInterrupt:
        return 130
    except Exception as fault:  # whatever it is: it must not be taken for a deviation
        print(f"It cannot be said: {{fault}}")
        unknown += 1
    finally:
        end_everything()
    print(f"It deviated in {{failed}} of {{tries}} tries.")
{hint}    if {failed}:
        return 1
    return 2 if unknown or tries < 1 else 0


if __name__ == "__main__":
    sys.exit(main())
"""
