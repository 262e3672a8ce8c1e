"""The pid namespace is the caller's."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--unshare-pid")
    launch.exchange(
        "--unshare-all",
        ["--unshare-user-try"],
        ["--unshare-ipc"],
        ["--unshare-net"],
        ["--unshare-uts"],
        ["--unshare-cgroup-try"],
    )


if __name__ == "__main__":
    main(defect)
