"""The network is the caller's."""

from __future__ import annotations

from shelf_wrapping import Launch, main


def defect(launch: Launch) -> None:
    launch.drop("--unshare-net")
    launch.exchange("--unshare-all", ["--unshare-all"], ["--share-net"])


if __name__ == "__main__":
    main(defect)
