/* The turns of a unit, computed after the fact. All times are CLOCK_MONOTONIC nanoseconds. */
#include "schedule.h"

#define LONGEST_WAIT_NS 20000000ULL
#define ENDLESS (1ULL << 62) /* the demand of a process with a kernel whose end is not known */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool has_work(const struct sim_slot *slot)
{
    return atomic_load(&slot->pid) != 0 && slot->demand > slot->done;
}

static uint64_t work_end(const struct sim_slot *slot)
{
    return slot->run_start + (slot->demand - slot->done);
}

/* ---- turns ---- */

static void begin_turn(struct sim_slot *slot, uint64_t start)
{
    slot->running = true;
    slot->run_start = start;
}

static void end_turn(struct sim_unit *unit, int index, uint64_t end)
{
    struct sim_slot *slot = &unit->slots[index];
    uint64_t start = slot->run_start;
    slot->spans[slot->span_count++ % SIM_SPANS] = (struct sim_span){start, end, slot->done};
    slot->done += end - start;
    slot->ready_at = end;
    slot->running = false;
    unit->last = index;
    unit->free_at = later(unit->free_at, end);
    if (end > start)
        sim_record_add(&unit->log, (struct sim_record){atomic_load(&slot->pid), SIM_RAN, start, end});
}

static int running_slot(const struct sim_unit *unit, uint32_t used)
{
    for (uint32_t i = 0; i < used; i++)
        if (unit->slots[i].running)
            return (int)i;
    return SIM_NO_SLOT;
}

/* When the next turn could begin: as soon as the card is free and somebody is ready. */
static uint64_t next_start(const struct sim_unit *unit, uint32_t used)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < used; i++)
        if (has_work(&unit->slots[i]))
            first = sooner(first, unit->slots[i].ready_at);
    return first == UINT64_MAX ? first : later(first, unit->free_at);
}

/* The next in the round who was ready by `start` and still lives. */
static int pick(struct sim_unit *unit, uint32_t used, uint64_t start)
{
    for (uint32_t step = 1; step <= used; step++) {
        uint32_t i = (uint32_t)(unit->last + (int)step) % used;
        struct sim_slot *slot = &unit->slots[i];
        if (!has_work(slot) || slot->ready_at > start)
            continue;
        if (sim_slot_alive(slot))
            return (int)i;
        slot->demand = slot->done; /* the work of the dead is dropped */
    }
    return SIM_NO_SLOT;
}

/* The earliest instant at which somebody else waits for the turn. */
static uint64_t first_rival(const struct sim_unit *unit, uint32_t used, int current)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < used; i++)
        if ((int)i != current && has_work(&unit->slots[i]))
            first = sooner(first, unit->slots[i].ready_at);
    return first;
}

/* When the running turn ends as things stand: its work is over, or its 2 ms are and somebody waits. */
static uint64_t turn_end(const struct sim_unit *unit, uint32_t used, int current)
{
    const struct sim_slot *slot = &unit->slots[current];
    uint64_t rival = first_rival(unit, used, current);
    if (rival == UINT64_MAX)
        return work_end(slot);
    return sooner(work_end(slot), later(slot->run_start + SIM_TURN_NS, rival));
}

/* The card goes to a process; returns when it has it. */
static uint64_t hand_over(struct sim_unit *unit, int to, uint64_t start)
{
    if (unit->switch_ns == 0 || unit->last == SIM_NO_SLOT || unit->last == to)
        return start;
    uint64_t end = start + unit->switch_ns;
    sim_record_add(&unit->log, (struct sim_record){atomic_load(&unit->slots[to].pid), SIM_SWITCHED, start, end});
    return end;
}

static void advance_turns(struct sim_unit *unit, uint64_t now)
{
    uint32_t used = atomic_load(&unit->slots_used);
    for (;;) {
        int current = running_slot(unit, used);
        if (current != SIM_NO_SLOT) {
            uint64_t end = turn_end(unit, used, current);
            if (end > now)
                return;
            end_turn(unit, current, end);
            continue;
        }
        uint64_t start = next_start(unit, used);
        if (start > now)
            return;
        int next = pick(unit, used, start);
        if (next != SIM_NO_SLOT)
            begin_turn(&unit->slots[next], hand_over(unit, next, start));
    }
}

static void advance_concurrent(struct sim_unit *unit, uint64_t now)
{
    uint32_t used = atomic_load(&unit->slots_used);
    for (uint32_t i = 0; i < used; i++) {
        struct sim_slot *slot = &unit->slots[i];
        if (!slot->running && has_work(slot))
            begin_turn(slot, slot->ready_at);
        if (slot->running && work_end(slot) <= now)
            end_turn(unit, (int)i, work_end(slot));
    }
}

static void advance(struct sim_unit *unit, bool concurrent, uint64_t now)
{
    if (concurrent)
        advance_concurrent(unit, now);
    else
        advance_turns(unit, now);
}

void sim_schedule_advance(struct sim_unit *unit, bool concurrent)
{
    sim_unit_lock(unit);
    advance(unit, concurrent, sim_now());
    sim_unit_unlock(unit);
}

/* ---- one process's view ---- */

/* How much of its own time the process has had by now. */
static uint64_t progress(const struct sim_slot *slot, uint64_t now)
{
    return slot->running && now > slot->run_start ? slot->done + (now - slot->run_start) : slot->done;
}

/*
 * Since when a process that had no work waits for a turn. While others run that is now: what they were told of the past stands.
 */
static uint64_t ready_since(const struct sim_unit *unit, const struct sim_slot *slot, uint64_t ready, bool concurrent, uint64_t now)
{
    if (!concurrent && running_slot(unit, atomic_load(&unit->slots_used)) != SIM_NO_SLOT)
        return now;
    return sooner(later(ready, slot->ready_at), now);
}

/* Under the lock: the process is about to have work for the card. Returns how much of its own time it has had. */
static uint64_t arrive(struct sim_unit *unit, struct sim_slot *slot, struct sim_plan *plan, uint64_t ready, bool concurrent, uint64_t now)
{
    advance(unit, concurrent, now);
    if (!has_work(slot))
        slot->ready_at = ready_since(unit, slot, ready, concurrent, now);
    uint64_t done = progress(slot, now);
    sim_plan_pass(plan, done);
    return done;
}

uint64_t sim_schedule_publish(struct sim_unit *unit, int index, struct sim_plan *plan, const struct sim_work *work, bool concurrent)
{
    sim_unit_lock(unit);
    uint64_t now = sim_now();
    struct sim_slot *slot = &unit->slots[index];
    uint64_t done = arrive(unit, slot, plan, work->ready, concurrent, now);
    uint64_t start = sim_plan_place(plan, later(work->after, done), work->ns, work->need);
    uint64_t mark = start == SIM_NEVER ? SIM_NEVER : start + work->ns;
    if (mark != SIM_NEVER)
        slot->demand = later(slot->demand, mark);
    advance(unit, concurrent, now);
    sim_unit_unlock(unit);
    return mark;
}

/* ---- kernels whose end is not known ---- */

uint64_t sim_schedule_open(struct sim_unit *unit, int index, struct sim_plan *plan, const struct sim_work *work, bool concurrent)
{
    sim_unit_lock(unit);
    uint64_t now = sim_now();
    struct sim_slot *slot = &unit->slots[index];
    uint64_t done = arrive(unit, slot, plan, work->ready, concurrent, now);
    uint64_t start = sim_plan_open(plan, later(work->after, done), work->need);
    if (start != SIM_NEVER)
        slot->demand = ENDLESS;
    advance(unit, concurrent, now);
    sim_unit_unlock(unit);
    return start;
}

uint64_t sim_schedule_close(struct sim_unit *unit, int index, struct sim_plan *plan, const struct sim_work *work, bool concurrent)
{
    sim_unit_lock(unit);
    uint64_t now = sim_now();
    struct sim_slot *slot = &unit->slots[index];
    uint64_t mark = arrive(unit, slot, plan, now, concurrent, now) + work->ns;
    sim_plan_close(plan, mark, work->need);
    slot->demand = plan->open > 0 ? ENDLESS : plan->end;
    advance(unit, concurrent, now);
    sim_unit_unlock(unit);
    return mark;
}

/* When a mark that is behind us was reached. The ring may have lost it: then the oldest instant still known. */
static uint64_t time_of(const struct sim_slot *slot, uint64_t mark)
{
    uint64_t known = slot->span_count < SIM_SPANS ? slot->span_count : SIM_SPANS;
    uint64_t oldest = 0;
    for (uint64_t i = 1; i <= known; i++) {
        const struct sim_span *span = &slot->spans[(slot->span_count - i) % SIM_SPANS];
        if (span->done_before < mark)
            return span->start + sooner(mark - span->done_before, span->end - span->start);
        oldest = span->start;
    }
    return oldest;
}

/* An instant before which the mark cannot be reached. */
static uint64_t earliest(const struct sim_unit *unit, const struct sim_slot *slot, uint64_t mark, bool concurrent, uint64_t now)
{
    uint64_t guess = now + (mark - slot->done);
    uint32_t used = atomic_load(&unit->slots_used);
    int current = running_slot(unit, used);
    if (slot->running)
        guess = slot->run_start + (mark - slot->done);
    else if (!concurrent && current != SIM_NO_SLOT)
        guess = turn_end(unit, used, current) + (mark - slot->done);
    return sooner(guess, now + LONGEST_WAIT_NS);
}

static bool reached(struct sim_unit *unit, struct sim_slot *slot, uint64_t mark, bool concurrent, uint64_t *when)
{
    uint64_t now = sim_now();
    advance(unit, concurrent, now);
    if (slot->done >= mark) {
        *when = time_of(slot, mark);
        return true;
    }
    if (slot->running && slot->run_start + (mark - slot->done) <= now) {
        *when = slot->run_start + (mark - slot->done);
        return true;
    }
    *when = earliest(unit, slot, mark, concurrent, now);
    return false;
}

bool sim_schedule_reached(struct sim_unit *unit, int slot, uint64_t mark, bool concurrent, uint64_t *when)
{
    sim_unit_lock(unit);
    bool yes = reached(unit, &unit->slots[slot], mark, concurrent, when);
    sim_unit_unlock(unit);
    return yes;
}

bool sim_schedule_runs(struct sim_unit *unit, int index, uint64_t mark, bool concurrent, uint64_t *when)
{
    sim_unit_lock(unit);
    uint64_t now = sim_now();
    struct sim_slot *slot = &unit->slots[index];
    advance(unit, concurrent, now);
    bool runs = slot->running && now >= slot->run_start && progress(slot, now) >= mark;
    *when = runs ? now : earliest(unit, slot, later(mark, slot->done), concurrent, now);
    sim_unit_unlock(unit);
    return runs;
}

/* ---- the record ---- */

static uint64_t overlap(uint64_t start, uint64_t end, uint64_t from, uint64_t to)
{
    uint64_t low = later(start, from), high = sooner(end, to);
    return high > low ? high - low : 0;
}

static uint64_t busy(const struct sim_unit *unit, int32_t pid, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;
    uint64_t known = sim_record_known(&unit->log);
    for (uint64_t i = 1; i <= known; i++) {
        const struct sim_record *entry = sim_record_at(&unit->log, unit->log.count - i);
        if (entry->kind != SIM_RAN)
            continue;
        if (entry->end + 1000000000ULL < from)
            break; /* runs are in order of their ends, but for overlaps among concurrent processes */
        if (pid == 0 || entry->pid == pid)
            sum += overlap(entry->start, entry->end, from, to);
    }
    uint32_t used = atomic_load(&unit->slots_used);
    for (uint32_t i = 0; i < used; i++) {
        const struct sim_slot *slot = &unit->slots[i];
        if (slot->running && (pid == 0 || atomic_load(&slot->pid) == pid))
            sum += overlap(slot->run_start, sooner(work_end(slot), to), from, to);
    }
    return sum;
}

uint64_t sim_schedule_busy(struct sim_unit *unit, int32_t pid, uint64_t from, uint64_t to)
{
    sim_unit_lock(unit);
    uint64_t sum = busy(unit, pid, from, to);
    sim_unit_unlock(unit);
    return sum;
}
