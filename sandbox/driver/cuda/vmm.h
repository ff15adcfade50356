/* Mappings of physical memory. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "physical.h"

/* The physical memory mapped at an address, and where in it the address lies; NULL for none. Under its lock. */
struct sim_physical *sim_mapped_at(CUdeviceptr address, size_t *offset);

#endif
