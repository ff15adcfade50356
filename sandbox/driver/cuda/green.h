/* What a green context needs of contexts. */
#ifndef SIM_GREEN_H
#define SIM_GREEN_H

#include "context.h"

/* A context that stands on the device's primary one, which is awake, and costs what a green context does; NULL: no room. */
struct sim_context *sim_context_new_green(struct sim_device *device);
void sim_context_end_green(struct sim_context *context);

#endif
