/*
 * Which kernels of one process run side by side while it has the card, in the process's own time: nanoseconds that it has had
 * the card for (a slot's `done`). A kernel begins as soon as it may and its grid fits beside those that were placed before; so
 * at every instant up to the end of the plan something runs, and that end is all that the card must know (schedule.h).
 */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include <stddef.h>
#include <stdint.h>

/* Threads that are resident on a card: 132 multiprocessors of 2,048, in at most 32 blocks each. */
enum { SIM_RESIDENT = 132 * 2048, SIM_LEAST_BLOCK = 2048 / 32 };

#define SIM_NEVER UINT64_MAX

/* From an instant up to the next step's so many threads are taken; none before the first step, and the last goes on for ever. */
struct sim_plan_step {
    uint64_t from;
    uint32_t taken;
};

/* All zero: nothing is planned. */
struct sim_plan {
    struct sim_plan_step *steps;
    size_t count, room;
    uint64_t end; /* when the last of what is placed ends */
    unsigned int open; /* kernels whose end is not known */
};

/* Threads that a grid takes of a card, at most all of it. */
uint32_t sim_plan_need(const unsigned int grid[3], const unsigned int block[3]);

/* Forgets what was over by `now`. */
void sim_plan_pass(struct sim_plan *plan, uint64_t now);

/*
 * Places work of `ns` at `earliest` or later; returns when it begins. SIM_NEVER: what is open leaves no room for it, or the host is
 * out of memory.
 */
uint64_t sim_plan_place(struct sim_plan *plan, uint64_t earliest, uint64_t ns, uint32_t need);

/* The same for work that goes on until it is closed. */
uint64_t sim_plan_open(struct sim_plan *plan, uint64_t earliest, uint32_t need);
/* It ends at an instant that is not past. */
void sim_plan_close(struct sim_plan *plan, uint64_t end, uint32_t need);

#endif
