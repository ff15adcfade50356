/* Host memory that the driver knows. */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include "heap.h"

/* Any memory that the driver knows, by an address in it: its own, or the user's that was registered. */
bool sim_memory_find(uintptr_t address, struct sim_allocation *out);

#endif
