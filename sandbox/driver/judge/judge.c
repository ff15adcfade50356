/* The driver's own truth, for tests and demos: what a machine's state file says, read without being a process of a card. */
#include <stdlib.h>

#include "../machine/schedule.h"

#define JUDGE_API __attribute__((visibility("default")))

JUDGE_API struct sim_machine *judge_open(const char *directory)
{
    struct sim_machine *machine = calloc(1, sizeof *machine);
    if (machine != NULL && sim_machine_open(machine, directory))
        return machine;
    free(machine);
    return NULL;
}

JUDGE_API void judge_close(struct sim_machine *machine)
{
    sim_machine_close(machine);
    free(machine);
}

static struct sim_unit *unit_of(struct sim_machine *machine, int card, int mig)
{
    return &machine->state->units[mig < 0 ? sim_unit_of_card(card) : sim_unit_of_mig(card, mig)];
}

JUDGE_API uint64_t judge_memory_used(struct sim_machine *machine, int card, int mig)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    sim_unit_collect(unit);
    return sim_memory_used(unit);
}

/* The sum of all slots at one moment: read until it is the same several times over, because bytes that one process gives back
 * and another takes meanwhile would be counted twice. */
static uint64_t memory_now(struct sim_unit *unit)
{
    enum { TIMES = 4 };
    uint64_t seen[SIM_SLOTS] = {0}, sum = 0;
    for (int times = 0; times < TIMES; times++) {
        uint32_t used = atomic_load(&unit->slots_used);
        bool still = true;
        sum = 0;
        for (uint32_t i = 0; i < used; i++) {
            uint64_t bytes = atomic_load(&unit->slots[i].memory);
            still &= bytes == seen[i];
            seen[i] = bytes;
            sum += bytes;
        }
        times = still ? times : 0;
    }
    return sum;
}

/* The most bytes in use at any moment of the next so many nanoseconds, as far as looking without a pause can tell. */
JUDGE_API uint64_t judge_memory_highest(struct sim_machine *machine, int card, int mig, uint64_t nanoseconds)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    uint64_t highest = 0, end = sim_now() + nanoseconds;
    sim_unit_collect(unit);
    while (sim_now() < end) {
        uint64_t now = memory_now(unit);
        highest = now > highest ? now : highest;
    }
    return highest;
}

/* Fills pids and bytes; returns how many processes there are. Both arrays have room for SIM_SLOTS. */
JUDGE_API int judge_processes(struct sim_machine *machine, int card, int mig, int32_t *pids, uint64_t *bytes)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    int count = 0;
    sim_unit_collect(unit);
    for (int i = 0; i < SIM_SLOTS; i++) {
        pids[count] = atomic_load(&unit->slots[i].pid);
        bytes[count] = atomic_load(&unit->slots[i].memory);
        count += pids[count] != 0;
    }
    return count;
}

static int copy_records(const struct sim_unit *unit, struct sim_record *out, int room)
{
    uint64_t known = unit->record_count < SIM_RECORDS ? unit->record_count : SIM_RECORDS;
    int count = 0;
    for (uint64_t i = unit->record_count - known; i < unit->record_count && count < room; i++)
        out[count++] = unit->records[i % SIM_RECORDS];
    return count;
}

/* The record of who ran when, oldest first, turns under way included up to now; returns how many entries. */
JUDGE_API int judge_busy(struct sim_machine *machine, int card, int mig, struct sim_record *out, int room)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    sim_schedule_advance(unit, machine->scenario.cards[card].concurrent);
    sim_unit_lock(unit);
    int count = copy_records(unit, out, room);
    uint64_t now = sim_now();
    for (int i = 0; i < SIM_SLOTS && count < room; i++) {
        const struct sim_slot *slot = &unit->slots[i];
        if (slot->running && slot->run_start < now)
            out[count++] = (struct sim_record){atomic_load(&slot->pid), slot->run_start, now};
    }
    sim_unit_unlock(unit);
    return count;
}
