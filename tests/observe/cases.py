"""When each alert fires and when it does not: series over minutes, and what promtool is to find at some of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GIB = 1 << 30
AGENT, WEBHOOK, EXTENDER = "aliquot-agent", "aliquot-webhook", "aliquot-scheduler"
CERTIFICATE = "aliquot_certificate_expires_timestamp_seconds"
SLICE = {"node": "n1", "card": "GPU-1", "namespace": "team", "pod": "train-0", "container": "main"}


@dataclass(frozen=True)
class Fires:
    """That an alert fires with these labels, beside its severity, and this value."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Case:
    """One story, in minutes.

    Attributes:
        alert: Which alert it is about.
        story: What happens, in a sentence.
        series: Series in Prometheus' notation, and their values minute by minute in promtool's.
        quiet: When it does not fire, also while it is pending.
        fires: When it fires, and how.
    """

    alert: str
    story: str
    series: Mapping[str, str]
    quiet: Sequence[int]
    fires: Mapping[int, Sequence[Fires]] = field(default_factory=dict)


def series(name: str, labels: Mapping[str, str]) -> str:
    """Prometheus' notation."""
    return name + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def card(name: str, uuid: str = "GPU-1", **more: str) -> str:
    """A metric of a card of node n1, as its agent's pod tells it."""
    return series(f"aliquot_card_{name}", {"node": "n1", "card": uuid, "pod": "aliquot-agent-x", **more})


def slice_(name: str, **more: str) -> str:
    """A metric of a slice."""
    return series(f"aliquot_slice_{name}", {**SLICE, **more})


def steady(value: float) -> str:
    """The same for two hours."""
    return f"{value:.15g}+0x120"


def changes(before: float, at: int, after: float) -> str:
    """One value, and another from some minute on."""
    return f"{before:.15g}+0x{at - 1} {after:.15g}+0x120"


def grows(by: float) -> str:
    """A counter that gains so much a minute."""
    return f"0+{by:.15g}x120"


def appears(at: int, value: float) -> str:
    """Nothing, and from some minute on one value."""
    return f"_x{at} {value:.15g}+0x120"


def up(job: str, pod: str, values: str) -> dict[str, str]:
    """Whether a target answers."""
    return {
        series(
            "up", {"job": job, "instance": f"{pod}:9443", "pod": pod, "namespace": "aliquot-system"}
        ): values
    }


def buckets(metric: str, fast: float, slow: float) -> dict[str, str]:
    """Calls a minute that take up to 10 ms, and up to 2.5 s."""
    labels = {"outcome": "placed"}
    return {
        series(f"{metric}_bucket", {**labels, "le": "0.01"}): grows(fast),
        series(f"{metric}_bucket", {**labels, "le": "2.5"}): grows(fast + slow),
        series(f"{metric}_bucket", {**labels, "le": "+Inf"}): grows(fast + slow),
    }


CARDS = [
    Case(
        "AliquotCardOverPromised",
        "a pool is made tighter under its pods at minute 10, and another card is just full",
        {
            card("memory_promised_bytes"): steady(20),
            card("memory_promisable_bytes"): changes(24, 10, 16),
            card("memory_promised_bytes", "GPU-2"): steady(16),
            card("memory_promisable_bytes", "GPU-2"): steady(16),
        },
        [9, 11],
        {13: [Fires({"node": "n1", "card": "GPU-1"}, 1.25)]},
    ),
    Case(
        "AliquotCardOverPromised",
        "more is guaranteed than there is, though the pool overcommits",
        {
            card("memory_promised_bytes"): steady(18),
            card("memory_promisable_bytes"): steady(24),
            card("memory_guaranteed_bytes"): changes(16, 10, 18),
            card("memory_total_bytes"): steady(16),
        },
        [9],
        {13: [Fires({"node": "n1", "card": "GPU-1"}, 1.125)]},
    ),
    Case(
        "AliquotCardOverPromised",
        "of compute time",
        {card("core_promised_ratio"): changes(1, 10, 1.5), card("core_promisable_ratio"): steady(1)},
        [9, 11],
        {13: [Fires({"node": "n1", "card": "GPU-1"}, 1.5)]},
    ),
    Case(
        "AliquotCardUnhealthy",
        "one card of two breaks at minute 10 and is well again at 20",
        {card("healthy"): "1+0x9 0+0x9 1+0x20", card("healthy", "GPU-2"): steady(1)},
        [9, 10, 21],
        {12: [Fires({"node": "n1", "card": "GPU-1"}, 0)]},
    ),
    Case(
        "AliquotForeignMemory",
        "a process without a slice has 2 GiB of a card with a slice; another card's slices have all that "
        "is in use",
        {
            card("memory_used_bytes"): steady(5 * GIB),
            slice_("memory_used_bytes"): changes(5 * GIB, 10, 2 * GIB),
            slice_("memory_overhead_bytes"): steady(GIB),
            card("memory_used_bytes", "GPU-2"): steady(3 * GIB),
            slice_("memory_used_bytes", card="GPU-2"): steady(2 * GIB),
            slice_("memory_overhead_bytes", card="GPU-2"): steady(GIB),
        },
        [9, 20],
        {28: [Fires({"node": "n1", "card": "GPU-1"}, 2 * GIB)]},
    ),
    Case(
        "AliquotForeignMemory",
        "a card without slices is in use, and one in MIG mode, whose instances tell of themselves",
        {
            card("memory_used_bytes"): steady(3 * GIB),
            card("memory_used_bytes", "GPU-2"): steady(3 * GIB),
            card("info", "GPU-2", mig="true"): steady(1),
        },
        [14],
        {18: [Fires({"node": "n1", "card": "GPU-1"}, 3 * GIB)]},
    ),
]

SERVICES = [
    Case(
        "AliquotAgentDown",
        "one agent of two gives no answer from minute 10",
        up(AGENT, "a", changes(1, 10, 0)) | up(AGENT, "b", steady(1)) | up("node-exporter", "c", steady(0)),
        [9, 13],
        {
            16: [
                Fires({"job": AGENT, "instance": "a:9443", "pod": "a", "namespace": "aliquot-system"}, 0),
            ]
        },
    ),
    Case(
        "AliquotAgentDown",
        "found by a PodMonitor",
        up(f"aliquot-system/{AGENT}", "a", steady(0)),
        [4],
        {
            6: [
                Fires(
                    {
                        "job": f"aliquot-system/{AGENT}",
                        "instance": "a:9443",
                        "pod": "a",
                        "namespace": "aliquot-system",
                    },
                    0,
                )
            ]
        },
    ),
    Case(
        "AliquotAgentMissing",
        "the extender, of two replicas, counts two cards of a node of which no agent tells from minute 10",
        {
            series("aliquot_scheduler_card_memory_usable_bytes", {"node": n, "card": c, "pod": p}): steady(16)
            for n in ("n1", "n2")
            for c in ("GPU-1", "GPU-2")
            for p in ("e0", "e1")
        }
        | {
            'aliquot_card_healthy{node="n1", card="GPU-1"}': "1+0x9 stale",
            'aliquot_card_healthy{node="n2", card="GPU-1"}': steady(1),
        },
        [9, 18],
        {21: [Fires({"node": "n1"}, 2)]},
    ),
    Case(
        "AliquotWebhookDown",
        "one replica of two goes at minute 5, and the other at minute 10",
        up(WEBHOOK, "a", changes(1, 5, 0)) | up(WEBHOOK, "b", changes(1, 10, 0)),
        [9, 11],
        {13: [Fires({}, 1)]},
    ),
    Case(
        "AliquotWebhookDown",
        "its targets vanish",
        up(WEBHOOK, "a", "1+0x9 stale"),
        [9],
        {13: [Fires({}, 1)]},
    ),
    Case(
        "AliquotExtenderDown",
        "one replica of two goes at minute 5, and the other at minute 10",
        up(EXTENDER, "a", changes(1, 5, 0)) | up(EXTENDER, "b", changes(1, 10, 0)),
        [9, 11],
        {13: [Fires({}, 1)]},
    ),
    Case(
        "AliquotExtenderDown",
        "kube-scheduler, which the same Service leads to, answers for itself alone",
        {
            series("up", {"job": EXTENDER, "endpoint": "extender", "pod": "a"}): changes(1, 10, 0),
            series("up", {"job": EXTENDER, "endpoint": "kube-scheduler", "pod": "a"}): steady(1),
        },
        [9, 11],
        {13: [Fires({}, 1)]},
    ),
    Case(
        "AliquotNoLeader",
        "the leader gives up at minute 10, and nobody else leads",
        {
            series("aliquot_scheduler_leader", {"pod": "a"}): changes(1, 10, 0),
            series("aliquot_scheduler_leader", {"pod": "b"}): steady(0),
        },
        [9, 11],
        {13: [Fires({}, 0)]},
    ),
    Case(
        "AliquotNoLeader",
        "where there is no extender at all, another alert says so",
        up(WEBHOOK, "a", steady(1)),
        [60],
    ),
    Case(
        "AliquotSeveralLeaders",
        "a second one leads from minute 10",
        {
            series("aliquot_scheduler_leader", {"pod": "a"}): steady(1),
            series("aliquot_scheduler_leader", {"pod": "b"}): changes(0, 10, 1),
        },
        [9, 11],
        {13: [Fires({}, 2)]},
    ),
    Case(
        "AliquotFilterFailing",
        "a quarter of the calls fails",
        {
            series("aliquot_filter_seconds_count", {"outcome": "placed"}): grows(6),
            series("aliquot_filter_seconds_count", {"outcome": "error"}): grows(1),
            series("aliquot_filter_seconds_count", {"outcome": "bad"}): grows(1),
        },
        [9],
        {15: [Fires({}, 0.25)]},
    ),
    Case(
        "AliquotFilterFailing",
        "one call in fifty fails",
        {
            series("aliquot_filter_seconds_count", {"outcome": "refused"}): grows(49),
            series("aliquot_filter_seconds_count", {"outcome": "error"}): grows(1),
        },
        [60],
    ),
    Case(
        "AliquotFilterSlow",
        "one call in ten takes up to 2.5 s",
        buckets("aliquot_filter_seconds", 9, 1),
        [9],
        {15: [Fires({}, 2.251)]},
    ),
    Case("AliquotFilterSlow", "one in a thousand does", buckets("aliquot_filter_seconds", 999, 1), [60]),
    Case(
        "AliquotWebhookSlow",
        "one call in ten takes up to 2.5 s",
        buckets("aliquot_webhook_request_seconds", 9, 1),
        [9],
        {15: [Fires({}, 2.251)]},
    ),
    Case(
        "AliquotWebhookSlow",
        "one in a thousand does",
        buckets("aliquot_webhook_request_seconds", 999, 1),
        [60],
    ),
    Case(
        "AliquotContainersRefused",
        "kubelets try again what one agent refuses; another has refused once, and a third answers well",
        {
            series("aliquot_plugin_call_seconds_count", labels): values
            for labels, values in (
                (
                    {"instance": "a:1", "node": "n1", "call": "PreStartContainer", "outcome": "refused"},
                    grows(1),
                ),
                (
                    {"instance": "b:1", "node": "n2", "call": "PreStartContainer", "outcome": "refused"},
                    "0 1+0x120",
                ),
                ({"instance": "c:1", "node": "n3", "call": "Allocate", "outcome": "ok"}, grows(5)),
            )
        },
        [3, 12],
        {
            40: [
                Fires(
                    {"instance": "a:1", "node": "n1", "call": "PreStartContainer", "outcome": "refused"}, 15
                ),
            ]
        },
    ),
    Case(
        "AliquotPlacementUncertain",
        "a bind without an answer at minute 10; what is reserved is as it should be",
        {
            series("aliquot_scheduler_placements", {"stage": "uncertain", "pod": "a"}): changes(0, 10, 2),
            series("aliquot_scheduler_placements", {"stage": "reserved", "pod": "a"}): steady(9),
        },
        [9, 15],
        {21: [Fires({}, 2)]},
    ),
    Case(
        "AliquotCertificateExpires",
        "one ends within a week from minute 10; another one lasts",
        {
            series(CERTIFICATE, {"job": WEBHOOK, "certificate": "tls.crt", "pod": "a"}): steady(
                7 * 86400 + 600
            ),
            series(CERTIFICATE, {"job": WEBHOOK, "certificate": "ca.crt", "pod": "a"}): steady(90 * 86400),
        },
        [9, 24],
        {27: [Fires({"job": WEBHOOK, "certificate": "tls.crt"}, 7 * 86400 - 17 * 60)]},
    ),
]

TENANTS = [
    Case(
        "AliquotAllocationsDenied",
        "a container is refused again and again, another one never",
        {
            slice_("allocations_denied_total"): grows(2),
            slice_("allocations_denied_total", pod="train-1"): steady(7),
        },
        [4],
        {40: [Fires({"namespace": "team", "pod": "train-0", "container": "main"}, 30)]},
    ),
    Case(
        "AliquotAllocationsDenied",
        "a container is refused before anybody has looked, and never again",
        {slice_("allocations_denied_total"): appears(20, 3)},
        [19, 24, 36],
        {26: [Fires({"namespace": "team", "pod": "train-0", "container": "main"}, 3)]},
    ),
    Case(
        "AliquotSliceBeyondLimit",
        "a slice has half as much again as its limit; another one is only observed",
        {
            slice_("memory_used_bytes"): changes(4, 10, 6),
            slice_("memory_limit_bytes"): steady(4),
            slice_("enforcement_level"): steady(2),
            slice_("memory_used_bytes", pod="train-1"): steady(6),
            slice_("memory_limit_bytes", pod="train-1"): steady(4),
            slice_("enforcement_level", pod="train-1"): steady(1),
        },
        [9, 13],
        {16: [Fires(SLICE, 1.5)]},
    ),
    Case(
        "AliquotTenantNotBelieved",
        "one of two is silent about what it used",
        {slice_("trusted"): changes(1, 10, 0), slice_("trusted", pod="train-1"): steady(1)},
        [9, 10],
        {12: [Fires(SLICE, 0)]},
    ),
    Case(
        "AliquotPromiseNotKept",
        "a slice gets half of what is due to it, its neighbour more, and a third has no work",
        {
            slice_("core_guaranteed_seconds_total"): grows(30),
            slice_("core_used_seconds_total"): grows(15),
            slice_("core_guaranteed_seconds_total", pod="train-1"): grows(20),
            slice_("core_used_seconds_total", pod="train-1"): grows(45),
            slice_("core_guaranteed_seconds_total", pod="train-2"): steady(1),
            slice_("core_used_seconds_total", pod="train-2"): steady(0),
        },
        [14],
        {30: [Fires(SLICE, 0.5)]},
    ),
    Case(
        "AliquotPodsWaitLong",
        "the leader knows of a pod that waits for half an hour at minute 30; the other replica knows of "
        "nobody",
        {
            series("aliquot_scheduler_waiting_longest_seconds", {"namespace": "team", "pod": "a"}): grows(60),
            series("aliquot_scheduler_waiting_longest_seconds", {"namespace": "other", "pod": "a"}): steady(
                900
            ),
        },
        [29, 33],
        {37: [Fires({"namespace": "team"}, 37 * 60)]},
    ),
    Case(
        "AliquotQuotaNearlyUsed",
        "of one quota's compute; another one bounds nothing that is used",
        {
            series("aliquot_quota_core_used_ratio", {"kind": "GPUQuota", "quota": "a", "pod": "e"}): changes(
                7, 10, 7.5
            ),
            series("aliquot_quota_core_limit_ratio", {"kind": "GPUQuota", "quota": "a", "pod": "e"}): steady(
                8
            ),
            series("aliquot_quota_memory_used_bytes", {"kind": "GPUQuota", "quota": "a", "pod": "e"}): steady(
                1
            ),
            series(
                "aliquot_quota_memory_limit_bytes", {"kind": "GPUQuota", "quota": "a", "pod": "e"}
            ): steady(8),
            series("aliquot_quota_cards_used", {"kind": "GPUQuota", "quota": "b", "pod": "e"}): steady(0),
            series("aliquot_quota_cards_limit", {"kind": "GPUQuota", "quota": "b", "pod": "e"}): steady(0),
        },
        [9, 20],
        {26: [Fires({"kind": "GPUQuota", "quota": "a", "amount": "compute"}, 0.9375)]},
    ),
]

CASES = [*CARDS, *SERVICES, *TENANTS]
