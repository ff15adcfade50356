/* Libraries: modules that belong to no context, and their kernels. */
#include "handle.h"
#include "module.h"

static CUresult give_library(CUlibrary *out, CUresult result, struct sim_module *const *module)
{
    if (result == CUDA_SUCCESS)
        *out = (*module)->handle;
    return result;
}

SIM_API CUresult cuLibraryLoadData(CUlibrary *out, const void *image, int *jit, void **jit_values, unsigned int jit_count,
                                   int *options, void **values, unsigned int count)
{
    struct sim_module *module = NULL;
    SIM_NEED_INIT();
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (out == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return give_library(out, sim_module_load(image, NULL, &module), &module);
}

SIM_API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, int *jit, void **jit_values, unsigned int jit_count,
                                       int *options, void **values, unsigned int count)
{
    struct sim_module *module = NULL;
    SIM_NEED_INIT();
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (out == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return give_library(out, sim_module_load_file(path, NULL, &module), &module);
}

SIM_API CUresult cuLibraryUnload(CUlibrary handle)
{
    SIM_NEED_INIT();
    struct sim_module *module = sim_handle_end(handle, SIM_LIBRARY);
    if (module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    module->handle = NULL;
    sim_module_free(module);
    return CUDA_SUCCESS;
}

#define NEED_LIBRARY(handle, name)                                   \
    SIM_NEED_INIT();                                                 \
    struct sim_module *name = sim_handle_get(handle, SIM_LIBRARY);   \
    if ((name) == NULL)                                              \
        return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
    NEED_LIBRARY(handle, library);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_function *function = sim_module_function(library, name);
    if (function == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *out = function->kernel_handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    NEED_LIBRARY(handle, library);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (unsigned int)library->ptx.kernel_count;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int room, CUlibrary handle)
{
    NEED_LIBRARY(handle, library);
    if (kernels == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < library->ptx.kernel_count && (unsigned int)i < room; i++)
        kernels[i] = library->functions[i].kernel_handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
    NEED_LIBRARY(handle, library);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (library->module_handle == NULL)
        library->module_handle = sim_handle_new(SIM_MODULE, library);
    *out = library->module_handle;
    return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary handle, const char *name)
{
    NEED_LIBRARY(handle, library);
    return name == NULL ? CUDA_ERROR_INVALID_VALUE : sim_module_global(library, name, address, size);
}

#define NEED_KERNEL(handle, name)                                     \
    SIM_NEED_INIT();                                                  \
    struct sim_function *name = sim_handle_get(handle, SIM_KERNEL);   \
    if ((name) == NULL)                                               \
        return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
    NEED_KERNEL(handle, kernel);
    SIM_NEED_CONTEXT(context);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_module_need(kernel->module, context);
    if (result == CUDA_SUCCESS)
        *out = kernel->function_handle;
    return result;
}

SIM_API CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel handle)
{
    NEED_KERNEL(handle, kernel);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel->module->context != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = kernel->module->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel handle, CUdevice device)
{
    NEED_KERNEL(handle, kernel);
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_function_attribute(kernel, value, attribute);
}

SIM_API CUresult cuKernelSetAttribute(int attribute, int value, CUkernel handle, CUdevice device)
{
    NEED_KERNEL(handle, kernel);
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_function_set(kernel, attribute, value);
}

SIM_API CUresult cuKernelSetCacheConfig(CUkernel handle, int config, CUdevice device)
{
    NEED_KERNEL(handle, kernel);
    (void)kernel, (void)config;
    return sim_device(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    NEED_KERNEL(handle, kernel);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->ptx->name;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size)
{
    NEED_KERNEL(handle, kernel);
    return sim_function_param(kernel, index, offset, size);
}

SIM_API CUresult cuKernelGetParamCount(CUkernel handle, size_t *count)
{
    NEED_KERNEL(handle, kernel);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (size_t)kernel->ptx->param_count;
    return CUDA_SUCCESS;
}
