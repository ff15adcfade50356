/* Arrays: images in device memory, whose layout is the driver's own business. */
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "heap.h"

struct sim_array {
    CUarray handle;
    struct sim_allocation *memory;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    size_t element, pitch, rows, slices; /* bytes of an element and of a row; rows of a slice */
    bool of_mipmap;                      /* a level: the mipmap owns it */
    struct sim_tile *tiles;              /* of sparse and deferred arrays */
};

/* A level of a mipmapped array; NULL for none. */
struct sim_array *sim_mipmap_level(CUmipmappedArray handle, unsigned int level);
/* Unmaps all that is mapped to a sparse or deferred array. */
void sim_tiles_end(struct sim_tile *tiles);

/* The array behind a handle; NULL for none. */
struct sim_array *sim_array_of(CUarray handle);

#endif
