/* What a function answers about itself, and how many of its blocks fit. */
#include "handle.h"
#include "module.h"

#define NEED_FUNCTION(handle, name)                          \
    SIM_NEED_INIT();                                         \
    struct sim_function *name = sim_function_of(handle);     \
    if ((name) == NULL)                                      \
        return CUDA_ERROR_INVALID_HANDLE

enum { THREADS_PER_MULTIPROCESSOR = 2048, BLOCKS_PER_MULTIPROCESSOR = 32, THREADS_PER_BLOCK = 1024, SHARED = 233472 };

SIM_API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle)
{
    NEED_FUNCTION(handle, function);
    return sim_function_attribute(function, value, attribute);
}

SIM_API CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value)
{
    NEED_FUNCTION(handle, function);
    return sim_function_set(function, attribute, value);
}

SIM_API CUresult cuFuncSetCacheConfig(CUfunction handle, int config)
{
    NEED_FUNCTION(handle, function);
    (void)function;
    return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetModule(CUmodule *out, CUfunction handle)
{
    NEED_FUNCTION(handle, function);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function->module->context == NULL && function->module->module_handle == NULL)
        function->module->module_handle = sim_handle_new(SIM_MODULE, function->module);
    *out = function->module->context == NULL ? function->module->module_handle : function->module->handle;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    NEED_FUNCTION(handle, function);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->ptx->name;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    NEED_FUNCTION(handle, function);
    return sim_function_param(function, index, offset, size);
}

SIM_API CUresult cuFuncGetParamCount(CUfunction handle, size_t *count)
{
    NEED_FUNCTION(handle, function);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (size_t)function->ptx->param_count;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncIsLoaded(int *state, CUfunction handle)
{
    NEED_FUNCTION(handle, function);
    SIM_NEED_CONTEXT(context);
    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *state = sim_module_resident(function->module, context);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncLoad(CUfunction handle)
{
    NEED_FUNCTION(handle, function);
    SIM_NEED_CONTEXT(context);
    return sim_module_need(function->module, context);
}

/* ---- occupancy ---- */

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block,
                                                                      size_t shared, unsigned int flags)
{
    NEED_FUNCTION(handle, function);
    (void)function, (void)flags;
    if (blocks == NULL || block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    int by_threads = block > THREADS_PER_BLOCK ? 0 : THREADS_PER_MULTIPROCESSOR / block;
    int by_shared = shared == 0 ? BLOCKS_PER_MULTIPROCESSOR : (int)(SHARED / (shared + 1024));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > BLOCKS_PER_MULTIPROCESSOR)
        *blocks = BLOCKS_PER_MULTIPROCESSOR;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int block, size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block, shared, 0);
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize shared,
                                                           size_t fixed_shared, int limit, unsigned int flags)
{
    enum { MULTIPROCESSORS = 132 };
    NEED_FUNCTION(handle, function);
    (void)function, (void)shared, (void)fixed_shared, (void)flags;
    if (grid == NULL || block == NULL || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *block = limit > 0 && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK;
    *grid = MULTIPROCESSORS * (THREADS_PER_MULTIPROCESSOR / *block);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize shared,
                                                  size_t fixed_shared, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared, fixed_shared, limit, 0);
}

SIM_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *size, CUfunction handle, int blocks, int block)
{
    NEED_FUNCTION(handle, function);
    (void)function, (void)block;
    if (size == NULL || blocks <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *size = SHARED / (size_t)blocks - 1024;
    return CUDA_SUCCESS;
}
