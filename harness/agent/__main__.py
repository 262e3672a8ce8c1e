"""``python -m harness.agent``: see :mod:`harness.agent.service`."""

from harness.agent.service import main

if __name__ == "__main__":
    main()
