"""Faults of the node: its agent, kubelet, files, cards."""

from tests.integration.faults.catalogue.fault import Fault

JOURNEY = "tests/integration/journey"
PLUGIN = "tests/integration/plugin"
FAULTS = "tests/integration/faults"
REAL = "tests/cluster"
REAL_FAULTS = "tests/cluster/faults"

# Names that no line would hold beside their files.
ENDED = "test_a_pod_that_has_ended_stays_ended_and_one_that_is_being_deleted_goes"
FIRST = "test_pods_that_start_before_the_agent_fail_and_never_run_without_a_limit"
AWAY = "test_a_pod_deleted_while_the_kubelet_is_away_leaves_its_card_when_it_is_back"
FORCED = "test_a_card_of_a_forcibly_deleted_pod_is_free_when_its_container_has_ended"
REBOOT = "test_nobody_runs_without_a_limit_and_others_get_what_those_of_before_had"
TWINS = "test_pods_that_differ_in_amounts_alone_are_told_apart_by_an_agent_that_stood_still"

NODE = (
    Fault(
        "F01",
        "the node agent is killed while pods run, at each step of another pod's journey",
        "pods run on; 10 s after its return the node offers all its slices; new pods wait for it",
        (
            f"{FAULTS}/test_deaths.py::test_new_pods_wait_for_an_agent_that_is_away",
            f"{JOURNEY}/test_kills.py::test_a_service_killed_at_a_step_loses_nothing",
            f"{JOURNEY}/test_kills.py::test_a_service_killed_at_random_moments_loses_nothing",
            f"{REAL}/test_faults.py::test_an_agent_dies_under_running_pods",
        ),
    ),
    Fault(
        "F02",
        "the node agent is killed between Allocate and the gate, and inside the gate",
        "the container starts with its own limits",
        (
            f"{PLUGIN}/test_plugin_kill.py::test_a_kill_between_allocate_and_the_gate_loses_no_answer",
            f"{PLUGIN}/test_plugin_kill.py::test_a_kill_inside_the_gate_costs_a_retry_and_nothing_else",
            f"{PLUGIN}/test_plugin_kill.py::test_a_kill_while_the_gate_waits_for_a_placement",
            f"{REAL}/test_faults.py::test_an_agent_dies_between_admission_and_start",
        ),
    ),
    Fault(
        "F03",
        "the kubelet is killed at each step of a pod's journey; the next one wipes the plugins' sockets",
        "30 s after its return the node offers all its slices; running pods keep device ids, memory and limits",
        (
            f"{FAULTS}/test_deaths.py::test_a_pod_on_its_way_arrives",
            f"{FAULTS}/test_deaths.py::{ENDED}",
            f"{JOURNEY}/test_journey.py::test_a_kubelet_restart_changes_nothing_for_running_pods",
            f"{PLUGIN}/test_plugin_registration.py::test_a_restarted_kubelet_is_told_again",
            f"{REAL}/test_faults.py::test_a_kubelet_restarts_under_running_pods",
        ),
    ),
    Fault(
        "F04",
        "kubelet and agent are killed together at each step of a pod's journey, and started in either order",
        "as F03",
        (
            f"{FAULTS}/test_deaths.py::test_a_pod_on_its_way_arrives",
            f"{FAULTS}/test_deaths.py::{ENDED}",
            f"{REAL_FAULTS}/test_restarts.py::test_a_kubelet_and_its_agent_die_together",
            f"{REAL_FAULTS}/test_deletions.py::{AWAY}",
        ),
    ),
    Fault(
        "F05",
        "a container crashes fifty times in a row",
        "each start finds the same card and limits; files, the agent's memory and its descriptors do not grow",
        (
            f"{FAULTS}/test_pods.py::test_fifty_crashes_leave_card_limit_and_files_as_they_were",
            f"{JOURNEY}/test_journey.py::test_a_restarted_container_keeps_its_slice",
        ),
    ),
    Fault(
        "F06",
        "the node reboots: containers and `/run` are gone, the kubelet is there before the agent, or after it",
        "pods fail or start with their own limits, never without; pods made anew run; nothing of before stays",
        (
            f"{FAULTS}/test_reboots.py::{FIRST}",
            f"{FAULTS}/test_reboots.py::test_pods_start_again_with_their_slices_where_the_agent_is_there",
            f"{FAULTS}/test_reboots.py::test_nothing_is_kept_of_pods_that_were_deleted_before_the_node_is_back",
            f"{REAL_FAULTS}/test_reboot.py::{REBOOT}",
        ),
    ),
    Fault(
        "F07",
        "a pod is deleted, by force or not, while the kubelet is down",
        "its card is free when the kubelet is back and has ended the container, and not sooner",
        (f"{REAL_FAULTS}/test_deletions.py::{AWAY}",),
    ),
    Fault(
        "F08",
        "a pod is deleted by force, and its container lives on",
        "the next pod waits at the gate until the old container has ended",
        (
            f"{PLUGIN}/test_plugin_gate.py::test_memory_of_a_force_deleted_pod_counts_while_a_process_of_it_lives",
            f"{REAL_FAULTS}/test_deletions.py::{FORCED}",
        ),
    ),
    Fault(
        "F09",
        "a node is given up: its pods are evicted, run elsewhere, and it comes back with the old containers",
        "the old containers count until they have ended; nothing counts twice",
        (f"{FAULTS}/test_nodes.py::test_what_runs_on_a_node_that_was_given_up_counts_until_it_has_ended",),
    ),
    Fault(
        "F10",
        "a node's objects are deleted, and it joins again under its name",
        "its cards are published anew at once, and take pods; nothing of before stays",
        (
            f"{FAULTS}/test_nodes.py::test_a_node_that_was_deleted_and_joins_again_is_there_with_all_its_cards",
        ),
    ),
    Fault(
        "F11",
        "a hundred pods in a second on a node of eight cards: of several containers and cards, init ones, sidecars",
        "each container is held to what it asked for, and when all are gone nothing is left",
        (
            f"{FAULTS}/test_crowd.py::test_each_of_a_hundred_pods_at_once_has_what_it_asked_for",
            f"{REAL_FAULTS}/test_crowd.py::test_each_of_a_crowd_of_pods_at_once_has_what_it_asked_for",
        ),
    ),
    Fault(
        "F12",
        "the agent stands still from before four pods are bound until all are; they differ in their amounts alone",
        "each gets its own limits",
        (
            f"{FAULTS}/test_pods.py::{TWINS}",
            f"{PLUGIN}/test_plugin_gate.py::test_two_equal_pods_at_once_each_get_their_own_limits",
        ),
    ),
    Fault(
        "F25",
        "the disk is full: no file of the agent's can grow; each file system that it writes to is full, or read-only",
        "the gate says why it waits, files of before stay whole, and room mends it; who went meanwhile leaves nothing",
        (
            f"{FAULTS}/test_files.py::test_a_full_disk_costs_retries_and_no_file",
            f"{FAULTS}/test_disks.py::test_it_waits_says_why_and_goes_on",
        ),
    ),
    Fault(
        "F26",
        "the agent's files are cut short, have another digit or a flipped bit, are of a newer version, or gone",
        "what was promised is found elsewhere, and nothing is promised twice",
        (
            f"{FAULTS}/test_files.py::test_damaged_files_of_pods_at_the_gate_and_behind_it_promise_nothing_twice",
            "tests/unit/plugin/state/test_admitted_pods.py::test_any_flipped_bit_is_noticed_or_changes_nothing",
            f"{PLUGIN}/test_plugin_recovery.py::test_a_damaged_tenancy_is_recovered_from_the_pages",
            f"{PLUGIN}/test_plugin_recovery.py::test_with_all_files_lost_kubelet_and_api_server_know_enough",
        ),
    ),
    Fault(
        "F27",
        "the CDI specs are deleted",
        "they are there again before a container restarts",
        (
            f"{PLUGIN}/test_plugin_recovery.py::test_a_deleted_spec_is_there_again_before_the_container_restarts",
            f"{REAL_FAULTS}/test_restarts.py::test_specs_that_a_cleaner_has_removed_are_there_again_for_a_restart",
        ),
    ),
    Fault(
        "F28",
        "each XID and an ECC error, a lost card, a driver that hangs about a card, a driver that is replaced",
        "what is the card's own fault withdraws its slices and MIG instances, and only these; what hangs holds up"
        " no other card; after a reset the next agent has the card again",
        (
            f"{FAULTS}/test_cards.py::test_each_error_of_a_card_withdraws_its_slices_and_no_error_of_a_program_does",
            f"{FAULTS}/test_cards.py::test_a_card_that_hangs_is_unhealthy_and_holds_up_no_other",
            f"{FAULTS}/test_cards.py::test_an_agent_that_starts_while_a_card_hangs_serves_the_others",
            f"{FAULTS}/test_cards.py::test_an_agent_ends_when_the_driver_is_replaced_and_the_next_one_goes_on",
            f"{FAULTS}/test_pods.py::test_a_card_that_fails_takes_nobody_new_and_ends_nobody",
            f"{PLUGIN}/test_plugin_health.py::test_a_card_that_is_lost_and_found_is_unhealthy_meanwhile",
            f"{PLUGIN}/test_plugin_health.py::test_a_lost_card_does_not_keep_the_others_from_being_served",
        ),
    ),
    Fault(
        "F29",
        "a reboot after which the cards have other indexes and device nodes",
        "cards are known by UUID: a pod that starts again has its own card, and that is still taken",
        (f"{FAULTS}/test_cards.py::test_cards_in_another_order_after_a_reboot_are_the_same_cards",),
    ),
    Fault(
        "F48",
        "the kubelet restarts while the agent is away, under a pod whose init container with a slice has ended",
        "the kubelet fails that pod, by a rule of its own: the webhook has warned of it and `aliquot doctor` names it; "
        "all other pods run on",
        (f"{REAL}/faults/test_restarts.py::test_a_pod_that_a_kubelet_would_fail_is_named_before",),
    ),
)
