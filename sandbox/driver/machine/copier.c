/* Copies over the bus, one after the other in each direction. */
#include "copier.h"

uint64_t sim_copier_take(struct sim_unit *unit, int slot, enum sim_direction direction, uint64_t ready, uint64_t ns)
{
    const uint32_t kinds[SIM_DIRECTIONS] = {SIM_COPIED_IN, SIM_COPIED_OUT};
    sim_unit_lock(unit);
    uint64_t *free_at = &unit->copier_free_at[direction];
    uint64_t start = ready > *free_at ? ready : *free_at;
    *free_at = start + ns;
    sim_record_add(&unit->log, (struct sim_record){atomic_load(&unit->slots[slot].pid), kinds[direction], start, start + ns});
    sim_unit_unlock(unit);
    return start + ns;
}
