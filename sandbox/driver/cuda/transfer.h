/* What the entries that copy have in common. */
#ifndef SIM_TRANSFER_H
#define SIM_TRANSFER_H

#include "copy.h"
#include "stream.h"

/* Does the whole range lie in memory that the driver knows? */
bool sim_range_is_device(uintptr_t address, size_t size);
struct sim_copy sim_copy_line(const void *source, void *target, size_t size);
/* The copy that the entries' description means; INVALID_VALUE for one that leaves its memory. */
CUresult sim_box_make(const CUDA_MEMCPY3D *box, struct sim_copy *out);
/* Submits a copy, and waits for it when asked to, or when the target is pageable memory. */
CUresult sim_transfer(struct sim_stream *stream, struct sim_copy copy, bool wait);

#endif
