/*
 * Device memory that several processes hold. One of them has it among its bytes; when that one lets go or dies, another has,
 * and when the last lets go it is free. The table is part of the unit's shared state and under the unit's lock.
 */
#ifndef SIM_SHARE_H
#define SIM_SHARE_H

#include "card.h"

/* Makes `bytes` that a slot was charged with shareable; returns their name, 0 when there are too many. */
uint64_t sim_share_make(struct sim_unit *unit, int slot, uint64_t bytes);
/* One more hold by a slot; false when the memory is gone. */
bool sim_share_join(struct sim_unit *unit, int slot, uint64_t name);
/* Gives up one hold; the last one's frees the memory. */
void sim_share_leave(struct sim_unit *unit, int slot, uint64_t name);
/* Gives up all holds of a slot whose process is gone. Under the unit's lock. */
void sim_share_forget(struct sim_unit *unit, int slot);

#endif
