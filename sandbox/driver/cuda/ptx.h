/* What is read from PTX text: kernels with the sizes of their parameters, and global variables. */
#ifndef SIM_PTX_H
#define SIM_PTX_H

#include "../include/simcuda.h"

enum { SIM_MAX_PARAMS = 64 };

struct sim_ptx_kernel {
    char *name;
    int param_count;
    size_t offsets[SIM_MAX_PARAMS], sizes[SIM_MAX_PARAMS]; /* bytes */
    int first_u64;                                         /* index of the first 64-bit integer parameter, -1: none */
};

struct sim_ptx_global {
    char *name;
    size_t size;
};

struct sim_ptx {
    struct sim_ptx_kernel *kernels;
    int kernel_count;
    struct sim_ptx_global *globals;
    int global_count;
};

/* INVALID_IMAGE when it is no PTX, INVALID_PTX when it is but makes no sense, OUT_OF_MEMORY. */
CUresult sim_ptx_read(const char *text, struct sim_ptx *out);
void sim_ptx_free(struct sim_ptx *ptx);

#endif
