/* What processes have on a unit that may be taken off it; all of it under the unit's lock. */
#include "resident.h"

#include <stddef.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void sim_resident_add(struct sim_unit *unit, int slot, uint64_t bytes)
{
    sim_unit_lock(unit);
    unit->slots[slot].managed += bytes;
    sim_unit_unlock(unit);
}

static void release(struct sim_slot *slot, uint64_t bytes)
{
    slot->managed -= bytes;
    atomic_fetch_sub(&slot->memory, bytes);
}

void sim_resident_remove(struct sim_unit *unit, int index, uint64_t bytes)
{
    struct sim_slot *slot = &unit->slots[index];
    sim_unit_lock(unit);
    uint64_t there = smaller(bytes, slot->managed);
    release(slot, there);
    slot->taken -= smaller(bytes - there, slot->taken);
    sim_unit_unlock(unit);
}

void sim_resident_use(struct sim_unit *unit, int slot)
{
    sim_unit_lock(unit);
    unit->slots[slot].used_at = sim_now();
    sim_unit_unlock(unit);
}

uint64_t sim_resident_taken(struct sim_unit *unit, int index)
{
    struct sim_slot *slot = &unit->slots[index];
    sim_unit_lock(unit);
    uint64_t taken = slot->taken;
    slot->taken = 0;
    sim_unit_unlock(unit);
    return taken;
}

uint64_t sim_resident_others(struct sim_unit *unit, int slot)
{
    uint64_t sum = 0;
    sim_unit_lock(unit);
    for (uint32_t i = 0; i < atomic_load(&unit->slots_used); i++)
        sum += (int)i == slot ? 0 : unit->slots[i].managed;
    sim_unit_unlock(unit);
    return sum;
}

static struct sim_slot *oldest_but(struct sim_unit *unit, int slot)
{
    struct sim_slot *oldest = NULL;
    for (uint32_t i = 0; i < atomic_load(&unit->slots_used); i++) {
        struct sim_slot *one = &unit->slots[i];
        if ((int)i != slot && one->managed > 0 && (oldest == NULL || one->used_at < oldest->used_at))
            oldest = one;
    }
    return oldest;
}

uint64_t sim_resident_take(struct sim_unit *unit, int slot, uint64_t bytes)
{
    uint64_t sum = 0;
    struct sim_slot *victim;
    sim_unit_lock(unit);
    while (sum < bytes && (victim = oldest_but(unit, slot)) != NULL) {
        uint64_t some = smaller(bytes - sum, victim->managed);
        release(victim, some);
        victim->taken += some;
        sum += some;
    }
    sim_unit_unlock(unit);
    return sum;
}
