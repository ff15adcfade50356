/*
 * Where memory comes from. Device memory is ordinary memory of the process that costs no RAM until it is touched; its address
 * is the device pointer. As on a real card memory is taken in blocks of 2 MiB: requests up to 1 MiB share blocks by size class,
 * larger ones have their own.
 */
#ifndef SIM_HEAP_H
#define SIM_HEAP_H

#include "context.h"

#define SIM_BLOCK ((size_t)2 << 20)

enum sim_memory_kind {
    SIM_MEMORY_DEVICE,   /* cuMemAlloc, cuMemAllocPitch */
    SIM_MEMORY_POOL,     /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    SIM_MEMORY_MANAGED,  /* cuMemAllocManaged */
    SIM_MEMORY_HOST,     /* cuMemHostAlloc, cuMemAllocHost */
    SIM_MEMORY_ARRAY,    /* backing of arrays: no pointer of the user's */
    SIM_MEMORY_GRAPH,    /* memory nodes of graphs */
    SIM_MEMORY_MAPPED,   /* an address range of cuMemMap */
    SIM_MEMORY_FOREIGN,  /* another process's, or external */
    SIM_MEMORY_REGISTERED, /* the user's own, by cuMemHostRegister */
};

struct sim_chunk;

/* One allocation as the user knows it. */
struct sim_allocation {
    uintptr_t base;
    size_t size; /* as asked for; 0: no allocation */
    enum sim_memory_kind kind;
    struct sim_device *device;
    struct sim_context *context; /* NULL: belongs to no context */
    struct sim_pool *pool;
    struct sim_graph_memory *graph_memory; /* SIM_MEMORY_GRAPH */
    struct sim_managed *managed;           /* SIM_MEMORY_MANAGED */
    unsigned long long id;
    unsigned int flags; /* of cuMemHostAlloc or cuMemHostRegister */
    bool claimed;       /* somebody is about to give it back */
    struct sim_chunk *chunk;
    struct sim_allocation *next, *previous; /* of the same context */
};

/* Blocks of one owner, shared by its small allocations. */
struct sim_heap {
    struct sim_device *device;
    bool charged; /* blocks are charged to the card as they are taken; else the owner counts for itself */
    bool low;     /* addresses below 4 GiB, for the 32-bit entries */
    struct sim_chunk *partial[12]; /* blocks with room, by size class */
};

/* What is asked of a heap. */
struct sim_request {
    size_t size;
    enum sim_memory_kind kind;
    struct sim_context *context;
    struct sim_pool *pool;
    struct sim_graph_memory *graph_memory;
    unsigned int flags;
};

/* NULL when the card, or this process's address space, is full. */
struct sim_allocation *sim_heap_take(struct sim_heap *heap, const struct sim_request *request);
void sim_heap_give(struct sim_allocation *allocation);

/* The allocation that an address lies in, copied; false when there is none. Registered memory of the user's included. */
bool sim_heap_find(uintptr_t address, struct sim_allocation *out);
/* The allocation that begins at an address, for its owner to free: NULL when there is none of a kind in `kinds` (bits). */
struct sim_allocation *sim_heap_claim(uintptr_t base, unsigned int kinds);

/*
 * Puts the blocks that an allocation lies in into a file, for other processes to map. Returns the file, which stays the heap's,
 * and where in it the allocation begins and how large it is; -1 when the host has no room. No work may use the blocks meanwhile.
 */
int sim_heap_share(uintptr_t base, size_t *offset, size_t *size);

/* Frees all that a context owns. */
void sim_heap_end(struct sim_context *context);

/* Address ranges of cuMemMap: known to sim_heap_find, owned by vmm.c. */
bool sim_heap_note(uintptr_t base, size_t size, enum sim_memory_kind kind, struct sim_device *device);
void sim_heap_forget(uintptr_t base);

/* Reserves and returns address space in multiples of 2 MiB, aligned to `alignment`. 0 when there is none. */
uintptr_t sim_space_take(size_t size, size_t alignment, bool low);
void sim_space_give(uintptr_t base, size_t size);
/* Puts a file behind the address space, with what is in it: the file, or -1. */
int sim_space_share(uintptr_t base, size_t size);
/* A file that holds these bytes, or -1. */
int sim_file_of(const void *bytes, size_t size);
/* An empty file in memory; -1 where there is none. glibc 2.17, on which a wheel's driver loads, has no memfd_create(). */
int sim_memory_file(void);

static inline size_t sim_blocks(size_t size)
{
    return (size + SIM_BLOCK - 1) / SIM_BLOCK * SIM_BLOCK;
}

#endif
