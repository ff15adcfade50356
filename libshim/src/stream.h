/* What can be told of a stream.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_STREAM_H
#define AQ_STREAM_H

#include <stdbool.h>

#include "hooks.h"

/* The stream that a function of a flavour (AQ_STREAM_…) means, under a name that means the same to functions of the other: in
 * the per-thread flavour the default stream is the calling thread's own. */
static inline CUstream aq_stream_named(CUstream stream, int flavour) {
  return !stream && flavour == AQ_STREAM_PER_THREAD ? CU_STREAM_PER_THREAD : stream;
}

/* Stands for a stream by such a name, of the calling thread whose `thread` is: each thread has a default stream of its own in one flavour,
 * and the other's has two names. */
static inline CUstream aq_stream_identity(CUstream stream, const void *thread) {
  if (stream == CU_STREAM_PER_THREAD) return (CUstream)(uintptr_t)thread;
  return stream == CU_STREAM_LEGACY ? NULL : stream;
}

/* Of a stream by such a name: the device that it is on. Returns the driver's status. */
CUresult aq_stream_device(CUstream stream, CUdevice *device);

/* Whether it is being captured, as far as the driver says. */
bool aq_stream_is_capturing(CUstream stream);

/* Makes the stream's own context current. True: aq_stream_leave must follow. False: it is, or the driver cannot tell. */
bool aq_stream_enter(CUstream stream);
void aq_stream_leave(void);

/* The same where its context is another than this one, which is current; else nothing is done. */
bool aq_stream_enter_other(CUstream stream, CUcontext current);

/* An event without timing in the stream's own context, which it is told, recorded in the stream. NULL: there is none to be had. The
 * thread's captures are the caller's business. */
CUevent aq_stream_mark(CUstream stream, CUcontext *in);

#endif
