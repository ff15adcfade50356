"""Faults of what places pods: webhook, extender, scheduler, API server, certificates, clocks."""

from tests.integration.faults.catalogue.fault import Fault

TESTS = "tests/integration"
FAULTS = "tests/integration/faults"
JOURNEY = "tests/integration/journey"
REAL = "tests/cluster"
REAL_FAULTS = "tests/cluster/faults"

# Names that no line would hold beside their files.
LIMITS_HOLD = "test_while_the_api_server_is_down_limits_hold_and_nobody_ends"
CUT_OFF = "test_a_node_that_is_cut_off_and_comes_back_promises_nothing_twice"
EXPIRED = "test_what_a_reservation_holds_is_free_when_its_time_is_over"
FLEETING = "test_a_pod_that_is_deleted_between_filter_and_bind_frees_its_place"
FORCED = "test_memory_of_a_force_deleted_pod_counts_while_a_process_of_it_lives"
STOLEN = "test_a_pod_of_high_priority_gets_the_card_of_a_low_one_and_nobody_steals_it"
CHAOS = "test_whatever_becomes_of_leaders_nothing_is_promised_twice_or_lost"

CONTROL = (
    Fault(
        "F13",
        "the extender is killed after filter, while its Binding is on its way, and when the pod is bound and no answer "
        "has come; the pod stays, or goes, too. Nothing is written after the Binding but for Volcano's pods",
        "what was begun is completed by the next process, or nothing is left of it",
        (
            f"{FAULTS}/test_extender_killed.py::test_killed_at_a_step_it_leaves_no_ghost",
            f"{TESTS}/test_extender.py::test_killed_at_any_step_it_loses_nothing",
            f"{TESTS}/test_volcano.py::test_a_restart_between_allocating_and_binding_loses_nothing",
            f"{JOURNEY}/test_kills.py::test_a_service_killed_at_a_step_loses_nothing",
        ),
    ),
    Fault(
        "F14",
        "the extender starts cold among 1,000 pods",
        "it is not ready and answers nothing before it has read them; then it answers as the one before it",
        (
            f"{FAULTS}/test_extender_killed.py::test_a_cold_start_among_a_thousand_pods",
            f"{TESTS}/test_extender.py::test_before_it_knows_the_cluster_it_answers_errors",
        ),
    ),
    Fault(
        "F15",
        "the replica that leads is stopped, cut off, or hears nothing any more, and goes on when another leads",
        "it binds nothing then",
        (
            f"{TESTS}/test_replicas.py::test_a_stopped_leader_binds_nothing_when_it_goes_on",
            f"{TESTS}/test_replicas.py::test_a_leader_that_hears_nothing_any_more_stops_binding",
            f"{TESTS}/test_replica_chaos.py::{CHAOS}",
        ),
    ),
    Fault(
        "F16",
        "calls of filter and bind take longer than kube-scheduler waits, get status 500, or half an answer",
        "the pod waits and is told why, it is bound once, and nothing stays reserved",
        (
            f"{REAL_FAULTS}/test_extender_calls.py::test_a_pod_waits_while_filter_fails",
            f"{REAL_FAULTS}/test_extender_calls.py::test_a_pod_is_bound_once_though_bind_fails",
            f"{REAL_FAULTS}/test_extender_calls.py::{EXPIRED}",
            f"{TESTS}/test_cluster_scheduler.py::test_failures_are_told_and_tried_again",
        ),
    ),
    Fault(
        "F17",
        "kube-scheduler dies while it binds, somebody else binds the pod, the pod goes between filter and bind",
        "the pod is bound once, or its place is free",
        (
            f"{REAL_FAULTS}/test_binding.py::test_a_scheduler_that_dies_while_it_binds_loses_nothing",
            f"{REAL_FAULTS}/test_binding.py::test_a_pod_that_somebody_else_has_bound_frees_its_place",
            f"{REAL_FAULTS}/test_binding.py::{FLEETING}",
            f"{TESTS}/test_extender.py::test_a_pod_bound_by_somebody_else_is_not_claimed",
            f"{TESTS}/test_extender.py::test_a_pod_made_anew_under_its_name_is_another",
        ),
    ),
    Fault(
        "F18",
        "a pod of high priority needs the card that two of low priority share",
        "these two go, nobody else does, and the pod is bound when both are gone",
        (
            f"{REAL_FAULTS}/test_preemption.py::test_victims_are_those_of_one_card",
            f"{REAL_FAULTS}/test_preemption.py::test_a_pod_that_lacks_nothing_but_memory_of_a_card_gets_it",
            f"{TESTS}/test_displacement.py::test_the_right_pod_goes_and_nobody_steals_its_place",
            f"{TESTS}/test_displacement.py::test_a_leader_killed_in_between_evicts_nobody_in_vain",
            f"{TESTS}/test_preemption.py::{STOLEN}",
            f"{TESTS}/test_preemption.py::test_a_hold_survives_an_extender_that_is_killed",
        ),
    ),
    Fault(
        "F19",
        "no webhook answers",
        "pods with slices are refused in words; all others come and go, in `kube-system` and our own namespace, too, "
        "and the webhook's own pods can start",
        (
            f"{REAL_FAULTS}/test_webhook_down.py::test_pods_without_slices_come_and_go",
            f"{REAL_FAULTS}/test_webhook_down.py::test_all_of_aliquots_own_pods_can_start",
            f"{REAL_FAULTS}/test_webhook_down.py::test_pods_with_slices_are_refused_until_it_is_back",
            f"{REAL}/policies/test_policies_webhook.py::test_while_the_webhook_is_away_only_slices_wait",
        ),
    ),
    Fault(
        "F20",
        "certificates of webhook and extender, and the CA itself, change under load",
        "no call fails, and nothing is restarted",
        (
            f"{TESTS}/test_certs_rotation.py::test_rotation_under_load_fails_nobody",
            f"{TESTS}/test_webhook.py::test_a_renewed_certificate_is_used_without_a_restart",
            f"{REAL}/test_callers.py::test_kube_scheduler_reads_its_certificate_anew",
        ),
    ),
    Fault(
        "F21",
        "the API server is down for longer than Leases last",
        "limits hold, no process of ours ends, nothing that was published is taken back, and all catch up",
        (
            f"{FAULTS}/test_api_away.py::{LIMITS_HOLD}",
            f"{REAL_FAULTS}/test_api_down.py::test_limits_hold_and_nobody_starts_again",
            f"{TESTS}/test_replicas.py::test_while_the_api_server_is_away_a_leader_keeps_its_office",
            f"{TESTS}/test_extender.py::test_while_the_api_server_is_away_bind_fails_and_the_place_is_kept",
            f"{TESTS}/plugin/test_plugin_recovery.py::test_restarts_work_while_the_api_server_is_away",
            f"{TESTS}/plugin/test_plugin_recovery.py::test_nothing_is_given_back_on_silence",
        ),
    ),
    Fault(
        "F22",
        "watches break, within a line, too, expire, lose bookmarks, and bring events twice and out of order",
        "every copy comes to be what a list says, and so does the ledger",
        (
            f"{FAULTS}/test_watches.py::test_a_copy_and_a_ledger_are_true_in_the_end",
            f"{FAULTS}/test_watches.py::test_an_agent_lets_everybody_in_and_out",
            "tests/unit/kube/test_reflector.py::test_events_out_of_order_mean_a_new_list",
        ),
    ),
    Fault(
        "F23",
        "etcd is restored from an older backup: some pods are back, some wait again, some are no more",
        "the auditor finds containers that nobody knows of; a pod of the backup has its card when these have ended; "
        "an extender begins anew within its process",
        (
            f"{REAL_FAULTS}/test_backup.py::test_an_extender_believes_the_backup",
            f"{FAULTS}/test_backup.py::test_replicas_believe_the_backup",
            f"{FAULTS}/test_backup.py::test_a_node_lets_nobody_in_before_who_is_there",
            f"{TESTS}/plugin/test_plugin_gate.py::{FORCED}",
        ),
    ),
    Fault(
        "F24",
        "the wall clock of a replica or an agent jumps by an hour, there and back",
        "the same replica leads, new certificates are trusted, limits hold",
        (
            f"{FAULTS}/test_clocks.py::test_a_leader_stays_whatever_the_clocks_say",
            f"{FAULTS}/test_clocks.py::test_an_agent_goes_on_whatever_its_clock_says",
        ),
    ),
    Fault(
        "F36",
        "50 pods at once, through two replicas, ask for more than their quota",
        "it is filled, and never exceeded",
        (
            f"{FAULTS}/test_quota_race.py::test_a_quota_is_filled_and_never_exceeded",
            f"{TESTS}/test_quotas.py::test_no_race_and_no_kill_exceeds_a_limit",
        ),
    ),
    Fault(
        "F37",
        "the placement of a bound pod is edited or taken off, and its labels removed",
        "it is refused by a policy, put back by the webhook, or not heeded by node and ledger",
        (
            f"{REAL}/policies/test_policies.py::test_it_is_refused_in_words",
            f"{REAL}/policies/test_policies_webhook.py::test_what_the_scheduler_has_written_is_put_back",
            f"{TESTS}/test_webhook.py::test_a_placement_cannot_be_edited_once_it_is_written",
            f"{FAULTS}/test_edits.py::test_an_edited_placement_moves_and_frees_nothing",
        ),
    ),
    Fault(
        "F42",
        "eight scrapers without a pause among 10,000 pods",
        "the 99th percentile of filter stays below 0.5 s on a busy machine, and memory does not grow",
        (f"{FAULTS}/test_scrape_storm.py::test_filter_keeps_its_time_in_a_storm_of_scrapes",),
    ),
    Fault(
        "F43",
        "agent and kubelet are cut off from the API server; their pod is given up, and its card goes to another",
        "the other starts when the first has ended on the node; nothing else is touched",
        (f"{FAULTS}/test_api_away.py::{CUT_OFF}",),
    ),
    Fault(
        "F47",
        "the extender beside the kube-scheduler that leads is killed or hangs, or its container, again and again",
        "kube-scheduler gives its Lease up or asks an extender that answers; a pod that comes then has its node soon",
        (f"{REAL_FAULTS}/test_extender_gone.py::test_pods_are_placed_soon_whatever_befalls_the_extender",),
    ),
)
