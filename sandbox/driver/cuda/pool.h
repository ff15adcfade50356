/* Memory pools. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "heap.h"

/* Gives an allocation back to its pool. */
void sim_pool_give(struct sim_allocation *allocation);

#endif
