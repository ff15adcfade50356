/*
 * Memory of others mapped here: allocations of other processes (cuIpcOpenMemHandle, cuMemPoolImportPointer), which stay theirs
 * and cost this process nothing, and buffers of external memory.
 */
#ifndef SIM_FOREIGN_H
#define SIM_FOREIGN_H

#include "heap.h"
#include "physical.h"

enum sim_foreign_kind { SIM_FOREIGN_IPC, SIM_FOREIGN_POOL, SIM_FOREIGN_EXTERNAL };

/* Where an allocation is, in words for another process. */
struct sim_foreign_name {
    char magic[8];
    int32_t pid, fd, unit;
    uint64_t offset, size; /* of the allocation in its file; of the file */
};
_Static_assert(sizeof(struct sim_foreign_name) <= CU_IPC_HANDLE_SIZE, "fits into the ABI's handles");

/* Names an allocation of this process, of one of these kinds (bits), that begins at an address. */
CUresult sim_foreign_name(CUdeviceptr address, unsigned int kinds, void *out);
/* Maps what was named; a second time it is the same place. INVALID_CONTEXT for one of this process's own. */
CUresult sim_foreign_open(const void *name, enum sim_foreign_kind kind, CUdeviceptr *out);
/* Maps a part of physical memory, which it takes hold of. */
CUresult sim_foreign_map(struct sim_physical *physical, size_t offset, size_t size, CUdeviceptr *out);
/* Ends one opening, after the device's work. False: nothing of these kinds (bits) is mapped at the address. */
bool sim_foreign_close(CUdeviceptr address, unsigned int kinds);

#endif
