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

/* A context that a module is loaded in. */
struct sim_residence {
    struct sim_context *context;
    unsigned long long life; /* the context's when it was loaded */
    uint64_t bytes;
    struct sim_residence *next;
};

/* A module or library. */
struct sim_module {
    void *handle;
    struct sim_context *context; /* NULL: a library */
    struct sim_ptx ptx;
    struct sim_function *functions;
    struct sim_allocation **globals; /* memory of the global variables, NULL until asked for */
    CUmodule module_handle;          /* of a library, for those who ask for its module */
    _Atomic unsigned long long latest; /* life of the context that it was last needed in: it is loaded there */
    struct sim_residence *residences; /* under the lock of residence.c */
    struct sim_module *next;          /* of all libraries; under the same */
};

/* Loads PTX text. */
CUresult sim_module_load(const void *image, struct sim_context *context, struct sim_module **out);
/* Loads a file. FILE_NOT_FOUND. */
CUresult sim_module_load_file(const char *path, struct sim_context *context, struct sim_module **out);
void sim_module_free(struct sim_module *module);
/* NULL: no kernel of that name. */
struct sim_function *sim_module_function(struct sim_module *module, const char *name);
CUresult sim_module_global(struct sim_module *module, const char *name, CUdeviceptr *address, size_t *size);

/* Is CUDA_MODULE_LOADING=EAGER set? The default is to load lazily, as since CUDA 12.2. */
bool sim_loading_is_eager(void);
/* Loads a module in a context if it is not: OUT_OF_MEMORY when its code does not fit on the card. */
CUresult sim_module_need(struct sim_module *module, struct sim_context *context);
/* Is its code in the context? */
bool sim_module_resident(const struct sim_module *module, const struct sim_context *context);
/* Takes its code from all contexts. */
void sim_module_evict(struct sim_module *module);
/* A library is loaded eagerly in all contexts, those to come included: these tell of either. */
CUresult sim_library_arrives(struct sim_module *library);
CUresult sim_libraries_enter(struct sim_context *context);

/* The function behind a CUfunction or a CUkernel; NULL for none. */
struct sim_function *sim_function_of(const void *handle);
CUresult sim_function_attribute(const struct sim_function *function, int *value, int attribute);
CUresult sim_function_set(struct sim_function *function, int attribute, int value);
CUresult sim_function_param(const struct sim_function *function, size_t index, size_t *offset, size_t *size);

#endif
