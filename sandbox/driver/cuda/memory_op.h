/* Words of memory that streams wait for and write. */
#ifndef SIM_MEMORY_OP_H
#define SIM_MEMORY_OP_H

#include "engine.h"

/* Is what a stream waits for the case? */
bool sim_memory_op_holds(const struct sim_word *word);
void sim_memory_op_write(const struct sim_word *word);

#endif
