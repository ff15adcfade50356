/* Launches. A kernel runs for as many nanoseconds as its first 64-bit integer parameter says. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "handle.h"
#include "launch.h"
#include "managed.h"
#include "module.h"
#include "stream.h"
#include "transfer.h"

#define SHORT_NS 5000ULL                 /* a kernel with no such parameter */
#define LONGEST_NS 3600000000000ULL      /* more is no duration but an address */

static size_t buffer_size(void **extra)
{
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            return *(const size_t *)extra[1];
    return 0;
}

static const char *buffer(void **extra)
{
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            return extra[1];
    return NULL;
}

/* Where the parameter's value is: among pointers to values, or in a packed buffer. */
static const void *param_value(const struct sim_ptx_kernel *ptx, int index, void **params, void **extra)
{
    if (params != NULL)
        return params[index];
    const char *packed = extra == NULL ? NULL : buffer(extra);
    if (packed == NULL || buffer_size(extra) < ptx->offsets[index] + sizeof(uint64_t))
        return NULL;
    return packed + ptx->offsets[index];
}

static uint64_t duration(const struct sim_ptx_kernel *ptx, void **params, void **extra)
{
    uint64_t ns;
    const void *value = ptx->first_u64 < 0 ? NULL : param_value(ptx, ptx->first_u64, params, extra);
    if (value == NULL)
        return SHORT_NS;
    memcpy(&ns, value, sizeof ns);
    return ns > LONGEST_NS ? SHORT_NS : ns;
}

/* The managed memory that the parameters point to. */
static void find_touched(const struct sim_ptx_kernel *ptx, void **params, void **extra, uintptr_t *touched)
{
    int count = 0;
    for (int i = 0; i < ptx->param_count && count < SIM_TOUCHED; i++) {
        uintptr_t address;
        const void *value = ptx->sizes[i] != sizeof address ? NULL : param_value(ptx, i, params, extra);
        if (value == NULL)
            continue;
        memcpy(&address, value, sizeof address);
        if (sim_managed_has(address, 1))
            touched[count++] = address;
    }
}

/* What the kernel of that name has for parameters; false for words that are not memory. */
static bool find_meeting(const struct sim_ptx_kernel *ptx, void **params, void **extra, struct sim_meeting *out)
{
    enum { NAMED_PARAMS = 4 };
    if (ptx->param_count != NAMED_PARAMS || strcmp(ptx->name, "aliquot_meet") != 0)
        return true;
    const void *values[NAMED_PARAMS];
    for (int i = 0; i < NAMED_PARAMS; i++)
        if ((values[i] = param_value(ptx, i, params, extra)) == NULL)
            return true;
    memcpy(&out->arrive, values[1], sizeof out->arrive);
    memcpy(&out->await, values[2], sizeof out->await);
    memcpy(&out->value, values[3], sizeof out->value);
    return sim_range_is_device(out->arrive, sizeof out->value) && sim_range_is_device(out->await, sizeof out->value);
}

static bool grid_fits(const unsigned int *grid, const unsigned int *block)
{
    return grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && block[0] > 0 && block[1] > 0 && block[2] > 0 &&
           grid[0] <= 2147483647U && grid[1] <= 65535U && grid[2] <= 65535U && block[0] <= 1024U && block[1] <= 1024U &&
           block[2] <= 64U && (uint64_t)block[0] * block[1] * block[2] <= 1024U;
}

CUresult sim_launch_make(void *handle, const unsigned int *grid, const unsigned int *block, unsigned int shared, void **params,
                         void **extra, struct sim_launch *out)
{
    enum { MAX_DYNAMIC = 8 };
    const struct sim_function *function = sim_function_of(handle);
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!grid_fits(grid, block) || shared > (unsigned int)function->attributes[MAX_DYNAMIC])
        return CUDA_ERROR_INVALID_VALUE;
    if (params != NULL && extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function->ptx->param_count > 0 && params == NULL && extra == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sim_launch){.function = handle, .shared = shared, .ns = duration(function->ptx, params, extra)};
    if (!find_meeting(function->ptx, params, extra, &out->meeting))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (sim_managed_any())
        find_touched(function->ptx, params, extra, out->touched);
    memcpy(out->grid, grid, sizeof out->grid);
    memcpy(out->block, block, sizeof out->block);
    return CUDA_SUCCESS;
}

CUresult sim_launch_load(const struct sim_launch *launch, struct sim_context *context)
{
    const struct sim_function *function = sim_function_of(launch->function);
    return function == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_module_need(function->module, context);
}

static CUresult launch(void *handle, const unsigned int *grid, const unsigned int *block, unsigned int shared,
                       CUstream stream_handle, void **params, void **extra)
{
    SIM_NEED_STREAM(stream_handle, stream);
    struct sim_op op = {.kind = SIM_OP_KERNEL};
    CUresult result = sim_launch_make(handle, grid, block, shared, params, extra, &op.launch);
    if (result == CUDA_SUCCESS)
        result = sim_launch_load(&op.launch, stream->context);
    return result != CUDA_SUCCESS ? result : sim_stream_submit(stream, &op);
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                                CUstream stream, void **params, void **extra)
{
    const unsigned int grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return launch(function, grid, block, shared, stream, params, extra);
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                           unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                           unsigned int shared, CUstream stream, void **params)
{
    enum { RESIDENT_THREADS = 132 * 2048 };
    const unsigned int grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    SIM_NEED_INIT();
    if (grid_fits(grid, block) && (uint64_t)grid_x * grid_y * grid_z * block_x * block_y * block_z > RESIDENT_THREADS)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(function, grid, block, shared, stream, params, NULL);
}

SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    SIM_NEED_INIT();
    if (config == NULL || (config->attribute_count > 0 && config->attributes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return launch(function, config->grid, config->block, config->shared, config->stream, params, extra);
}

/* One kernel on each of several devices, as many as are named. A real card has them begin together. */
SIM_API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    enum { NO_PRE_SYNC = 1, NO_POST_SYNC = 2 };
    SIM_NEED_INIT();
    if (launches == NULL || count == 0 || (flags & ~(unsigned int)(NO_PRE_SYNC | NO_POST_SYNC)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUDA_LAUNCH_PARAMS *one = &launches[i];
        bool is_default = one->stream == NULL || one->stream == CU_STREAM_LEGACY || one->stream == CU_STREAM_PER_THREAD;
        result = is_default ? CUDA_ERROR_INVALID_VALUE
                            : launch(one->function, one->grid, one->block, one->shared, one->stream, one->params, NULL);
    }
    return result;
}

SIM_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn run, void *data)
{
    SIM_NEED_STREAM(handle, stream);
    if (run == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {.kind = SIM_OP_HOST, .host = {.run = run, .data = data}};
    return sim_stream_submit(stream, &op);
}

SIM_API CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn run, void *data, unsigned int sync_mode)
{
    if (sync_mode > 1)
        return sim_ready() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    return cuLaunchHostFunc(stream, run, data);
}

/* ---- callbacks of the older kind, which are told the stream and its state ---- */

struct callback {
    CUstreamCallback run;
    CUstream stream;
    void *data;
};

static void call_back(void *data)
{
    struct callback *callback = data;
    callback->run(callback->stream, CUDA_SUCCESS, callback->data);
    free(callback);
}

/* A callback would be called once and is not allowed in a capture. */
SIM_API CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback run, void *data, unsigned int flags)
{
    SIM_NEED_STREAM(handle, stream);
    if (run == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_capture_breaks(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct callback *callback = malloc(sizeof *callback);
    if (callback == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){run, handle, data};
    struct sim_op op = {.kind = SIM_OP_HOST, .host = {.run = call_back, .data = callback}};
    CUresult result = sim_stream_submit(stream, &op);
    if (result != CUDA_SUCCESS)
        free(callback);
    return result;
}
