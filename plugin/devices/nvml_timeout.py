"""Asks a driver that may hang: waits so long for an answer and no longer.

Each subject has a thread of its own, so a call that hangs holds up those about the same card alone. While it
hangs nothing more is asked about the subject, and no thread is added. The threads keep no process from ending.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A question hangs."""


class NvmlTimeout:
    """Asks about subjects: one question about each at a time. Safe to use from several threads."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: how long an answer is waited for."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._desks: dict[str, _Desk] = defaultdict(_Desk)

    def ask(self, subject: str, question: Callable[[], T]) -> T:
        """The question's answer. Raises NoAnswerError where there is none in time, and what the question raises."""
        with self._lock:
            desk = self._desks[subject]
        if desk.hanging is not None and not desk.hanging.done():
            raise NoAnswerError(self._complaint)
        answer: Future[T] = Future()
        desk.questions.put((question, answer))
        try:
            return answer.result(self._seconds)
        except TimeoutError:
            desk.hanging = answer
            raise NoAnswerError(self._complaint) from None

    @property
    def _complaint(self) -> str:
        return f"the driver gives no answer within {self._seconds:g} s"


class _Desk:
    """Where the questions about one subject are answered, in order."""

    def __init__(self) -> None:
        self.questions: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self.hanging: Future[Any] | None = None
        threading.Thread(target=self._serve, name="nvml", daemon=True).start()

    def _serve(self) -> None:
        while True:
            question, answer = self.questions.get()
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 - whoever asked gets it
                answer.set_exception(error)
