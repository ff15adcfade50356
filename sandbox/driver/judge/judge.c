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

JUDGE_API uint64_t judge_memory_used(struct sim_machine *machine, int card, int mig)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    sim_unit_collect(unit);
    return memory_now(unit);
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

/* Where the caller wants entries: those that overlap [from, to). */
struct sheet {
    uint64_t from, to;
    struct sim_record *out;
    uint64_t room, count; /* count: also of those there was no room for */
};

static void put(struct sheet *sheet, struct sim_record entry)
{
    if (entry.end <= sheet->from || entry.start >= sheet->to)
        return;
    if (sheet->count < sheet->room)
        sheet->out[sheet->count] = entry;
    sheet->count++;
}

/* Turns under way, up to now. */
static void put_running(struct sheet *sheet, const struct sim_unit *unit)
{
    uint64_t now = sim_now();
    for (int i = 0; i < SIM_SLOTS; i++) {
        const struct sim_slot *slot = &unit->slots[i];
        if (slot->running && slot->run_start < now)
            put(sheet, (struct sim_record){atomic_load(&slot->pid), SIM_RAN, slot->run_start, now});
    }
}

/*
 * The record of [from, to), in the order in which entries were made. Returns how many there are, for which there may be too little room;
 * *lost is an instant up to which some are overwritten, 0 if none is.
 */
JUDGE_API uint64_t judge_record(struct sim_machine *machine, int card, int mig, uint64_t from, uint64_t to, struct sim_record *out,
                                uint64_t room, uint64_t *lost)
{
    struct sim_unit *unit = unit_of(machine, card, mig);
    struct sheet sheet = {from, to, out, room, 0};
    sim_schedule_advance(unit, machine->scenario.cards[card].concurrent);
    sim_unit_lock(unit);
    uint64_t known = sim_record_known(&unit->log);
    for (uint64_t i = unit->log.count - known; i < unit->log.count; i++)
        put(&sheet, *sim_record_at(&unit->log, i));
    put_running(&sheet, unit);
    *lost = unit->log.lost;
    sim_unit_unlock(unit);
    return sheet.count;
}
