/*
 * Managed memory that processes have on a unit. A full unit may take it off again, whoever's it is: memory that was used the
 * longest ago goes first, by processes. Who loses some is told when it looks: what it believes to have there is what is there
 * and what was taken from it since.
 */
#ifndef SIM_RESIDENT_H
#define SIM_RESIDENT_H

#include "card.h"

/* A process's memory, charged to its slot already, has come. */
void sim_resident_add(struct sim_unit *unit, int slot, uint64_t bytes);
/* It leaves and is no longer charged; as much of it as was taken before is neither. */
void sim_resident_remove(struct sim_unit *unit, int slot, uint64_t bytes);
/* It is being used. */
void sim_resident_use(struct sim_unit *unit, int slot);
/* The bytes that were taken from a process since it asked last. */
uint64_t sim_resident_taken(struct sim_unit *unit, int slot);
/* Bytes of all processes but one. */
uint64_t sim_resident_others(struct sim_unit *unit, int slot);
/* Takes so many bytes off all processes but one, or all there are; returns how many. */
uint64_t sim_resident_take(struct sim_unit *unit, int slot, uint64_t bytes);

#endif
