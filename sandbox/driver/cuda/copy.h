/* Copies and fills, as the engine runs them: boxes of bytes anywhere in this process. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "../include/simcuda.h"

struct sim_copy {
    const char *source;
    char *target;
    size_t source_pitch, source_slice, target_pitch, target_slice;
    size_t width, height, depth; /* bytes, rows, slices */
    void *staged;                /* freed after the copy: pageable memory is read when the call is made */
};

struct sim_set {
    char *target;
    uint32_t value;
    unsigned int element; /* bytes: 1, 2 or 4 */
    size_t pitch, width, height; /* bytes, elements, rows */
};

void sim_copy_run(const struct sim_copy *copy);
void sim_set_run(const struct sim_set *set);

#endif
