/*
 * Who runs when on a unit: turns of 2 ms, round robin among the processes that have work, or all at once (`concurrent`).
 *
 * Nobody drives the schedule. Processes publish nanoseconds of work; `advance` computes, for any instant, every turn that has
 * begun and ended by then, and writes the record. Whoever looks first does it for all, so a process that is stopped or late
 * to wake neither loses nor gains GPU time: its work ran when the card would have run it.
 */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "card.h"
#include "plan.h"

#define SIM_TURN_NS 2000000ULL

/* A kernel that is ready to run. */
struct sim_work {
    uint64_t ns;
    uint32_t need;  /* threads of the card */
    uint64_t after; /* the mark of what it must follow */
    uint64_t ready; /* since when it could have run; a process that tells late has lost nothing on a card that was idle */
};

/*
 * Publishes work, placed in the process's plan; returns its mark: the work is over when the slot's done time has reached the
 * mark. SIM_NEVER: the host is out of memory.
 */
uint64_t sim_schedule_publish(struct sim_unit *unit, int slot, struct sim_plan *plan, const struct sim_work *work,
                              bool concurrent);

/*
 * The same for a kernel that goes on until it is closed; returns the mark at which it begins. The process has work meanwhile
 * however often its turn ends.
 */
uint64_t sim_schedule_open(struct sim_unit *unit, int slot, struct sim_plan *plan, const struct sim_work *work, bool concurrent);
/* It goes on for `work->ns` of the process's time and is over then: returns that mark. */
uint64_t sim_schedule_close(struct sim_unit *unit, int slot, struct sim_plan *plan, const struct sim_work *work, bool concurrent);
/* Has the process the card now, and its work got to a mark? If not, *when is an instant to look again. */
bool sim_schedule_runs(struct sim_unit *unit, int slot, uint64_t mark, bool concurrent, uint64_t *when);

/*
 * Has the mark been reached? Then *when is the instant it was. Otherwise *when is an instant before which it cannot be
 * (at most 20 ms from now, since neighbours may die).
 */
bool sim_schedule_reached(struct sim_unit *unit, int slot, uint64_t mark, bool concurrent, uint64_t *when);

/* Brings the record up to date. */
void sim_schedule_advance(struct sim_unit *unit, bool concurrent);

/* Nanoseconds in [from, to) in which a process (0: any process) ran. Up to date only after advance; includes turns under way. */
uint64_t sim_schedule_busy(struct sim_unit *unit, int32_t pid, uint64_t from, uint64_t to);

#endif
