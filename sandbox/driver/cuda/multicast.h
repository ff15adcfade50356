/* Multicast objects: physical memory of several devices that is written at once. */
#ifndef SIM_MULTICAST_H
#define SIM_MULTICAST_H

#include "physical.h"

/* Lets go of all that is bound, with the object. Under the lock of physical memory. */
void sim_multicast_end(struct sim_multicast *multicast);

#endif
