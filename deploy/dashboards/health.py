"""Whether Aliquot itself is well: who answers, how fast, what is refused, and what alerts fire."""

from typing import Final

from deploy.dashboards.panels import (
    ALL_BETTER,
    JUST_ONE,
    NONE_BETTER,
    THIRD,
    WINDOW,
    Column,
    Made,
    Query,
    Unit,
    graph,
    number,
    rows,
)

TITLE: Final = "Health of the services"
OURS: Final = 'endpoint!="kube-scheduler"'
"""That one answers beside the extender, behind the same Service."""
JOBS: Final = f'job=~"(.*/)?aliquot-(agent|webhook|scheduler)", {OURS}'


def panels() -> list[Made]:
    """The row's panels in order."""
    return [*_figures(), *_services(), *_speed(), *_calls(), _alerts()]


def _figures() -> list[Made]:
    return [
        number(
            title,
            f"{title}, of those that Prometheus knows.",
            Unit.RATIO,
            f'avg(up{{job=~"(.*/)?{job}", {OURS}}})',
            ALL_BETTER,
        )
        for title, job in (
            ("Agents that answer", "aliquot-agent"),
            ("Webhooks that answer", "aliquot-webhook"),
            ("Extenders that answer", "aliquot-scheduler"),
        )
    ] + [
        number(
            "Leaders",
            "Extenders that answer calls themselves: one, always.",
            Unit.NUMBER,
            "sum(aliquot_scheduler_leader)",
            JUST_ONE,
        ),
        number(
            "Changes of leader",
            "How often another replica has come to lead.",
            Unit.NUMBER,
            "max(aliquot_scheduler_leader_transitions)",
        ),
        number(
            "Pods evicted",
            "To give back what they had borrowed, within a day.",
            Unit.NUMBER,
            "sum(increase(aliquot_scheduler_evictions_total[1d])) or vector(0)",
        ),
        number(
            "Binds in doubt",
            "Pods of which it is not known whether they were bound.",
            Unit.NUMBER,
            'max(aliquot_scheduler_placements{stage="uncertain"})',
            NONE_BETTER,
        ),
        number(
            "First certificate to end",
            "How long the certificate lasts that ends first.",
            Unit.SECONDS,
            "min(aliquot_certificate_expires_timestamp_seconds) - time()",
        ),
    ]


def _services() -> list[Made]:
    return [
        graph(
            "Services that do not answer",
            "Targets that Prometheus cannot scrape. A node whose agent is away keeps its pods running "
            "and starts no new ones.",
            Unit.NUMBER,
            Query(
                f"count by (job) (up{{{JOBS}}} == 0) or 0 * count by (job) (up{{{JOBS}}})",
                "{{job}}",
            ),
        ),
        graph(
            "Certificates",
            "How long each lasts. Services read a renewed one by themselves.",
            Unit.SECONDS,
            Query(
                "min by (job, certificate) (aliquot_certificate_expires_timestamp_seconds) - time()",
                "{{job}} {{certificate}}",
            ),
        ),
    ]


def _speed() -> list[Made]:
    def p99(metric: str) -> str:
        return (
            f'histogram_quantile(0.99, sum by (le) (rate({metric}_bucket{{outcome!="forwarded"}}[{WINDOW}])))'
        )

    return [
        graph(
            "Answers, 99th percentile",
            "How long kube-scheduler waits for filter and for bind, and whoever creates a pod for the "
            "webhook. No line: no calls.",
            Unit.SECONDS,
            Query(p99("aliquot_filter_seconds"), "filter"),
            Query(p99("aliquot_bind_seconds"), "bind"),
            Query(p99("aliquot_webhook_request_seconds"), "webhook"),
            none="no calls",
        ),
        graph(
            "Kubelets' calls, 99th percentile",
            "How long kubelets wait for the agents, all nodes together. PreStartContainer may wait for a "
            "placement.",
            Unit.SECONDS,
            Query(
                "histogram_quantile(0.99, sum by (call, le) "
                "(call_outcome_le:aliquot_plugin_call_seconds_bucket:rate5m))",
                "{{call}}",
            ),
            none="no calls",
        ),
    ]


def _calls() -> list[Made]:
    return [
        graph(
            "Webhook calls, by what came of them",
            "A second. Refused: the pod's author was told what is wrong with it; bad: the call made no "
            "sense.",
            Unit.PER_SECOND,
            Query(f"sum by (outcome) (rate(aliquot_webhook_requests_total[{WINDOW}]))", "{{outcome}}"),
            span=THIRD,
        ),
        graph(
            "Kubelets' calls, by what came of them",
            "A second. Refused: the container may not start yet, and its pod's events say why; the "
            "kubelet tries again.",
            Unit.PER_SECOND,
            Query(
                "sum by (call, outcome) "
                '(call_outcome_le:aliquot_plugin_call_seconds_bucket:rate5m{le="+Inf"})',
                "{{call}} {{outcome}}",
            ),
            span=THIRD,
            none="no calls",
        ),
        graph(
            "Pods moved for others",
            "A second: evicted to reclaim what was borrowed, for a higher priority or because their group is "
            "incomplete, refused by a disruption budget, and resizes answered.",
            Unit.PER_SECOND,
            Query(
                f"sum by (outcome) (rate(aliquot_scheduler_evictions_total[{WINDOW}]))",
                "reclaim {{outcome}}",
            ),
            Query(
                f"sum by (outcome) (rate(aliquot_scheduler_preemptions_total[{WINDOW}]))",
                "preemption {{outcome}}",
            ),
            Query(
                f"sum by (outcome) (rate(aliquot_scheduler_group_evictions_total[{WINDOW}]))",
                "incomplete group {{outcome}}",
            ),
            Query(
                f"sum by (outcome) (rate(aliquot_scheduler_resizes_total[{WINDOW}]))", "resize {{outcome}}"
            ),
            span=THIRD,
            none="none",
        ),
    ]


def _alerts() -> Made:
    ours = '{alertname=~"Aliquot.*", alertstate="firing"}'
    return rows(
        "Alerts that fire",
        "What to do about each is in its description, and in docs/alerts.md.",
        {"alertname": "Alert", "severity": "Severity"},
        [
            Column("How many", f"count by (alertname, severity) (ALERTS{ours})", Unit.NUMBER),
            Column(
                "Nodes",
                f"count by (alertname, severity) (count by (alertname, severity, node) (ALERTS{ours}))",
                Unit.NUMBER,
            ),
        ],
        none="none",
    )
