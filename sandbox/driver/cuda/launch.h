/* Making a launch from what the caller gives. */
#ifndef SIM_LAUNCH_H
#define SIM_LAUNCH_H

#include "engine.h"

/* INVALID_HANDLE for no function; INVALID_VALUE for a grid, shared memory or parameters that cannot be. */
CUresult sim_launch_make(void *handle, const unsigned int *grid, const unsigned int *block, unsigned int shared, void **params,
                         void **extra, struct sim_launch *out);

/* Loads the launched function's code in the context it is to run in, if it is not there: OUT_OF_MEMORY. */
CUresult sim_launch_load(const struct sim_launch *launch, struct sim_context *context);

#endif
