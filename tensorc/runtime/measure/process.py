"""A measurer's side of a process: started when needed, asked one job at a time, killed if late."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.jobs import Answer, Begun, Died, Job, Ready, TimedOut
from tensorc.runtime.measure.pipe import ClosedError, LateError, Receiver, send

START_SECONDS = 120.0
_TAIL = 4000
_PROGRAM = (
    "import os, sys; sys.path[:] = {path!r}\n"
    "from tensorc.runtime.measure.server import main\nmain(0, os.dup(1))"
)
# Threads of libraries would stand beside the kernel's own, and must not be there at a fork.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Process:
    """A process that does jobs, for one thread at a time; `interrupt` is for any."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._receiver: Receiver | None = None
        self._errors: IO[bytes] | None = None
        self._read = 0
        self._closed = False

    def start(self) -> None:
        """Start the process if it does not run.

        Raises:
            MeasureError: it cannot be started.
        """
        if self._closed:
            raise MeasureError("the measurer is closed")
        if self._running is not None and self._running.poll() is None:
            return
        self.kill()
        if self._errors is not None:
            self._errors.close()
        program = _PROGRAM.format(path=sys.path)
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
            self._read = 0
            self._running = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.kill()
            raise MeasureError(f"no process can be started to measure in: {error}") from None
        assert self._running.stdout is not None
        self._receiver = Receiver(self._running.stdout.fileno())
        try:
            ready = self._receiver.receive(time.monotonic() + START_SECONDS)
        except (ClosedError, LateError) as error:
            reason = self.complaints() or type(error).__name__
            self.kill()
            raise MeasureError(f"a process to measure in does not start: {reason}") from None
        assert isinstance(ready, Ready)

    def ask(self, job: Job, seconds: float, waiting: float) -> Answer:
        """Have a job done.

        Args:
            job: what to do.
            seconds: the most it may take from when it says that it begins; then it is killed.
            waiting: the most that it may take to begin.

        Raises:
            MeasureError: the process cannot be started.
        """
        self.start()
        running, receiver = self._running, self._receiver
        assert running is not None
        assert running.stdin is not None
        assert receiver is not None
        limit = waiting + seconds
        self.complaints()
        try:
            send(running.stdin.fileno(), job)
            while True:
                answer = receiver.receive(time.monotonic() + limit)
                if not isinstance(answer, Begun):
                    return answer  # type: ignore[no-any-return]
                limit = seconds
        except ClosedError:
            code = running.wait()
            # A fork of it may live on.
            self.kill()
            # As `os.waitpid` gives it: the signal, or the exit status shifted.
            return Died(-code if code < 0 else code << 8)
        except LateError:
            self.kill()
            return TimedOut(limit)
        except BaseException:
            # As by the user's interrupt: the answer would be taken for that to the next job.
            self.kill()
            raise

    def complaints(self) -> str:
        """What the process, or a fork of it, wrote to its standard error since the last
        time or job."""
        if self._errors is None:
            return ""
        end = os.fstat(self._errors.fileno()).st_size
        begin, self._read = max(self._read, end - _TAIL), end
        return os.pread(self._errors.fileno(), end - begin, begin).decode(errors="replace").strip()

    def interrupt(self) -> None:
        """End the process and its forks at once, while another thread may be asking it."""
        running = self._running
        if running is not None:
            with contextlib.suppress(ProcessLookupError):
                # It leads a session, and so a group, of its own.
                os.killpg(running.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and its forks at once."""
        running = self._running
        if running is None:
            return
        self.interrupt()
        running.wait()
        self._running = None
        for stream in (running.stdin, running.stdout):
            assert stream is not None
            # What a dead process left unread in its pipe cannot be flushed.
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def close(self) -> None:
        """End the process for good."""
        self._closed = True
        self.kill()
        if self._errors is not None:
            self._errors.close()
