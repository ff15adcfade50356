/* Modules and libraries: loaded PTX, its functions and global variables. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "heap.h"
#include "ptx.h"

enum { SIM_FUNCTION_ATTRIBUTES = 18 };

struct sim_module;

/* A kernel of a module. As a CUkernel and as a CUfunction it has two handles; both can be launched. */
struct sim_function {
    struct sim_module *module;
    const struct sim_ptx_kernel *ptx;
    CUkernel kernel_handle;
    CUfunction function_handle;
    int attributes[SIM_FUNCTION_ATTRIBUTES];
    struct {
        unsigned int block[3], shared, size;
        char params[4096];
    } legacy; /* what the launches before CUDA 4 set one by one */
};

/* A module or library. */
struct sim_module {
    void *handle;
    struct sim_context *context; /* NULL: a library */
    struct sim_ptx ptx;
    struct sim_function *functions;
    struct sim_allocation **globals; /* memory of the global variables, NULL until asked for */
    CUmodule module_handle;          /* of a library, for those who ask for its module */
};

/* Loads PTX text. */
CUresult sim_module_load(const void *image, struct sim_context *context, struct sim_module **out);
/* Loads a file. FILE_NOT_FOUND. */
CUresult sim_module_load_file(const char *path, struct sim_context *context, struct sim_module **out);
void sim_module_free(struct sim_module *module);
/* NULL: no kernel of that name. */
struct sim_function *sim_module_function(struct sim_module *module, const char *name);
CUresult sim_module_global(struct sim_module *module, const char *name, CUdeviceptr *address, size_t *size);

/* The function behind a CUfunction or a CUkernel; NULL for none. */
struct sim_function *sim_function_of(const void *handle);
CUresult sim_function_attribute(const struct sim_function *function, int *value, int attribute);
CUresult sim_function_set(struct sim_function *function, int attribute, int value);
CUresult sim_function_param(const struct sim_function *function, size_t index, size_t *offset, size_t *size);

#endif
