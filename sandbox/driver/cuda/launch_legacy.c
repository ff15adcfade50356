/* Launches as before CUDA 4: parameters and block shape are set on the function, one by one. */
#include <string.h>

#include "handle.h"
#include "launch.h"
#include "module.h"
#include "stream.h"

enum { MAX_PARAM_BYTES = 4096 };

#define NEED_FUNCTION(handle, name)                          \
    SIM_NEED_INIT();                                         \
    struct sim_function *name = sim_function_of(handle);     \
    if ((name) == NULL)                                      \
        return CUDA_ERROR_INVALID_HANDLE

SIM_API CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z)
{
    NEED_FUNCTION(handle, function);
    if (x <= 0 || y <= 0 || z <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    function->legacy.block[0] = (unsigned int)x;
    function->legacy.block[1] = (unsigned int)y;
    function->legacy.block[2] = (unsigned int)z;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes)
{
    NEED_FUNCTION(handle, function);
    function->legacy.shared = bytes;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSetSize(CUfunction handle, unsigned int bytes)
{
    NEED_FUNCTION(handle, function);
    if (bytes > MAX_PARAM_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    function->legacy.size = bytes;
    return CUDA_SUCCESS;
}

static CUresult set_param(CUfunction handle, int offset, const void *value, unsigned int bytes)
{
    NEED_FUNCTION(handle, function);
    if (value == NULL || offset < 0 || bytes > MAX_PARAM_BYTES || (unsigned int)offset > MAX_PARAM_BYTES - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(function->legacy.params + offset, value, bytes);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuParamSetv(CUfunction function, int offset, const void *value, unsigned int bytes)
{
    return set_param(function, offset, value, bytes);
}

SIM_API CUresult cuParamSeti(CUfunction function, int offset, unsigned int value)
{
    return set_param(function, offset, &value, sizeof value);
}

SIM_API CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return set_param(function, offset, &value, sizeof value);
}

static CUresult launch(CUfunction handle, int width, int height, CUstream stream_handle)
{
    NEED_FUNCTION(handle, function);
    SIM_NEED_STREAM(stream_handle, stream);
    if (width <= 0 || height <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned int grid[3] = {(unsigned int)width, (unsigned int)height, 1};
    size_t size = function->legacy.size;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, function->legacy.params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    struct sim_op op = {.kind = SIM_OP_KERNEL};
    CUresult result = sim_launch_make(handle, grid, function->legacy.block, function->legacy.shared, NULL, extra, &op.launch);
    if (result == CUDA_SUCCESS)
        result = sim_launch_load(&op.launch, stream->context);
    return result == CUDA_SUCCESS ? sim_stream_submit(stream, &op) : result;
}

SIM_API CUresult cuLaunch(CUfunction function)
{
    return launch(function, 1, 1, NULL);
}

SIM_API CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch(function, width, height, NULL);
}

SIM_API CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch(function, width, height, stream);
}
