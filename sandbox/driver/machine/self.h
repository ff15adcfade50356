/* Which process this is, and which others live. */
#ifndef SIM_SELF_H
#define SIM_SELF_H

#include <stdint.h>

/* The directory of the machine's /proc: $SIMGPU_PROC, else /proc. */
const char *sim_proc(void);

/* This process's id on the machine. */
int32_t sim_self(void);

/* Start time of a process, by its id on the machine, in ticks since boot; 0 when it is gone or a zombie. */
uint64_t sim_birth_of(int32_t pid);

#endif
