"""Faults of tenants and of what surrounds them: MIG, processes, pages, upgrades, the container runtime, chaos."""

from tests.integration.faults.catalogue.fault import Fault

NATIVE = "tests/native"
PLUGIN = "tests/integration/plugin"
JOURNEY = "tests/integration/journey"
CHAOS = "tests/integration/chaos"
REPLICAS = "tests/integration/test_replica_chaos.py"
REAL = "tests/cluster"
ENDS = f"{REAL}/faults/test_tenants.py"

TENANT = (
    Fault(
        "F30",
        "an admin destroys a MIG instance by hand, and makes it again, or switches the mode of a card with tenants;"
        " Aliquot itself makes and destroys none",
        "its instances have one owner each, no card is shared and cut at once, nothing else is touched",
        (
            f"{CHAOS}/test_chaos.py::test_nothing_is_lost_or_promised_twice_in_a_minute_of_chaos",
            f"{PLUGIN}/test_plugin_mig.py::test_a_slice_on_a_divided_card_is_refused",
            f"{PLUGIN}/test_plugin_mig.py::test_a_card_that_an_admin_divides_under_its_tenants",
        ),
    ),
    Fault(
        "F38",
        "the interceptor is upgraded while pods run",
        "each container keeps the file that it has mapped, none ends; new ones get the new one",
        (
            f"{REAL}/test_upgrade.py::test_it_is_upgraded_and_rolled_back_under_running_pods",
            f"{PLUGIN}/test_plugin_recovery.py::test_the_interceptor_of_a_running_container_is_never_overwritten",
            f"{NATIVE}/test_shim_skew.py::test_an_older_interceptor_shares_the_quota_with_a_newer_one",
            f"{NATIVE}/test_shim_skew.py::test_an_older_interceptor_lives_under_a_newer_agent",
        ),
    ),
    Fault(
        "F39",
        "a tenant's process is killed at any instruction, forks without exec and a thousand times, is ended by the"
        " kernel for its memory, has the number of one in another pid namespace",
        "what it held is free for the next who asks, and nobody else's is",
        (
            f"{NATIVE}/test_shim_kill.py::test_a_process_killed_in_a_call_leaves_nothing",
            f"{NATIVE}/test_shim_kill.py::test_a_process_killed_at_any_instruction_of_a_call_leaves_nothing",
            f"{NATIVE}/test_shim_survival.py::test_a_thousand_children_one_after_another_are_all_served",
            f"{NATIVE}/test_shim_survival.py::test_the_end_of_a_child_ends_nothing_of_its_parents",
            f"{NATIVE}/test_shim_survival.py::test_what_the_dead_of_another_pid_namespace_held_is_free",
            f"{NATIVE}/test_shim_survival.py::test_the_living_of_another_pid_namespace_keep_what_they_hold",
            f"{ENDS}::test_a_tenant_that_the_kernel_ends_for_its_memory_gets_its_slice_again",
        ),
    ),
    Fault(
        "F40",
        "a tenant overwrites its account or cuts it short, mounts a file system over it, or fills its /tmp; a page is"
        " damaged, or on a full file system",
        "it alone is affected: without pages that can be read it gets no memory, and the agent goes on",
        (
            f"{JOURNEY}/test_vandals.py::test_a_tenant_that_damages_its_account_hurts_itself_alone",
            f"{NATIVE}/test_shim_pages.py::test_a_damaged_usage_page_means_no_memory",
            f"{NATIVE}/test_shim_pages.py::test_a_damaged_control_page_means_no_memory_and_one_line_why",
            f"{NATIVE}/test_shim_survival.py::test_a_page_on_a_full_file_system_is_refused_with_a_sentence",
            f"{NATIVE}/test_shim_mounts.py::test_who_covers_the_pages_gets_no_memory",
            f"{NATIVE}/test_shim_mounts.py::test_a_full_tmp_costs_nothing",
            f"{NATIVE}/test_hostile_pages.py::test_a_page_that_its_tenant_has_locked_is_changed",
            "tests/unit/arbiter/test_arbiter_faults.py::test_a_damaged_page_hurts_its_owner_only",
            f"{PLUGIN}/test_plugin_gate.py::test_a_truncated_usage_page_is_mended_at_the_next_start",
        ),
    ),
    Fault(
        "F41",
        "the node agent is ended by the kernel for its memory, or has a hundredth of a processor",
        "limits hold in the containers, and none of them ends",
        (
            f"{ENDS}::test_an_agent_without_memory_or_time_takes_no_tenant_with_it",
            f"{NATIVE}/test_arbiter_ends.py::test_tenants_of_a_silent_arbiter_are_held_to_their_shares",
        ),
    ),
    Fault(
        "F44",
        "all of Aliquot is upgraded, rolled back, and taken away, with seven pods that compute and others that come"
        " and go",
        "no container ends or has a moment without its limits; pods of both versions are looked after by either;"
        " in the end nothing is left",
        (
            f"{REAL}/test_upgrade.py::test_it_is_upgraded_and_rolled_back_under_running_pods",
            f"{REAL}/test_uninstall.py::test_pods_with_slices_outlive_it",
            f"{REAL}/test_uninstall.py::test_without_pods_nothing_of_it_is_left",
            f"{REAL}/test_install.py::test_it_is_installed_upgraded_rolled_back_and_taken_away",
        ),
    ),
    Fault(
        "F45",
        "the container runtime restarts; the interceptor's file is missing on the node",
        "who runs runs on; without the file nobody new starts until the agent has put it there again",
        (
            f"{REAL}/test_faults.py::test_a_container_runtime_restarts_under_running_pods",
            f"{ENDS}::test_without_the_interceptors_file_nothing_starts",
        ),
    ),
    Fault(
        "F46",
        "everything at random, by a seed ([chaos](#chaos))",
        "all of the above after each act, and in the end everybody runs or knows why not",
        (
            f"{CHAOS}/test_chaos.py::test_nothing_is_lost_or_promised_twice_in_a_minute_of_chaos",
            f"{CHAOS}/test_auditor.py::test_what_breaks_a_rule_is_found",
            f"{CHAOS}/test_auditor.py::test_what_is_left_is_found_when_its_time_is_over",
            f"{CHAOS}/test_auditor.py::test_a_container_that_did_not_run_on_is_found",
            f"{REPLICAS}::test_whatever_becomes_of_leaders_nothing_is_promised_twice_or_lost",
            f"{NATIVE}/chaos/test_shim_chaos.py::test_no_promise_is_broken_whatever_happens_to_whom",
        ),
    ),
)
