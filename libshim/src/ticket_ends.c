/* Hooks of what changes where a thread's next submission goes, or what becomes of it: another current context makes the
 * default streams other streams, and what is submitted to a capturing stream does not run.
 *
 * A stream takes part in a capture from its beginning, or from the moment it waits for an event of it. The first ends
 * every ticket, since other threads may hold one for that stream; the second, which is common and mostly has to do
 * with no capture, that of the calling thread, if it is for that stream.
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

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  AFTER(aq_ticket_stop(stream, AQ_STREAM_LEGACY), cuStreamWaitEvent, stream, event, flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
  AFTER(aq_ticket_stop(stream, AQ_STREAM_PER_THREAD), cuStreamWaitEvent_ptsz, stream, event, flags);
}
