/*
 * Entries for programs whose default stream is the calling thread's own: where the caller names no stream they work on that one.
 * Each only renames the stream and goes on; what copies and fills bytes has its twins in memcpy.c and memcpy_box.c.
 */
#include "../include/simcuda.h"

static CUstream own(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

/* TWIN(name, parameters, arguments): the arguments name the stream as own(stream). */
#define TWIN(name, parameters, arguments) \
    CUresult name parameters;             \
    SIM_API CUresult name##_ptsz parameters \
    {                                     \
        return name arguments;            \
    }

#define GRID unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz

TWIN(cuStreamGetPriority, (CUstream stream, int *out), (own(stream), out))
TWIN(cuStreamGetFlags, (CUstream stream, unsigned int *out), (own(stream), out))
TWIN(cuStreamGetId, (CUstream stream, unsigned long long *out), (own(stream), out))
TWIN(cuStreamGetCtx, (CUstream stream, CUcontext *out), (own(stream), out))
TWIN(cuStreamGetCtx_v2, (CUstream stream, CUcontext *out, void **green), (own(stream), out, green))
TWIN(cuStreamGetDevice, (CUstream stream, CUdevice *out), (own(stream), out))
TWIN(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (own(stream), event, flags))
TWIN(cuStreamAddCallback, (CUstream stream, CUstreamCallback run, void *data, unsigned int flags), (own(stream), run, data, flags))
TWIN(cuStreamSynchronize, (CUstream stream), (own(stream)))
TWIN(cuStreamQuery, (CUstream stream), (own(stream)))
TWIN(cuEventRecord, (CUevent event, CUstream stream), (event, own(stream)))
TWIN(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, own(stream), flags))

TWIN(cuLaunchKernel, (CUfunction function, GRID, unsigned int shared, CUstream stream, void **params, void **extra),
     (function, gx, gy, gz, bx, by, bz, shared, own(stream), params, extra))
TWIN(cuLaunchCooperativeKernel, (CUfunction function, GRID, unsigned int shared, CUstream stream, void **params),
     (function, gx, gy, gz, bx, by, bz, shared, own(stream), params))
TWIN(cuLaunchHostFunc, (CUstream stream, CUhostFn run, void *data), (own(stream), run, data))
TWIN(cuLaunchHostFunc_v2, (CUstream stream, CUhostFn run, void *data, unsigned int mode), (own(stream), run, data, mode))

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);

/* Here the stream is in the description. */
SIM_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    if (config == NULL)
        return cuLaunchKernelEx(config, function, params, extra);
    CUlaunchConfig renamed = *config;
    renamed.stream = own(config->stream);
    return cuLaunchKernelEx(&renamed, function, params, extra);
}

TWIN(cuMemAllocAsync, (CUdeviceptr *out, size_t size, CUstream stream), (out, size, own(stream)))
TWIN(cuMemAllocFromPoolAsync, (CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream), (out, size, pool, own(stream)))
TWIN(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, own(stream)))
TWIN(cuMemPrefetchAsync, (CUdeviceptr address, size_t size, CUdevice device, CUstream stream), (address, size, device, own(stream)))
TWIN(cuMemPrefetchAsync_v2, (CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags, CUstream stream),
     (address, size, location, flags, own(stream)))

#define RANGES CUdeviceptr *addresses, size_t *sizes, size_t count
#define PLACES CUmemLocation *locations, size_t *starts, size_t places
TWIN(cuMemPrefetchBatchAsync, (RANGES, PLACES, unsigned long long flags, CUstream stream),
     (addresses, sizes, count, locations, starts, places, flags, own(stream)))
TWIN(cuMemDiscardBatchAsync, (RANGES, unsigned long long flags, CUstream stream), (addresses, sizes, count, flags, own(stream)))
TWIN(cuMemDiscardAndPrefetchBatchAsync, (RANGES, PLACES, unsigned long long flags, CUstream stream),
     (addresses, sizes, count, locations, starts, places, flags, own(stream)))

TWIN(cuStreamBeginCapture, (CUstream stream), (own(stream)))
TWIN(cuStreamBeginCapture_v2, (CUstream stream, int mode), (own(stream), mode))
TWIN(cuStreamBeginCaptureToGraph,
     (CUstream stream, CUgraph graph, const CUgraphNode *needs, const void *edges, size_t count, int mode),
     (own(stream), graph, needs, edges, count, mode))
TWIN(cuStreamGetDevResource, (CUstream stream, void *out, int type), (own(stream), out, type))
TWIN(cuStreamEndCapture, (CUstream stream, CUgraph *out), (own(stream), out))
TWIN(cuStreamIsCapturing, (CUstream stream, int *out), (own(stream), out))
TWIN(cuStreamGetCaptureInfo, (CUstream stream, int *status, uint64_t *id), (own(stream), status, id))
TWIN(cuStreamGetCaptureInfo_v2,
     (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **tails, size_t *count),
     (own(stream), status, id, graph, tails, count))
TWIN(cuStreamGetCaptureInfo_v3,
     (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **tails, const void **edges, size_t *count),
     (own(stream), status, id, graph, tails, edges, count))
TWIN(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
     (own(stream), nodes, count, flags))
TWIN(cuStreamUpdateCaptureDependencies_v2,
     (CUstream stream, CUgraphNode *nodes, const void *edges, size_t count, unsigned int flags),
     (own(stream), nodes, edges, count, flags))
TWIN(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, own(stream)))
TWIN(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, own(stream)))
TWIN(cuGraphInstantiateWithParams, (CUgraphExec *out, CUgraph graph, void *params), (out, graph, params))
TWIN(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t size, unsigned int flags),
     (own(stream), address, size, flags))
TWIN(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext c, CUdeviceptr from, CUcontext d, size_t size, CUstream stream),
     (to, c, from, d, size, own(stream)))

TWIN(cuMemMapArrayAsync, (void *list, unsigned int count, CUstream stream), (list, count, own(stream)))

#define LINES CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count
TWIN(cuMemcpyBatchAsync_v2, (LINES, void *attributes, size_t *starts, size_t kinds, CUstream stream),
     (targets, sources, sizes, count, attributes, starts, kinds, own(stream)))
TWIN(cuMemcpyBatchAsync, (LINES, void *attributes, size_t *starts, size_t kinds, size_t *failed, CUstream stream),
     (targets, sources, sizes, count, attributes, starts, kinds, failed, own(stream)))
TWIN(cuMemcpy3DBatchAsync_v2, (size_t count, const void *ops, unsigned long long flags, CUstream stream),
     (count, ops, flags, own(stream)))
TWIN(cuMemcpy3DBatchAsync, (size_t count, const void *ops, size_t *failed, unsigned long long flags, CUstream stream),
     (count, ops, failed, flags, own(stream)))
TWIN(cuMemcpyWithAttributesAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, const void *attributes, CUstream stream),
     (to, from, size, attributes, own(stream)))
TWIN(cuMemcpy3DWithAttributesAsync, (const void *op, unsigned long long flags, CUstream stream), (op, flags, own(stream)))
TWIN(cuMemBatchDecompressAsync, (void *list, size_t count, unsigned int flags, size_t *failed, CUstream stream),
     (list, count, flags, failed, own(stream)))
