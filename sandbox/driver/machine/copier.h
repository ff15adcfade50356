/* The engines that copy between a card and the host or other cards: one for each direction, which all processes share. */
#ifndef SIM_COPIER_H
#define SIM_COPIER_H

#include "card.h"

enum sim_direction { SIM_IN, SIM_OUT, SIM_DIRECTIONS };

/* Takes an engine for `ns`, from `ready` on or when those who asked before are done; returns when the copy ends. */
uint64_t sim_copier_take(struct sim_unit *unit, int slot, enum sim_direction direction, uint64_t ready, uint64_t ns);

#endif
