/* Modules, and the functions in them. */
#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "handle.h"
#include "memory.h"

/* ---- loading ---- */

static void init_function(struct sim_function *function, struct sim_module *module, const struct sim_ptx_kernel *ptx)
{
    enum { MAX_THREADS, SHARED, CONST, LOCAL, REGISTERS, PTX_VERSION, BINARY_VERSION, CACHE, MAX_DYNAMIC };
    *function = (struct sim_function){.module = module, .ptx = ptx};
    function->attributes[MAX_THREADS] = 1024;
    function->attributes[REGISTERS] = 16;
    function->attributes[PTX_VERSION] = 70;
    function->attributes[BINARY_VERSION] = 90;
    function->attributes[MAX_DYNAMIC] = 49152;
    function->kernel_handle = sim_handle_new(SIM_KERNEL, function);
    function->function_handle = sim_handle_new(SIM_FUNCTION, function);
}

CUresult sim_module_load(const void *image, struct sim_context *context, struct sim_module **out)
{
    struct sim_module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_ptx_read(image, &module->ptx);
    if (result != CUDA_SUCCESS) {
        free(module);
        return result;
    }
    module->context = context;
    module->functions = calloc((size_t)module->ptx.kernel_count + 1, sizeof *module->functions);
    module->globals = calloc((size_t)module->ptx.global_count + 1, sizeof(struct sim_allocation *));
    module->handle = sim_handle_new(context == NULL ? SIM_LIBRARY : SIM_MODULE, module);
    if (module->functions == NULL || module->globals == NULL || module->handle == NULL) {
        sim_module_free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < module->ptx.kernel_count; i++)
        init_function(&module->functions[i], module, &module->ptx.kernels[i]);
    CUresult loaded = context == NULL          ? sim_library_arrives(module)
                      : sim_loading_is_eager() ? sim_module_need(module, context)
                                               : CUDA_SUCCESS;
    if (loaded != CUDA_SUCCESS)
        sim_module_free(module);
    *out = module;
    return loaded;
}

static char *read_file(const char *path)
{
    enum { LARGEST = 256 << 20 };
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    char *text = size < 0 || size > LARGEST ? NULL : calloc(1, (size_t)size + 1);
    rewind(file);
    if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size)
        text[0] = '\0';
    fclose(file);
    return text;
}

CUresult sim_module_load_file(const char *path, struct sim_context *context, struct sim_module **out)
{
    char *text = read_file(path);
    if (text == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = sim_module_load(text, context, out);
    free(text);
    return result;
}

void sim_module_free(struct sim_module *module)
{
    sim_module_evict(module);
    for (int i = 0; module->functions != NULL && i < module->ptx.kernel_count; i++) {
        sim_handle_end(module->functions[i].kernel_handle, SIM_KERNEL);
        sim_handle_end(module->functions[i].function_handle, SIM_FUNCTION);
    }
    for (int i = 0; module->globals != NULL && i < module->ptx.global_count; i++)
        if (module->globals[i] != NULL)
            sim_heap_give(module->globals[i]);
    if (module->module_handle != NULL)
        sim_handle_end(module->module_handle, SIM_MODULE);
    free(module->functions);
    free(module->globals);
    if (module->handle != NULL)
        sim_handle_end(module->handle, module->context == NULL ? SIM_LIBRARY : SIM_MODULE);
    sim_ptx_free(&module->ptx);
    free(module);
}

/* ---- what is in it ---- */

struct sim_function *sim_module_function(struct sim_module *module, const char *name)
{
    for (int i = 0; i < module->ptx.kernel_count; i++)
        if (strcmp(module->ptx.kernels[i].name, name) == 0)
            return &module->functions[i];
    return NULL;
}

/* Under no lock: two threads that ask first at once may both allocate; the second wins and the first leaks until unload. */
static CUresult global_memory(struct sim_module *module, int index, struct sim_device *device)
{
    if (module->globals[index] != NULL)
        return CUDA_SUCCESS;
    struct sim_request request = {.size = module->ptx.globals[index].size, .kind = SIM_MEMORY_DEVICE};
    struct sim_heap *heap = sim_memory_heap(device, SIM_HEAP_DEVICE);
    module->globals[index] = heap == NULL ? NULL : sim_heap_take(heap, &request);
    return module->globals[index] == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult sim_module_global(struct sim_module *module, const char *name, CUdeviceptr *address, size_t *size)
{
    SIM_NEED_CONTEXT(context);
    for (int i = 0; i < module->ptx.global_count; i++) {
        if (strcmp(module->ptx.globals[i].name, name) != 0)
            continue;
        CUresult result = global_memory(module, i, context->device);
        if (result == CUDA_SUCCESS && address != NULL)
            *address = module->globals[i]->base;
        if (result == CUDA_SUCCESS && size != NULL)
            *size = module->ptx.globals[i].size;
        return result;
    }
    return CUDA_ERROR_NOT_FOUND;
}

struct sim_function *sim_function_of(const void *handle)
{
    struct sim_function *function = sim_handle_get(handle, SIM_FUNCTION);
    return function != NULL ? function : sim_handle_get(handle, SIM_KERNEL);
}

CUresult sim_function_attribute(const struct sim_function *function, int *value, int attribute)
{
    if (value == NULL || attribute < 0 || attribute >= SIM_FUNCTION_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = function->attributes[attribute];
    return CUDA_SUCCESS;
}

/* Only what limits a launch can be set: dynamic shared memory and up. */
CUresult sim_function_set(struct sim_function *function, int attribute, int value)
{
    enum { FIRST_SETTABLE = 8, MAX_DYNAMIC = 8, LARGEST_SHARED = 232448 };
    if (attribute < FIRST_SETTABLE || attribute >= SIM_FUNCTION_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == MAX_DYNAMIC && (value < 0 || value > LARGEST_SHARED))
        return CUDA_ERROR_INVALID_VALUE;
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult sim_function_param(const struct sim_function *function, size_t index, size_t *offset, size_t *size)
{
    if (offset == NULL || index >= (size_t)function->ptx->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->ptx->offsets[index];
    if (size != NULL)
        *size = function->ptx->sizes[index];
    return CUDA_SUCCESS;
}

/* ---- entries ---- */

static CUresult give_module(CUmodule *out, CUresult result, struct sim_module *const *module)
{
    if (result == CUDA_SUCCESS)
        *out = (*module)->handle;
    return result;
}

SIM_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    SIM_NEED_CONTEXT(context);
    struct sim_module *module = NULL;
    if (out == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_forbids(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return give_module(out, sim_module_load(image, context, &module), &module);
}

SIM_API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, int *options, void **values)
{
    if (count > 0 && (options == NULL || values == NULL))
        return sim_ready() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    return cuModuleLoadData(out, image);
}

SIM_API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    return cuModuleLoadData(out, image);
}

SIM_API CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    SIM_NEED_CONTEXT(context);
    struct sim_module *module = NULL;
    if (out == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return give_module(out, sim_module_load_file(path, context, &module), &module);
}

SIM_API CUresult cuModuleUnload(CUmodule handle)
{
    SIM_NEED_CONTEXT(context);
    struct sim_module *module = sim_handle_get(handle, SIM_MODULE);
    if (module == NULL || module->context == NULL) /* a library's module goes with its library */
        return module == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_PERMITTED;
    if (sim_handle_end(handle, SIM_MODULE) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_engine_drain(context->device);
    module->handle = NULL;
    sim_module_free(module);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    SIM_NEED_INIT();
    struct sim_module *module = sim_handle_get(handle, SIM_MODULE);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_function *function = sim_module_function(module, name);
    if (function == NULL)
        return CUDA_ERROR_NOT_FOUND;
    struct sim_context *context = module->context != NULL ? module->context : sim_context_current();
    CUresult result = context == NULL ? CUDA_ERROR_INVALID_CONTEXT : sim_module_need(module, context);
    if (result == CUDA_SUCCESS)
        *out = function->function_handle;
    return result;
}

SIM_API CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
    SIM_NEED_INIT();
    struct sim_module *module = sim_handle_get(handle, SIM_MODULE);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = (unsigned int)module->ptx.kernel_count;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule handle, const char *name)
{
    SIM_NEED_INIT();
    struct sim_module *module = sim_handle_get(handle, SIM_MODULE);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return module == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_module_global(module, name, address, size);
}

SIM_API CUresult cuModuleGetLoadingMode(int *mode)
{
    SIM_NEED_INIT();
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sim_loading_is_eager() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
