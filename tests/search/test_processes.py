"""Processes end with the one that started them."""

import os
import signal
import subprocess
import sys

import pytest

BEGINS = """
import os, time
from eval_kit.errors import reporting
from eval_kit.search.processes import pool
with reporting("kit"), pool(1) as executor:
    executor.submit(os.getpid).result()
    print("begun", flush=True)
    executor.submit(time.sleep, 600).result()
"""


@pytest.mark.parametrize(
    ("number", "group", "status", "said"),
    [
        (signal.SIGINT, True, 130, "kit: interrupted\n"),
        (signal.SIGTERM, False, 143, "kit: terminated\n"),
        (signal.SIGKILL, False, -signal.SIGKILL, ""),
    ],
)
def test_a_signal_ends_the_processes_at_once_with_one_line(number: int, group: bool, status: int, said: str):
    process = subprocess.Popen(
        [sys.executable, "-c", BEGINS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    (os.killpg if group else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=100)  # it ends when every process that has the other end has ended
    assert process.returncode == status
    assert err == said or status == -signal.SIGKILL  # where Python's resource tracker may warn
