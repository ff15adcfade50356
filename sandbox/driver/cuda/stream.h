/* Streams: queues of work in submission order. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "context.h"

/* Ends all streams of a context after their work. */
void sim_streams_end(struct sim_context *context);
/* Is this a call that a capture under way in this context forbids? It then invalidates the capture. */
bool sim_capture_forbids(struct sim_context *context);
/* Waits for all work of this process on a device. */
void sim_device_wait(struct sim_device *device);

#endif
