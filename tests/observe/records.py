"""What is recorded, of a cluster that is small enough to add up by hand."""

from tests.observe.cases import SLICE, appears, card, grows, series, slice_, steady

GIB = 1 << 30
EMPTY, SHARED, STRANDED = "GPU-1", "GPU-2", "GPU-3"
PLACE = {"node": "n1", "model": "H200"}

_CARDS = {
    uuid: {
        card("info", uuid, model="H200", index=str(index)): 1,
        card("healthy", uuid): int(uuid != SHARED),
        card("memory_total_bytes", uuid): 16 * GIB,
        card("memory_used_bytes", uuid): used * GIB,
        card("memory_promised_bytes", uuid): memory * GIB,
        card("core_promised_ratio", uuid): core,
        card("core_promisable_ratio", uuid): 1,
    }
    for index, (uuid, used, memory, core) in enumerate(
        ((EMPTY, 0, 0, 0), (SHARED, 3, 6, 0.5), (STRANDED, 1, 4, 1))
    )
}
_SLICES = {
    series("aliquot_slice_memory_limit_bytes", {**SLICE, "card": SHARED, "pod": pod, "namespace": team}): size
    * GIB
    for pod, team, size in (("a", "x", 2), ("b", "x", 1), ("c", "y", 3))
}
_REPLICAS = {
    series(name, {"namespace": "x", "pod": pod, **more}): value
    for name, more, values in (
        ("aliquot_namespace_memory_promised_bytes", {}, (3 * GIB, 2 * GIB)),
        ("aliquot_scheduler_waiting_pods", {"reason": "memory"}, (4, 0)),
    )
    for pod, value in zip(("leader", "follower"), values, strict=True)
}
_COUNTERS = {
    slice_("core_guaranteed_seconds_total", pod="due"): grows(60),
    slice_("core_used_seconds_total", pod="due"): grows(30),
    slice_("core_guaranteed_seconds_total", pod="lent-to"): grows(30),
    slice_("core_used_seconds_total", pod="lent-to"): grows(60),
    slice_("allocations_denied_total", pod="due"): grows(60),
    slice_("allocations_denied_total", pod="lent-to"): steady(9),
    slice_("allocations_denied_total", pod="late"): appears(3, 6),
}
EXPECTED = {
    "node_model:aliquot_cards:count": (PLACE, 3),
    "node_model:aliquot_cards_healthy:sum": (PLACE, 2),
    "node_model:aliquot_slices:count": (PLACE, 3),
    "node_model:aliquot_card_memory_total_bytes:sum": (PLACE, 48 * GIB),
    "node_model:aliquot_card_memory_promised_bytes:sum": (PLACE, 10 * GIB),
    "node_model:aliquot_card_memory_used_bytes:sum": (PLACE, 4 * GIB),
    "node_model:aliquot_card_core_promised_ratio:sum": (PLACE, 1.5),
    "node_model:aliquot_card_memory_free_bytes:sum": (PLACE, 38 * GIB),
    "node_model:aliquot_card_memory_free_whole_bytes:sum": (PLACE, 16 * GIB),
    "node_model:aliquot_card_memory_stranded_bytes:sum": (PLACE, 12 * GIB),
    'namespace:aliquot_slice_memory_limit_bytes:sum{namespace="y"}': ({"namespace": "y"}, 3 * GIB),
    "namespace:aliquot_slice_core_kept_ratio:min": ({"namespace": "team"}, 0.5),
    'namespace_pod_container:aliquot_slice_allocations_denied:rate5m{pod="due"}': (
        {"namespace": "team", "pod": "due", "container": "main"},
        1,
    ),
    'namespace_pod_container:aliquot_slice_allocations_denied:rate5m{pod="late"}': (
        {"namespace": "team", "pod": "late", "container": "main"},
        0.02,
    ),
    "namespace:aliquot_namespace_memory_promised_bytes:max": ({"namespace": "x"}, 3 * GIB),
    "namespace_reason:aliquot_scheduler_waiting_pods:max": ({"namespace": "x", "reason": "memory"}, 4),
}
_GAUGES = {name: value for cards in _CARDS.values() for name, value in cards.items()} | _SLICES | _REPLICAS
_SERIES = {name: steady(value) for name, value in _GAUGES.items()} | _COUNTERS
RECORDS = [
    {
        "name": "three cards: an empty one, one that is shared, and one without compute time left",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in _SERIES.items()],
        "promql_expr_test": [
            {
                "expr": name,
                "eval_time": "5m",
                "exp_samples": [{"labels": series(name.partition("{")[0], labels), "value": value}],
            }
            for name, (labels, value) in EXPECTED.items()
        ],
    }
]
