"""What the webhook tells Prometheus: its calls and how they ended."""

from typing import Final

from prometheus_client import CollectorRegistry

from aliquot.server.metrics import Metrics

WORDS: Final = ("unchanged", "changed", "refused", "bad")
"""How a call can end."""


class WebhookMetrics:
    """Counters and timers of one webhook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        made = Metrics(registry, "webhook")
        self.registry = registry
        self.requests = made.outcomes("requests", "Calls", WORDS)
        self.time = made.timer("request", "Time to answer a call", WORDS)
