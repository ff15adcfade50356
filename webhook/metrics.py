"""What the webhook tells Prometheus: its calls and how they ended."""

from prometheus_client import CollectorRegistry

from aliquot.metrics import Metrics


class WebhookMetrics:
    """Counters and timers of one webhook."""

    def __init__(self, registry: CollectorRegistry) -> None:
        made = Metrics(registry, "webhook")
        self.registry = registry
        self.requests = made.counter(
            "requests", "Calls by outcome: unchanged, changed, refused or bad.", ["outcome"]
        )
        self.time = made.timer("request", "Time to answer a call, by outcome.")
