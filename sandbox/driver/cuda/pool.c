#include "pool.h"
void sim_pool_give(struct sim_allocation *allocation) { sim_heap_give(allocation); }
