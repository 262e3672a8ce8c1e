"""What tests need, and what becomes of one that lacks it."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

#: Set where everything must work (in our own CI): what is missing then fails instead of skipping.
MUST_WORK = os.environ.get("HARNESS_MUST_WORK") == "1"


def missing(reason: str) -> NoReturn:
    """Skip a test for want of something; fail it where everything must work."""
    if MUST_WORK:
        pytest.fail(reason)
    pytest.skip(reason)
