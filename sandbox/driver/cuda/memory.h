/* Memory of contexts, and copies between any two places. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "heap.h"

/* One of a device's heaps, made when first asked for; NULL when the host is out of memory. */
struct sim_heap *sim_memory_heap(struct sim_device *device, enum sim_heap_name name);
/* Frees what a context owns. */
void sim_memory_end(struct sim_context *context);
/* Gives an allocation back to whom it came from, now. */
void sim_memory_give(struct sim_allocation *allocation);

#endif
