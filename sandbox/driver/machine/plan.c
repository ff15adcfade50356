/* A process's kernels in its own time. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

uint32_t sim_plan_need(const unsigned int grid[3], const unsigned int block[3])
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    uint64_t most = SIM_RESIDENT / SIM_LEAST_BLOCK, blocks = grid[0];
    for (int i = 1; i < 3 && blocks <= most; i++)
        blocks *= grid[i];
    if (blocks > most)
        return SIM_RESIDENT;
    uint64_t need = blocks * (threads < SIM_LEAST_BLOCK ? SIM_LEAST_BLOCK : threads);
    return need < SIM_RESIDENT ? (uint32_t)need : SIM_RESIDENT;
}

void sim_plan_pass(struct sim_plan *plan, uint64_t now)
{
    size_t over = 0;
    while (over + 1 < plan->count && plan->steps[over + 1].from <= now)
        over++;
    if (over == 0)
        return;
    plan->count -= over;
    memmove(plan->steps, plan->steps + over, plan->count * sizeof *plan->steps);
}

/* ---- steps ---- */

/* One placement adds two steps at most, and so do opening and closing together. */
static int make_room(struct sim_plan *plan)
{
    if (plan->count + plan->open + 2 <= plan->room)
        return 1;
    size_t room = plan->room == 0 ? 16 : 2 * plan->room;
    struct sim_plan_step *grown = realloc(plan->steps, room * sizeof *grown);
    if (grown == NULL)
        return 0;
    plan->steps = grown;
    plan->room = room;
    return 1;
}

/* The first step that begins after an instant, sought from the end, where one stream's work always goes. */
static size_t after(const struct sim_plan *plan, uint64_t when)
{
    size_t i = plan->count;
    while (i > 0 && plan->steps[i - 1].from > when)
        i--;
    return i;
}

static uint32_t taken_before(const struct sim_plan *plan, size_t step)
{
    return step == 0 ? 0 : plan->steps[step - 1].taken;
}

/* Makes a step begin at an instant, and returns it. */
static size_t split(struct sim_plan *plan, uint64_t when)
{
    size_t i = after(plan, when);
    if (i > 0 && plan->steps[i - 1].from == when)
        return i - 1;
    memmove(plan->steps + i + 1, plan->steps + i, (plan->count - i) * sizeof *plan->steps);
    plan->steps[i] = (struct sim_plan_step){when, taken_before(plan, i)};
    plan->count++;
    return i;
}

/* Drops a step that changes nothing, so that a chain of equal kernels is one step however long it is. */
static void join(struct sim_plan *plan, size_t step)
{
    if (plan->steps[step].taken != taken_before(plan, step))
        return;
    plan->count--;
    memmove(plan->steps + step, plan->steps + step + 1, (plan->count - step) * sizeof *plan->steps);
}

/* ---- placing ---- */

static uint64_t first_fit(const struct sim_plan *plan, uint64_t earliest, uint64_t ns, uint32_t need)
{
    uint64_t start = earliest;
    size_t next = after(plan, start);
    for (uint64_t from = start; from - start < ns; from = plan->steps[next++].from) {
        if (taken_before(plan, next) + need > SIM_RESIDENT) {
            if (next == plan->count)
                return SIM_NEVER;
            start = plan->steps[next].from;
        }
        if (next == plan->count)
            break;
    }
    return start;
}

/* Takes so many threads more from one step up to another. */
static void take(struct sim_plan *plan, size_t first, size_t last, uint32_t need)
{
    for (size_t i = first; i < last; i++)
        plan->steps[i].taken += need;
    if (last < plan->count)
        join(plan, last);
    join(plan, first);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t sim_plan_place(struct sim_plan *plan, uint64_t earliest, uint64_t ns, uint32_t need)
{
    if (!make_room(plan))
        return SIM_NEVER;
    uint64_t start = first_fit(plan, earliest, ns, need);
    if (start == SIM_NEVER || ns == 0)
        return start;
    size_t first = split(plan, start), last = split(plan, start + ns);
    take(plan, first, last, need);
    plan->end = later(plan->end, start + ns);
    return start;
}

uint64_t sim_plan_open(struct sim_plan *plan, uint64_t earliest, uint32_t need)
{
    if (!make_room(plan))
        return SIM_NEVER;
    uint64_t start = first_fit(plan, earliest, SIM_NEVER, need);
    if (start == SIM_NEVER)
        return start;
    size_t first = split(plan, start);
    take(plan, first, plan->count, need);
    plan->open++;
    return start;
}

void sim_plan_close(struct sim_plan *plan, uint64_t end, uint32_t need)
{
    size_t first = split(plan, end);
    for (size_t i = first; i < plan->count; i++)
        plan->steps[i].taken -= need;
    join(plan, first);
    plan->open--;
    plan->end = later(plan->end, end);
}
