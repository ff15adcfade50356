/* Hooks of what changes where a thread's next submission goes, or what becomes of it: another current context makes the
 * default streams other streams, and what is submitted to a capturing stream does not run.
 *
 * A stream takes part in a capture from its beginning, or from the moment it waits for an event of it. The first ends
 * every ticket, since other threads may hold one for that stream; the second that of the calling thread for that stream.
 *
 * Where a stream waits for an event, a word of memory or the host, what came before ends its batch, and what comes after
 * begins one: in between the card does nothing for the stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"
#include "ticket.h"

/* Calls the driver's function after `first`. */
#define AFTER(first, symbol, ...)                      \
  do {                                                 \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND; \
    first;                                             \
    return AQ_CUDA(symbol)(__VA_ARGS__);               \
  } while (0)

CUresult cuCtxSetCurrent(CUcontext context) { AFTER(aq_ticket_switch(context), cuCtxSetCurrent, context); }
CUresult cuCtxPushCurrent(CUcontext context) { AFTER(aq_ticket_switch(context), cuCtxPushCurrent, context); }
CUresult cuCtxPushCurrent_v2(CUcontext context) { AFTER(aq_ticket_switch(context), cuCtxPushCurrent_v2, context); }
CUresult cuCtxPopCurrent(CUcontext *context) { AFTER(aq_ticket_switch(NULL), cuCtxPopCurrent, context); }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { AFTER(aq_ticket_switch(NULL), cuCtxPopCurrent_v2, context); }

#define CAPTURE(symbol, parameters, ...) \
  CUresult symbol parameters { AFTER(aq_tickets_stop(), symbol, __VA_ARGS__); }

CAPTURE(cuStreamBeginCapture, (CUstream stream), stream)
CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), stream)
CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, int mode), stream, mode)
CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode), stream, mode)

#define TO_GRAPH (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges, size_t count, int mode)
CAPTURE(cuStreamBeginCaptureToGraph, TO_GRAPH, stream, graph, nodes, edges, count, mode)
CAPTURE(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH, stream, graph, nodes, edges, count, mode)

#define AGAIN_TO_GRAPH (CUstream stream, int mode, CUgraph graph, void *callback, void *data)
CAPTURE(cuStreamBeginRecaptureToGraph, AGAIN_TO_GRAPH, stream, mode, graph, callback, data)
CAPTURE(cuStreamBeginRecaptureToGraph_ptsz, AGAIN_TO_GRAPH, stream, mode, graph, callback, data)

CAPTURE(cuStreamBeginCaptureToCig, (CUstream stream, void *parameters), stream, parameters)
CAPTURE(cuStreamBeginCaptureToCig_ptsz, (CUstream stream, void *parameters), stream, parameters)

/* What a stream waits for besides its own work. */
#define WAIT(symbol, flavour, parameters, ...) \
  CUresult symbol parameters { AFTER(aq_submit_stream_waits(stream, AQ_STREAM_##flavour), symbol, __VA_ARGS__); }
#define WAIT_TWINS(name, version, parameters, ...)              \
  WAIT(name##version, LEGACY, parameters, __VA_ARGS__)          \
  WAIT(name##version##_ptsz, PER_THREAD, parameters, __VA_ARGS__)

#define EVENT (CUstream stream, CUevent event, unsigned int flags)
#define WORD(type) (CUstream stream, CUdeviceptr address, type value, unsigned int flags)
#define WORDS (CUstream stream, unsigned int count, void *operations, unsigned int flags)
#define SEMAPHORES (const CUextSemaphore *semaphores, const void *parameters, unsigned int count, CUstream stream)

WAIT_TWINS(cuStreamWaitEvent, , EVENT, stream, event, flags)
WAIT_TWINS(cuStreamWaitValue32, , WORD(uint32_t), stream, address, value, flags)
WAIT_TWINS(cuStreamWaitValue32, _v2, WORD(uint32_t), stream, address, value, flags)
WAIT_TWINS(cuStreamWaitValue64, , WORD(uint64_t), stream, address, value, flags)
WAIT_TWINS(cuStreamWaitValue64, _v2, WORD(uint64_t), stream, address, value, flags)
WAIT_TWINS(cuStreamBatchMemOp, , WORDS, stream, count, operations, flags)
WAIT_TWINS(cuStreamBatchMemOp, _v2, WORDS, stream, count, operations, flags)
WAIT_TWINS(cuWaitExternalSemaphoresAsync, , SEMAPHORES, semaphores, parameters, count, stream)
WAIT_TWINS(cuLaunchHostFunc, , (CUstream stream, void *function, void *data), stream, function, data)
WAIT_TWINS(cuLaunchHostFunc, _v2, (CUstream stream, void *function, void *data, unsigned int mode), stream, function, data, mode)
WAIT_TWINS(cuStreamAddCallback, , (CUstream stream, void *function, void *data, unsigned int flags), stream, function, data, flags)
